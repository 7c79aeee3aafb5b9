"""The checks behind the guarantee hold under `python -O` too, and the service does not start there at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ASKED_AFTER_THE_END = """
import torch
from core.queries.gradients import Gradient
from core.oracle.filters import UnlimitedFilter
from core.privacy.events import Gaussian

payments = UnlimitedFilter()
payments.close()
payments.pay(Gaussian(sigma=2.0))
"""
MORE_THAN_PRICED = """
from core.oracle.filters import CountingFilter
from core.privacy.events import Composed, Gaussian

one = Gaussian(sigma=2.0)
CountingFilter(one).pay(Composed(events=(one, one)))
"""
NOISE_OF_NO_SIZE = """
from core.mechanisms.gaussian import DiscreteGaussian

DiscreteGaussian(0.0)
"""
A_TERM_BEYOND_ITS_CLIP = """
from core.mechanisms.lattice import vector_grid
from core.privacy.facts import Adjacency

vector_grid(float("inf"), 10, 3, Adjacency.ZERO_OUT)
"""


def optimized(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python without assertions."""
    command = [sys.executable, "-O", *arguments] if not environment else [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | environment, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "script",
    [ASKED_AFTER_THE_END, MORE_THAN_PRICED, NOISE_OF_NO_SIZE, A_TERM_BEYOND_ITS_CLIP],
    ids=["asked after the end", "more than priced", "noise of no size", "a term beyond its clip"],
)
def test_invariants_hold_without_assertions(script: str) -> None:
    ended = optimized("-c", script)
    assert ended.returncode == 1
    assert "PrivacyInvariantError" in ended.stderr, ended.stderr


def test_assertions_are_off_there() -> None:
    """The tests above would say nothing of a Python that still asserts."""
    assert optimized("-c", "assert False").returncode == 0


@pytest.mark.service
@pytest.mark.parametrize("module", ["api", "workers.supervisor", "workers.embedded"])
@pytest.mark.parametrize("how", ["-O", "PYTHONOPTIMIZE"])
def test_the_service_does_not_start_without_assertions(module: str, how: str, tmp_path: Path) -> None:
    given = {"PYTHONOPTIMIZE": "1"} if how == "PYTHONOPTIMIZE" else {}
    arguments = ["--home", str(tmp_path)] if module != "workers.supervisor" else []
    ended = optimized("-m", module, *arguments, **given)
    assert ended.returncode != 0
    assert "does not run under python -O" in ended.stderr, ended.stderr
