"""A trainer on a GPU computes its job's kind of sum before any record is opened; the GPU is pretended."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
import torch
from pydantic import TypeAdapter

from core.data.columns import Columns
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from core.training import fitting, network, rehearsal
from core.training.network import NO_WEIGHTS
from core.training.order import NoGpu
from core.training.rehearsal import rehearse
from tests.support.devices import PRETENDED, pretending
from tests.support.unchecked import accepting

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"name": "x", "type": "number", "lower": -3, "upper": 3},
        {"name": "z", "type": "number", "lower": 0, "upper": 1},
        {"name": "y", "type": "binary", "values": ["a", "b"]},
    ]
)
LAYERS = [{"kind": "linear", "units": 3}, {"kind": "activation", "of": "relu"}, {"kind": "linear", "units": 2}]
JOBS = {
    "default": {"model": {"kind": "logistic", "target": "y"}},
    "newton": {"model": {"kind": "logistic", "target": "y"}, "optimizer": {"kind": "noisy_newton"}},
    "joint": {
        "model": {"kind": "linear", "target": "x", "loss": {"kind": "huber", "joint": True, "scale": 1.0}},
        "optimizer": {"kind": "noisy_newton"},
    },
    "network": {
        "model": {"kind": "network", "target": "y", "layers": LAYERS},
        "optimizer": {"kind": "clipped_sgd", "steps": 3, "batch": 40, "clip": 1.0},
        "inference": {"intervals": False},
    },
    "description": {"model": {"kind": "description"}, "optimizer": {"kind": "describe"}},
}


def planned(name: str) -> PlannedJob:
    spec = accepting({"dataset": "ds_1", "privacy": {"epsilon": "1"}, **JOBS[name]})
    return plan_job(
        JobSpec.model_validate(spec),
        columns=COLUMNS,
        units=5000,
        adjacency=Adjacency.ZERO_OUT,
        terms=plan_orders(Decimal(8), Decimal("1e-6")),
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (fitting, network, rehearsal):
        monkeypatch.setattr(module, "own_device", lambda: torch.device(PRETENDED))
    with pretending():
        yield


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_job_is_computed_once(name: str) -> None:
    rehearse(planned(name), NO_WEIGHTS)


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_cannot_compute_the_job_is_refused_before_records_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(mode: str) -> None:
        raise ModuleNotFoundError(mode)

    monkeypatch.setattr(torch, "set_deterministic_debug_mode", broken)
    with pytest.raises(NoGpu, match="ModuleNotFoundError"):
        rehearse(planned("network"), NO_WEIGHTS)


def test_a_cpu_rehearses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "make_problem", None)
    rehearse(planned("newton"), NO_WEIGHTS)
