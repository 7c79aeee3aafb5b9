"""The shell in a real browser: sign-in by keyboard, both schemes, both widths, hostile names."""

import pytest
from playwright.sync_api import Browser

from core.access.bootstrap import console_link
from tests.support.api import Service, upload
from tests.support.browser import SCHEMES, WIDTHS, look

pytestmark = pytest.mark.service
HOSTILE = (
    "<script>window.hit=1</script>",
    "\u202e\u0642\u0627\u0639\u062f\u0629",  # right to left
    "a" * 200,
    "🏥💊",
    '"><img src=x onerror="window.hit=1">',
)


def test_people_sign_in_by_keyboard_and_out(service: Service, chromium: Browser) -> None:
    _, made = service.someone("owner", "Bank data office")
    with look(chromium, service.url) as seen:
        seen.go("/datasets")
        assert "/sign-in" in seen.page.url
        seen.refuse_violations()
        seen.page.get_by_label("Key", exact=True).focus()
        seen.page.keyboard.type("frt_wrong")
        seen.page.keyboard.press("Enter")
        seen.page.get_by_text("This key opens nothing").wait_for()
        seen.refuse_violations()
        seen.wrong.clear()  # the browser notes the answer 401
        seen.page.get_by_label("Key", exact=True).focus()
        seen.page.keyboard.type(made["key"])
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url(f"{service.url}/datasets")
        seen.page.keyboard.press("Tab")
        assert seen.page.evaluate("document.activeElement.textContent") == "Skip to the page"
        seen.page.get_by_role("link", name="Sign out").press("Enter")
        seen.page.get_by_role("button", name="Sign out here").press("Enter")
        seen.page.wait_for_url(lambda address: "/sign-in" in address)
        seen.refuse_reports()


def test_a_link_of_the_terminal_signs_in_once(service: Service, chromium: Browser) -> None:
    database = service.database()
    link = database.transaction(console_link)
    database.dispose()
    with look(chromium, service.url) as seen:
        seen.go(f"/sign-in#link={link}")
        assert link not in seen.page.url
        seen.refuse_violations()
        seen.page.get_by_role("button", name="Sign in with the link").press("Enter")
        seen.page.wait_for_url(f"{service.url}/")
        seen.refuse_reports()
        assert seen.page.get_by_text("admin", exact=True).count()


def test_colours_follow_the_system_or_what_was_chosen(service: Service, chromium: Browser) -> None:
    _, made = service.someone("analyst")
    background = "getComputedStyle(document.body).backgroundColor"
    with look(chromium, service.url, color_scheme="light") as seen:
        seen.sign_in(made["key"])
        light = seen.page.evaluate(background)
        seen.page.get_by_role("button", name="Dark").press("Enter")
        seen.page.wait_for_selector("html[data-theme=dark]")
        dark = seen.page.evaluate(background)
        assert dark != light
        seen.page.get_by_role("button", name="As the system").press("Enter")
        seen.page.wait_for_selector("html:not([data-theme])")
        assert seen.page.evaluate(background) == light
        seen.refuse_reports()


def test_hostile_names_stay_text(service: Service, chromium: Browser) -> None:
    owner, made = service.someone("owner", HOSTILE[0])
    for number, name in enumerate(HOSTILE):
        upload(owner, shift=500 + number, name=name)
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        for path in ("/", "/datasets", "/sign-out"):
            for width in WIDTHS:
                seen.page.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES:
                    seen.page.emulate_media(color_scheme=scheme)
                    seen.go(path)
                    seen.refuse_violations()
                    assert seen.page.evaluate("window.hit") is None
        seen.go("/datasets")
        for name in HOSTILE:
            assert seen.page.locator("th bdi", has_text=name).count() == 1, name
        seen.refuse_reports()
