"""An attempt's draws are counted before they are made, against its job's reservation."""

from contextlib import suppress
from typing import Any

import pytest
import torch

from core.base.errors import Diverged
from core.methods.fits import fit_and_infer
from core.planning.planner import PlannedJob
from core.privacy.draws import MOST_RUNS, SAMPLE_DRAWS, least_draws
from core.privacy.facts import Adjacency
from core.queries.gradients import Gradient, GradientNorm
from core.training.draws import DrawCount
from core.training.notes import unpack
from core.training.oracles import make_filter, open_oracle
from tests.support.problems import LOGISTIC, problem
from tests.training.test_oracles import STREAM, UNITS, Counted, order_of, plan

INTERVALS: dict[str, Any] = {"inference": {"accept_unchecked": True}}
RIDGE: dict[str, Any] = {"model": {"kind": "logistic", "target": "y", "ridge": 0.1}, "privacy": {"mu": "8"}}
P = 2
"""Parameters: an intercept and a slope."""
SYMMETRIC = P * (P + 1) // 2
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any], int | None]] = {
    "gradients": ({"kind": "noisy_gd", "steps": 5}, {}, 5 * P),
    "intervals": ({"kind": "noisy_gd", "steps": 5}, INTERVALS, 5 * P + 2 * SYMMETRIC),
    "newton": ({"kind": "noisy_newton", "steps": 4}, INTERVALS, None),
    "samples": ({"kind": "clipped_sgd", "steps": 20, "batch": 40}, {}, 20 * (P + SAMPLE_DRAWS)),
    "stream": (STREAM, {}, UNITS // 10 * P),
    "norms": ({"kind": "adaptive_gd", "step_cap": 10}, {}, None),
    "choice": ({"kind": "adaptive_gd", "step_cap": 10, "select": "exponential"}, {"privacy": {"mu": "4"}}, None),
    "spider": ({"kind": "kl_spider", "variant": "calibrated"}, RIDGE, None),
    "proximal": ({"kind": "proximal_point"}, RIDGE, None),
}


class Keeping(Counted):
    """A ledger writer that keeps the last state."""

    kept: bytes | None = None

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        super().pay(chunk, state, step)
        self.kept = state or self.kept


def run(planned: PlannedJob) -> tuple[int, Keeping]:
    """Run a method on records and return how many units it drew."""
    writer = Keeping()
    order = order_of(planned)
    payments = make_filter(planned, order, writer, lambda: False)
    oracle = open_oracle(planned, order, problem(UNITS, P, LOGISTIC), payments, shared=False)
    with suppress(Diverged):  # by these records; what was drawn was drawn
        fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle, torch.zeros(P, dtype=torch.float64))
    return payments.log.draws.drawn, writer


@pytest.mark.parametrize("name", METHODS)
def test_every_method_draws_within_what_its_job_reserves(name: str) -> None:
    optimizer, changes, exact = METHODS[name]
    planned = plan(optimizer, Adjacency.ZERO_OUT, **changes)
    drawn, writer = run(planned)
    reserved = planned.draws
    assert 0 < drawn <= reserved.run
    assert 0 < sum(map(least_draws, planned.schedule)) <= reserved.most, "the ledger's own bound"
    assert exact is None or drawn == exact
    assert reserved.most == reserved.run * (1 if name == "stream" else MOST_RUNS)
    if len(writer.chunks) > 1:
        assert 0 < unpack(writer.kept).drawn < drawn, "a later attempt goes on counting from what was told"


def test_an_attempt_draws_no_more_than_was_reserved_whatever_was_paid() -> None:
    """The count holds across attempts: earlier answers are counted, answers that are given again are not."""
    count = DrawCount(most=10, dimension=3)
    count.begin(4)
    count.add(Gradient(sigma=1.0), 1)
    assert (count.drawn, count.answered) == (7, 4)
    count.keep_drawn()
    count.add(Gradient(sigma=1.0), 1)
    assert (count.drawn, count.answered) == (10, 7)
    with pytest.raises(AssertionError, match="no more than was reserved"):
        count.add(GradientNorm(sigma=1.0), 1)
    assert count.drawn == 10
