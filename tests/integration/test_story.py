"""The story of four people in a real browser and by keyboard alone, on each target."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import SCHEMES, WIDTHS, Look, browser, look
from tests.support.embedded import toy_csv
from tests.support.targets import Target

pytestmark = [pytest.mark.service, pytest.mark.timeout(900)]
PATIENCE = 240_000
COLUMNS = {
    "age": ("number", "18", "95", "", ""),
    "job": ("category", "", "", "a, b, c", "c"),
    "balance": ("number", "0", "30", "", ""),
    "y": ("binary", "", "", "no, yes", ""),
}


@dataclass
class Story:
    """A running service, and what its people have made so far."""

    service: Target
    browser: Browser
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    pages: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def story(service: Target) -> Iterator[Story]:
    with browser() as chromium:
        yield Story(service, chromium)


def press(seen: Look, role: str, name: str, *, exact: bool = True) -> None:
    """Focus a button or link as Tab does, and press it as a keyboard does."""
    found = seen.page.get_by_role(role, name=name, exact=exact).first
    found.focus()
    found.press("Enter")


def write(seen: Look, label: str, text: str) -> None:
    """Type into a field over what it holds."""
    found = seen.page.get_by_label(label, exact=True).first
    found.focus()
    found.press("Control+a")
    seen.page.keyboard.type(text)


def choose(seen: Look, label: str) -> None:
    """Choose a radio or tick a box by the space bar."""
    found = seen.page.get_by_label(label, exact=True).first
    found.focus()
    found.press("Space")


def key_of(story: Story, seen: Look, name: str, role: str) -> str:
    seen.go("/people")
    write(seen, "Name", name)
    choose(seen, role)
    press(seen, "button", "Make a key")
    made = seen.page.locator("[role=status] .id")
    made.wait_for()
    story.keys[name] = made.inner_text()
    row = seen.page.locator("tr", has_text=name)
    story.ids[name] = row.locator(".id").inner_text()
    return story.keys[name]


def an_admin_makes_keys(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.service.key)
        for name, role in (("Data office", "Data owner"), ("Ann Bauer", "Analyst"), ("R. Whitfield", "Auditor")):
            key_of(story, seen, name, role)
        assert len(set(story.keys.values())) == 3
        seen.refuse_violations()
        seen.refuse_reports()


def an_owner_uploads_and_lets_somebody_in(story: Story, tmp_path: Path) -> None:
    rows = list(csv.reader(io.StringIO(toy_csv(4000, seed=77).decode())))
    path = tmp_path / "customers.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["customer_id", *rows[0]], *([number, *row] for number, row in enumerate(rows[1:]))]
        )
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["Data office"])
        seen.go("/datasets/new")
        seen.page.get_by_text("Replace your key first").wait_for()
        press(seen, "link", "Replace it on your page")
        press(seen, "button", "Replace the key that you are signed in with")
        fresh = seen.page.locator("[role=status] .id")
        fresh.wait_for()
        assert fresh.inner_text() != story.keys["Data office"]
        story.keys["Data office"] = fresh.inner_text()
        press(seen, "link", "Datasets")
        press(seen, "link", "New dataset")
        seen.page.get_by_label("Choose a file").set_input_files(path)
        expect(seen.page.get_by_label("Use customer_id")).not_to_be_checked()
        assert seen.page.get_by_label("Type of age").input_value() == "number"
        assert seen.page.get_by_label("Type of job").input_value() == "category"
        press(seen, "button", "Check the declaration")
        seen.page.get_by_role("alert").wait_for()
        invalid = seen.page.locator("[aria-invalid=true]")
        assert invalid.count() >= 4
        seen.refuse_violations()
        seen.wrong.clear()  # the browser notes the answer 422
        for name, (kind, lowest, highest, values, other) in COLUMNS.items():
            seen.page.get_by_label(f"Type of {name}").select_option(kind)
            if kind == "number":
                write(seen, f"Lowest {name}", lowest)
                write(seen, f"Highest {name}", highest)
            else:
                write(seen, f"Values of {name}", values)
            if other:
                write(seen, f"What unknown values become in {name}", other)
        write(seen, "Epsilon, for all jobs ever", "8")
        expect(seen.page.locator("#promise .promise")).to_contain_text("times in 100")
        press(seen, "button", "Upload", exact=False)
        seen.page.wait_for_url(re.compile("/draft$"), timeout=PATIENCE)
        seen.page.get_by_text("No row is left out").wait_for()
        story.paths["dataset"] = seen.page.url.removeprefix(story.service.url).removesuffix("/draft")
        seen.refuse_violations()
        press(seen, "button", "Seal the dataset")
        seen.page.get_by_role("heading", name="Budget").first.wait_for()
        seen.refuse_reports()


def an_owner_lets_somebody_in(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["Data office"])
        seen.go(story.paths["dataset"])
        press(seen, "link", "Access")
        write(seen, "Who", "pr_nobody")
        write(seen, "How much", "50")
        press(seen, "button", "Let them in with this cap")
        seen.page.locator("[aria-invalid=true]").wait_for()
        assert seen.page.get_by_label("How much", exact=True).input_value() == "50"
        seen.wrong.clear()
        write(seen, "Who", story.ids["Ann Bauer"])
        press(seen, "button", "Let them in with this cap")
        seen.page.get_by_role("row", name=re.compile("Ann Bauer")).wait_for()
        seen.refuse_violations()
        seen.refuse_reports()


def an_analyst_asks_and_watches(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["Ann Bauer"])
        seen.go(f"/jobs/new?dataset={story.paths['dataset'].rsplit('/', 1)[1]}")
        write(seen, "Name", "Who says yes")
        seen.page.get_by_text("What it costs").wait_for()
        write(seen, "How much", "many")
        seen.page.locator("#forecast .alert.bad").wait_for()
        write(seen, "How much", "3")
        button = seen.page.get_by_role("button", name=re.compile("Submit, reserving"))
        button.wait_for()
        seen.page.reload()
        assert seen.page.get_by_label("Name", exact=True).input_value() == "Who says yes"
        assert seen.page.get_by_label("How much", exact=True).input_value() == "3"
        button.wait_for()
        seen.refuse_violations()
        seen.page.wait_for_load_state("networkidle")  # a forecast under way would be aborted, which htmx reports
        button.focus()
        button.press("Enter")
        seen.page.wait_for_url(re.compile("/jobs/job_"))
        story.paths["job"] = re.sub(r"\?.*", "", seen.page.url.removeprefix(story.service.url))
        expect(seen.page.locator("#job-state")).to_contain_text("waits for approval", timeout=PATIENCE)
        assert seen.page.get_by_role("link", name="Read the model").count() == 0
        expect(seen.page.get_by_role("button", name="Cancel")).to_have_count(0)
        seen.refuse_violations()
        seen.refuse_reports()


def an_owner_approves_without_seeing_figures(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["Data office"])
        seen.page.get_by_text("One release waits for your yes").wait_for()
        press(seen, "link", "Review it")
        seen.page.get_by_role("heading", name="Who says yes").wait_for()
        assert not re.search(r"estimate|std", seen.page.content(), re.IGNORECASE)
        press(seen, "button", "Reject")
        seen.page.locator("[aria-invalid=true]").wait_for()
        seen.refuse_violations()
        seen.wrong.clear()
        press(seen, "button", "Approve: release it to Ann Bauer")
        seen.page.get_by_text("No release waits for your yes").wait_for()
        seen.refuse_violations()
        seen.refuse_reports()


def an_analyst_reads_the_model(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["Ann Bauer"])
        seen.go(story.paths["job"])
        press(seen, "link", "Read the model")
        seen.page.get_by_role("heading", name="Coefficients").wait_for()
        story.paths["model"] = seen.page.url.removeprefix(story.service.url)
        age = seen.page.get_by_role("row", name=re.compile("^age")).inner_text()
        model = story.paths["model"].rsplit("/", 1)[1]
        shown = re.search(r"\t([\d.]+)\t", age)
        assert shown is not None, age
        assert 0.02 < float(shown[1]) < 0.08, "the slope is 1/20 in truth"
        press(seen, "link", "99\N{NO-BREAK SPACE}%")
        seen.page.get_by_role("columnheader", name="99\N{NO-BREAK SPACE}% interval").wait_for()
        press(seen, "link", "Odds ratios")
        seen.page.get_by_role("columnheader", name="Odds ratio", exact=True).wait_for()
        with seen.page.expect_download() as waited:
            press(seen, "link", "JSON")
        assert waited.value.suggested_filename == f"{model}.json"
        seen.refuse_violations()
        seen.refuse_reports()


def an_auditor_verifies(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.keys["R. Whitfield"])
        seen.go(story.paths["dataset"])
        press(seen, "link", "Ledger")
        assert seen.page.get_by_role("row", name=re.compile("reserve")).count() == 1
        assert seen.page.get_by_role("row", name=re.compile("spend")).count() > 3
        press(seen, "button", "Verify")
        expect(seen.page.locator("#verify")).to_contain_text(re.compile("All [0-9]+ entries recompute"), timeout=60_000)
        seen.refuse_violations()
        press(seen, "link", "Audit log")
        approved = seen.page.locator("tr", has_text="POST /v1/models/{model_id}/approve")
        assert approved.filter(has_text="Data office").count() == 1
        seen.refuse_violations()
        seen.refuse_reports()


def an_operator_sees_the_worker(story: Story) -> None:
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.service.key)
        press(seen, "link", "Service")
        seen.page.get_by_text("alive", exact=True).first.wait_for()
        seen.refuse_violations()
        seen.refuse_reports()


def no_page_has_a_violation(story: Story, who: str) -> None:
    """Each page at both widths in both schemes."""
    paths = [
        "/",
        "/datasets",
        "/jobs",
        "/you",
        "/you/notices",
        "/you/email",
        story.paths["dataset"],
        story.paths["job"],
    ]
    paths += [f"{story.paths['dataset']}/{tab}" for tab in ("budget", "access", "mock", "ledger")]
    paths += {"Data office": [f"{story.paths['dataset']}/{tab}" for tab in ("validation", "erase")]}.get(who, [])
    paths += {
        "Data office": ["/datasets/new", "/approvals", "/invitations"],
        "R. Whitfield": ["/audit", "/service", "/certificates"],
        "admin": ["/people", "/invitations", f"/people/{story.ids['Ann Bauer']}"],
    }.get(who, [])
    paths += ["/models", f"{story.paths['dataset']}/report", f"{story.paths['job']}/report"]
    paths += [f"{story.paths['dataset']}/activity"] if who != "Ann Bauer" else []
    tabs = ("", "/questions", "/predictions", "/compare", "/certificate")
    paths += ["/jobs/new", "/methods", *(story.paths["model"] + tab for tab in tabs)] if who == "Ann Bauer" else []
    with look(story.browser, story.service.url) as seen:
        seen.sign_in(story.service.key if who == "admin" else story.keys[who])
        for path in paths:
            for width in WIDTHS:
                seen.page.set_viewport_size({"width": width, "height": 900})
                for scheme in SCHEMES:
                    seen.page.emulate_media(color_scheme=scheme)
                    seen.go(path)
                    if "/new" in path:  # a part of it comes a moment later
                        seen.page.wait_for_load_state("networkidle")
                    seen.refuse_violations()
        seen.refuse_reports()


def test_four_people_by_keyboard(story: Story, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each step needs those before it, so they are one test."""
    an_admin_makes_keys(story)
    an_owner_uploads_and_lets_somebody_in(story, tmp_path)
    an_owner_lets_somebody_in(story)
    an_analyst_asks_and_watches(story)
    an_owner_approves_without_seeing_figures(story)
    an_analyst_reads_the_model(story)
    an_auditor_verifies(story)
    an_operator_sees_the_worker(story)
    if request.node.callspec.params["service"] == "stack":
        return  # the pages are the same ones
    for who in ("Data office", "Ann Bauer", "R. Whitfield", "admin"):
        no_page_has_a_violation(story, who)
