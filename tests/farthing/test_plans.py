"""Plans in the SDK and on the command line."""

import json
from pathlib import Path

import pytest

from farthing import Client, FarthingError
from tests.api.test_plans import FIGURES
from tests.farthing.test_cli import Command, farthing, ok

__all__ = ["farthing"]  # the fixture


def test_a_plan_is_typed_and_a_refusal_names_its_field(client: Client) -> None:
    found = client.plan(FIGURES)
    assert found.certified_bound is not None
    assert found.certified_bound < found.trivial_bound
    assert not found.vacuous
    assert found.privacy is not None
    assert found.privacy.compositions == 1
    with pytest.raises(FarthingError) as refused:
        client.plan({**FIGURES, "smoothness": -1})
    assert "smoothness" in str(refused.value)


def test_the_command_shows_the_run_its_certificate_and_what_was_looked_for(farthing: Command, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    wanted = {name: value for name, value in FIGURES.items() if name != "epsilon"}
    file.write_text(json.dumps({**wanted, "find": "epsilon", "target": 0.3, "tail_index": 1.55}))
    shown = ok(farthing("plan", file))
    for word in ("step size", "limited by", "certificate", "informative", "zero_out", "for a bound of", "Note: "):
        assert word in shown
    assert json.loads(ok(farthing("plan", file, "--json")))["solved"]["target"] == 0.3


def test_figures_that_are_no_json_are_a_wrong_call(farthing: Command) -> None:
    assert farthing("plan", "-", stdin="{").returncode == 2
