"""The page about second-order points says what is there: its studies, its numbers and its tests."""

import json
import re
from pathlib import Path

import pytest

from studies.second_order.__main__ import EXPERIMENTS, PAPER

ROOT = Path(__file__).parents[3]
PAGE = PAPER.page.read_text().partition("<!-- results -->")[0]


def test_a_study_leaves_numbers_behind(tmp_path: Path) -> None:
    assert PAPER.main(["K2", "--to", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "k02.json").read_text())["experiment"] == "K2"


TOLD = [json.loads(path.read_text()) for path in PAPER.folder.glob("[a-z][0-9]*.json")]
STORED = {told["experiment"]: told for told in TOLD}
LONG = {"J1", "J2", "L1"}
"""Studies with runs that take hours, one after the other: stored as far as they went, and marked as such."""


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_is_shown_and_agrees(name: str) -> None:
    """In full size, but for those that take hours."""
    told = STORED[name]
    assert told["mode"] == "full" or (told["mode"] == "part" and name in LONG)
    assert not [row["what"] for row in told["rows"] if row["agrees"] is False]
    assert all((PAPER.folder / chart).exists() for chart in told["charts"])
    assert f"## {name}. {told['title']}" in PAPER.report.read_text()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_study_is_stored_or_said_not_to_be(name: str) -> None:
    missing = re.search(r"^Not run in full: (.*)\.$", PAGE, flags=re.MULTILINE)
    assert (name in STORED) is not (missing is not None and name in missing[1].split(", "))


@pytest.mark.parametrize("line", [*(f"A{number}" for number in range(1, 13)), *"BCDEFGHIJLM", "K1", "K2", "traps"])
def test_every_line_has_an_answer(line: str) -> None:
    """Each is held by a test, given as a figure, or said not to hold, and why."""
    answers = re.findall(rf"^\| {line}\d* \| .* \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert answers
    assert all(re.match(r"\*{0,2}(held|shown|not)\b", answer) for answer in answers)
