"""A trainer's processor on the smallest numbers: no step takes longer for some records."""

import platform
import subprocess
import sys
from typing import Any
from unittest.mock import patch

import pytest

from core.models.network.layers import Linear, MeanOver, Reshape
from core.training import device
from tests.support.embedded import ROOT

PROGRAM = """
import sys
import torch
from pydantic import TypeAdapter
from core.data.columns import Columns
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from core.training import attempt
from decimal import Decimal
from types import SimpleNamespace

columns = TypeAdapter(Columns).validate_python([
    {"name": "x", "type": "number", "lower": -3, "upper": 3}, {"name": "y", "type": "binary", "values": ["a", "b"]}
])
model = {"kind": sys.argv[1], "target": "y"}
if sys.argv[1] == "network":
    model["layers"] = [{"kind": "linear", "units": 2}]
optimizer = {"kind": "clipped_sgd", "steps": 3, "batch": 40, "clip": 1.0}
spec = {"dataset": "ds_1", "model": model, "optimizer": optimizer, "privacy": {"epsilon": "1"},
        "inference": {"intervals": False}}
terms = plan_orders(Decimal(8), Decimal("1e-6"))
planned = plan_job(JobSpec.model_validate(spec), columns=columns, units=1000, adjacency=Adjacency.ZERO_OUT, terms=terms)
torch.set_num_threads(2)
attempt.planned_of = lambda order: planned
attempt.planned_here(SimpleNamespace(weights=None), None)
print(int((torch.full((4_000_000,), 1e-40) * 0.5).count_nonzero()))
"""


@pytest.mark.parametrize(
    ("kind", "left"), [("network", "0"), pytest.param("logistic", "4000000", marks=pytest.mark.slow)]
)
def test_denormal_numbers_are_zero_where_networks_are_trained_and_kept_elsewhere(kind: str, left: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert told.stdout.split() == [left]


def test_records_that_do_not_fit_end_a_trainer_before_they_are_opened() -> None:
    program = PROGRAM.replace("units=1000", "units=100_000_000").replace(
        "torch.set_num_threads",
        "from workers.process import limit_memory; limit_memory(2_500_000_000)\ntorch.set_num_threads",
    )
    told = subprocess.run(
        [sys.executable, "-c", program, "logistic"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert told.stderr.splitlines()[-1].startswith("MemoryError: "), told.stderr


PASSES = ((Reshape(shape=(64, 1000)), MeanOver(), Linear(units=2)), (64_000,), 128, 2002)
PARAMETERS = ((Linear(units=1000),), (1000,), 128, 1_001_000)
KEPT = """
import resource
import torch
from core.training.device import prepare_for_network
from tests.training.test_device import PASSES

prepare_for_network(*PASSES)

def pass_over() -> int:
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    several = [torch.ones(5_000_000) for _ in range(10)]
    del several
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun

pass_over(), pass_over()
print(sum(pass_over() for _ in range(5)))
"""
PAGES = 250_000
"""Of 4 KB, that five times ten vectors take."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told what to keep")
def test_what_passes_free_is_kept_for_the_next() -> None:
    told = subprocess.run(
        [sys.executable, "-c", KEPT], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert int(told.stdout) < PAGES / 20


@pytest.mark.parametrize(("network", "keeps"), [(PASSES, 1), (PARAMETERS, 0)])
def test_memory_is_kept_where_passes_hold_more_than_parameters_do(network: Any, keeps: int) -> None:
    with patch.object(device, "_keep_freed_memory") as kept, patch.object(device, "_flush_denormals") as flushed:
        device.prepare_for_network(*network)
    assert (kept.call_count, flushed.call_count) == (keeps, 1)
