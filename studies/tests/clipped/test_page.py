"""The page about clipped descent says what is there: its studies, its numbers and its tests."""

import json
from pathlib import Path

import pytest

from studies.clipped.__main__ import PAPER, STUDIES

ROOT = Path(__file__).parents[3]


def test_a_study_leaves_numbers_and_figures_behind(tmp_path: Path) -> None:
    assert PAPER.main(["V14", "--to", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "v14.json").read_text())
    assert told["experiment"] == "V14"
    assert (tmp_path / "v14-rates.svg").exists()


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_stored_in_full_size_and_agrees(name: str) -> None:
    stored = [json.loads(path.read_text()) for path in PAPER.folder.glob("*.json")]
    (told,) = [one for one in stored if one["experiment"] == name]
    assert told["mode"] == "full"
    assert not [row["what"] for row in told["rows"] if row["agrees"] is False]
    assert any(row["agrees"] for row in told["rows"])
    assert all((PAPER.folder / chart).exists() for chart in told["charts"])
    assert f"## {name}. {told['title']}" in PAPER.report.read_text()


def test_it_says_that_the_paper_has_no_experiments() -> None:
    assert "**The paper has no experiments of its own**" in PAPER.page.read_text()
