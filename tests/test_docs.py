"""Pages are true of the tree: links lead somewhere, and every file, name, module and command is there."""

import re
from functools import cache
from pathlib import Path

from typer.main import get_command

from api.errors import STATUS
from core.base.errors import Diverged, StaleAttempt
from core.db.tables import FAILURE_CODES
from core.service.failure_messages import failure_code
from farthing.cli import app

ROOT = Path(__file__).parent.parent
TOPS = ("api", "benchmarks", "core", "examples", "farthing", "studies", "tests", "workers")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"])
NAMED = re.compile(r"`([\w/]+/\w+\.py)`(?: \(((?:`\w+`(?:, )?)+)\))?")
TEST = re.compile(r"`([\w/]+/test_\w+\.py)::(\w+)`")

TOLD_OTHERWISE = {Diverged, StaleAttempt}
"""Within the service alone: as a job's error, or as no answer to anybody."""
FROM_NO_REFUSAL = {("method-not-allowed", "405", "no", "client"), ("internal-error", "500", "no", "operator")}


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> set[str]:
    """Return what a page's headings are called in links, as GitHub calls them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(text: str, page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in found if not re.match(r"https?:", link) and not _leads_somewhere(link, page)]


def _leads_somewhere(link: str, page: Path) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def unknown(text: str) -> list[str]:
    """Return the files that a text names and are not there, below the root or `tests`, and names not in them."""
    missing = []
    for file, names in NAMED.findall(text):
        path = next((at for at in (ROOT / file, ROOT / "tests" / file) if at.exists()), None)
        if path is None:
            missing.append(file)
            continue
        source = path.read_text()
        wanted = re.findall(r"\w+", names)
        missing += [f"{file} ({name})" for name in wanted if not re.search(rf"\b(def|class) {name}\b", source)]
    for file, name in TEST.findall(text):
        path = next((at for at in (ROOT / file, ROOT / "tests" / file) if at.exists()), None)
        if path is None or not re.search(rf"\b(def|class) {name}\b", path.read_text()):
            missing.append(f"{file}::{name}")
    return missing


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of all tests and their classes."""
    files = (file for top in ("tests", "studies/tests") for file in (ROOT / top).rglob("test_*.py"))
    return frozenset(name for file in files for name in re.findall(r"\b(?:def|class) (\w+)", file.read_text()))


def test_what_a_page_points_at_is_there() -> None:
    found = {shown(page): missing_on(page) for page in PAGES}
    assert {page: missing for page, missing in found.items() if missing} == {}


def missing_on(page: Path) -> list[str]:
    text = page.read_text()
    tests = set(re.findall(r"`(test_\w+|Test[A-Z]\w+)`", text)) - names_of_tests()
    modules = {name for name in re.findall(r"python -m ([a-z_.]+)", text) if name.partition(".")[0] in TOPS}
    places = {name: ROOT / name.replace(".", "/") for name in modules}
    gone = [name for name, at in places.items() if not (at / "__main__.py").exists() and not _is_file(at)]
    return [*dead_links(text, page), *unknown(text), *tests, *gone]


def _is_file(module: Path) -> bool:
    return module.with_suffix(".py").exists()


def test_a_wrong_link_file_or_name_would_be_seen() -> None:
    assert dead_links("[a](nowhere.md) [b](README.md#no-such-heading)", ROOT / "README.md") == [
        "nowhere.md",
        "README.md#no-such-heading",
    ]
    assert unknown("`core/ledger/ledgers.py`, `core/ledger/ledger.py` (`settle`, `setle`)") == [
        "core/ledger/ledgers.py",
        "core/ledger/ledger.py (setle)",
    ]
    assert unknown("`laws/test_losses.py::test_nothing`, `papers/test_none.py::TestIt`") == [
        "laws/test_losses.py::test_nothing",
        "papers/test_none.py::TestIt",
    ]


def test_the_map_lists_every_page() -> None:
    listed = {
        (index.parent / link).resolve()
        for index in (ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md")
        for link in re.findall(r"\]\(([\w/.-]+\.md)\)", index.read_text())
    }
    assert {page for page in (ROOT / "docs").rglob("*.md") if page.name != "README.md"} <= listed


def test_the_tour_lists_every_command_and_no_other() -> None:
    table = (ROOT / "docs" / "tutorials" / "tour.md").read_text().split("## Every command")[1]
    listed = {name for row in re.findall(r"^\|[^|]*\|([^|]*)\|", table, re.MULTILINE) for name in _quoted(row)}
    assert listed == set(_commands())


def _quoted(text: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", text)


def _commands() -> list[str]:
    return list(get_command(app).commands)  # type: ignore[attr-defined]  # a group: there are several commands


def test_every_command_that_a_page_shows_exists_with_its_options() -> None:
    known = {*_commands(), "import"}  # `from farthing import` is Python
    for page in PAGES:
        text = page.read_text()
        lines = re.findall(r"(?:^|[`/ ;])farthing ([a-z][a-z-]+)\b", "\n".join(_code(text)), re.MULTILINE)
        assert set(lines) <= known, shown(page)
        assert unknown_options(text) == [], shown(page)


def test_an_option_that_a_command_lacks_would_be_seen() -> None:
    text = "`farthing export mdl_1 --formt json`\n```sh\nfarthing verify sc_1 --all \\\n  --nowhere x | jq --raw\n```\n"
    assert unknown_options(text) == ["verify --all", "verify --nowhere", "export --formt"]


def unknown_options(text: str) -> list[str]:
    """Return the options of our commands, in a page's code, that these commands lack; unknown commands are not here."""
    lines = "\n".join(_code(text)).replace("\\\n", " ").splitlines()
    found = []
    for call in (call for line in lines for call in re.findall(r"(?:^|[/ ])farthing ([a-z][^|;&#`]*)", line)):
        words, at = call.split(), get_command(app)
        while words and words[0] in getattr(at, "commands", {}):
            at = at.commands[words.pop(0)]  # type: ignore[attr-defined]  # a group
        options = {"--help", *(option for one in at.params for option in (*one.opts, *one.secondary_opts))}
        given = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
        found += [f"{at.name} {option}" for option in given if option not in options]
    return found


def _code(text: str) -> list[str]:
    """Return the blocks and quoted pieces of a page."""
    return [*re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL), *re.findall(r"`([^`\n]+)`", text)]


def test_every_code_has_its_line_with_its_status() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    refused, failed = page.split("## A job that failed")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (yes|no) \| (\w+) \|", refused, re.MULTILINE)
    known = {
        (refusal.code, str(status), "yes" if refusal.retryable else "no", refusal.actor)
        for refusal, status in STATUS.items()
        if refusal not in TOLD_OTHERWISE
    }
    assert {*rows} == known | FROM_NO_REFUSAL
    assert {*re.findall(r"^\| `([a-z-]+)` \|", failed, re.MULTILINE)} == {*map(failure_code, FAILURE_CODES)}
