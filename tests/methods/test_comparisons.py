"""Baselines of second-order jobs: plain private gradients, their last and a random iterate, and DIFF2."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.clipped.one_pass import fit as one_pass_clipped_sgd
from core.methods.clipped.one_pass.spec import OnePassClippedSgd
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.oracle.filters import CountingFilter, LastState
from core.oracle.samples import StreamOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian
from core.privacy.facts import Facts
from core.queries.sums.linear import LinearProblem
from tests.support.problems import problem, repeatable_generator
from tests.support.second_order import CountedRecords, facts_of

UNITS, STEPS = 400, 8


class Path(LastState):
    """An answer log that holds every iterate."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[Tensor] = []

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        super().keep(state, step)
        self.points.append(state["theta"])


def plain(returns: str, data: LinearProblem, known: Facts, seed: int) -> tuple[Tensor, list[Tensor]]:
    """Return what one pass of plain private gradients returns, and all of its iterates."""
    spec = OnePassClippedSgd.model_validate({"steps": STEPS, "step_size": 0.5, "returns": returns})
    asked, path = spec.plan(known, 1.0), Path()
    payments = CountingFilter(Gaussian(sigma=1.0), log=path)
    oracle = Simulation(data, known, SimulationGenerator(seed), sampling=asked.sampling(known), payments=payments)
    found, _ = one_pass_clipped_sgd.iterate(asked, oracle)
    assert asked.bound(known).value is None
    assert found.error_bound is not None
    assert found.error_bound.value is None
    return found.theta, [torch.zeros_like(found.theta), *path.points]


def test_the_last_iterate_is_the_last_one_at_the_price_of_one_answer() -> None:
    found, points = plain("last", problem(UNITS, 3), facts_of(UNITS, 3), 1)
    assert torch.equal(found, points[-1])
    assert len(points) == STEPS + 1
    assert not torch.equal(found, points[-2])


def test_which_iterate_is_taken_at_random_no_record_decides() -> None:
    """Of other records, with the same coins, the iterate of the same number is returned; of other coins another."""
    places: dict[int, set[int]] = {}
    for seed in range(12):
        for records in (1, 2):
            found, points = plain("random_iterate", problem(UNITS, 3, seed=records), facts_of(UNITS, 3), seed)
            (place,) = [number for number, point in enumerate(points) if torch.equal(point, found)]
            places.setdefault(seed, set()).add(place)
    assert all(len(one) == 1 for one in places.values())
    assert len(set.union(*places.values())) > 3


def test_diff2_asks_for_a_fresh_gradient_every_period_and_for_changes_between() -> None:
    known = facts_of(UNITS, 3, smoothness=1.0)
    asked = GaussPsgd(estimator="period", period=5, batch=40, difference_batch=10).plan(known, 1.0)
    records, payments = CountedRecords(UNITS), CountingFilter(Gaussian(sigma=1.0))
    oracle: Any = StreamOracle(records, known, payments, repeatable_generator(), np.arange(UNITS))
    found, _ = gauss_psgd.iterate(asked, oracle)
    kinds = [kind for kind, _ in records.sizes]
    fresh = [number for number, kind in enumerate(kinds) if kind == "gradient"]
    assert fresh == [*range(0, len(kinds), 5)]
    assert len(fresh) > 2
    assert dict(records.sizes) == {"gradient": 40, "gradient_difference": 10}
    assert int(records.counts.max()) == 1
    assert found.error_bound is None, "without rounds there is nothing to claim"
