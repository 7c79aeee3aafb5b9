"""A real browser: Debian's Chromium without a window, driven by Playwright, with what a test must look at."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_SHADES = "to => document.querySelectorAll('.table-wrap').forEach(one => { one.style.background = to; })"
_REPORTS = """
window.__reports = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__reports.push(event.violatedDirective + " " + event.blockedURI);
});
"""


def path_of_chromium() -> str:
    """Return where Chromium is; `make chromium` installs it where it may."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, "These tests need a browser: apt-get install chromium"
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser for the length of the block."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path_of_chromium(), args=FLAGS)
        try:
            yield launched
        finally:
            launched.close()


def without_aborts(messages: list[str]) -> list[str]:
    """Return a console's errors without those of a request that a later one replaced: htmx reports two for each."""
    found = [one for one in messages if not one.startswith("htmx:sendAbort")]
    for _ in range(len(messages) - len(found)):
        found.remove(next(one for one in found if one.startswith("htmx:afterRequest")))
    return found


@dataclass
class Look:
    """One person's window, and everything that went wrong in it."""

    page: Page
    context: BrowserContext
    url: str
    wrong: list[str] = field(default_factory=list)

    def sign_in(self, key: str) -> None:
        """Sign in with a key by keyboard alone."""
        self.page.goto(f"{self.url}/sign-in")
        self.page.get_by_label("Key", exact=True).focus()
        self.page.keyboard.type(key)
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(lambda address: "/sign-in" not in address)

    def go(self, path: str) -> None:
        """Open a page of the service."""
        self.page.goto(f"{self.url}{path}")

    def refuse_reports(self) -> None:
        """Fail for an error of the console, a failed script, or a report of the content security policy."""
        reports = self.page.evaluate("window.__reports")
        assert not reports, reports
        wrong = without_aborts(self.wrong)
        assert not wrong, wrong

    def refuse_violations(self) -> None:
        """Fail for what axe-core finds on the page as it stands, and for a page that scrolls sideways."""
        self.page.evaluate(_SHADES, "none")  # axe judges no text above a gradient
        found = Axe().run(self.page)
        self.page.evaluate(_SHADES, "")
        assert found.violations_count == 0, found.generate_report()
        wider = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, f"{self.page.url} is {wider} px wider than its window"


@contextmanager
def look(browser: Browser, url: str, **options: Any) -> Iterator[Look]:
    """Open a window for one person."""
    # The stack's certificate is signed by itself; Chromium reads no SSL_CERT_FILE.
    usual: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", "ignore_https_errors": True}
    context = browser.new_context(**(usual | options))
    context.add_init_script(_REPORTS)
    page = context.new_page()
    seen = Look(page, context, url)
    page.on("console", lambda message: seen.wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.wrong.append(str(error)))
    try:
        yield seen
    finally:
        context.close()


def pictures(seen: Look, path: str, name: str, folder: Path) -> list[Path]:
    """Take a picture of a page at each width in each scheme."""
    made = []
    for width in WIDTHS:
        seen.page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            seen.page.emulate_media(color_scheme=scheme)
            seen.go(path)
            made.append(folder / f"{name}-{width}-{scheme}.png")
            seen.page.screenshot(path=made[-1], full_page=True)
    return made
