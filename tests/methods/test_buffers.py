"""Long vectors stand in two buffers in turn: no answered, kept or returned value changes by that."""

import pytest
import torch
from torch import Tensor

from core.losses.squares import Squared
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator
from core.methods import buffers
from core.methods.buffers import BufferPool
from core.methods.clipped.clipped_sgd.spec import ClippedSgdPlan
from core.methods.clipped.one_pass.spec import OnePassClippedSgdPlan
from core.methods.clipped.rules import Adam, MovingMean, NoMean, Sgd, TailMean
from core.methods.fits import iterate
from core.oracle.simulation import Simulation
from core.queries.sums.linear import LinearProblem
from core.training.notes import held
from tests.support.problems import facts

UNITS, DIMENSION, STEPS = 64, 5, 12
CLIPPED = {"steps": STEPS, "batch": 16, "sigma": 2.0, "clip": 1.0, "step_size": 0.1, "radius": 100.0}
CERTIFIED = {"steps": STEPS, "batch": 4, "mu": 1.0, "clip": 1.0, "step_size": 0.1, "radius": 100.0, "beta": 0.1}
METHODS: dict[str, ClippedSgdPlan | OnePassClippedSgdPlan] = {
    "plain": ClippedSgdPlan.model_validate(CLIPPED | {"average": NoMean()}),
    "projected": ClippedSgdPlan.model_validate(CLIPPED | {"average": NoMean(), "radius": 1e3, "step_size": 0.5}),
    "random start": ClippedSgdPlan.model_validate(CLIPPED | {"average": NoMean(), "start": "random"}),
    "momentum": ClippedSgdPlan.model_validate(CLIPPED | {"rule": Sgd(momentum=0.5), "average": TailMean(steps=5)}),
    "adam": ClippedSgdPlan.model_validate(CLIPPED | {"rule": Adam(), "average": MovingMean(decay=0.8)}),
    **{
        returns: OnePassClippedSgdPlan.model_validate(CERTIFIED | {"returns": returns})
        for returns in ("average", "random_iterate", "last")
    },
}


class Keeping:
    """An oracle that holds all states as a ledger's privacy filter holds one, and has copies of them."""

    def __init__(self, real: Simulation) -> None:
        self._real = real
        self.facts, self.randomness, self.ask, self.affords = real.facts, real.randomness, real.ask, real.affords
        self.block, self.resume, self.release, self.precision = real.block, real.resume, real.release, real.precision
        self.held: list[dict[str, Tensor]] = []
        self.copies: list[dict[str, Tensor]] = []

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        self.held.append({name: value._lazy_clone() for name, value in state.items()})
        self.copies.append({name: value.clone() for name, value in state.items()})
        self._real.keep(state, step)


def kept(method: ClippedSgdPlan | OnePassClippedSgdPlan) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Return all states of a run, which nothing changes after they were kept, and what it returns."""
    rows = torch.randn(UNITS, DIMENSION, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights, present = Clip(bound=1.0), torch.ones(UNITS, dtype=torch.bool)
    data = LinearProblem(rows, rows.sum(-1), present, Squared(), weights)
    known = facts(UNITS, DIMENSION, Squared(), weights=weights).model_copy(update={"curvature_bound": 1.0})
    oracle = Keeping(Simulation(data, known, SimulationGenerator(3), sampling=method.sampling(known)))
    estimate, _ = iterate(method, oracle)
    for one, other in zip(oracle.held, oracle.copies, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)
    return oracle.copies, estimate.theta


@pytest.mark.parametrize("name", METHODS)
def test_places_change_no_number(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, returned = kept(METHODS[name])
    monkeypatch.setattr(buffers, "LONG", 1)
    again, also = kept(METHODS[name])
    assert torch.equal(returned, also)
    assert len(plain) == len(again) >= STEPS
    assert all(torch.equal(one[key], other[key]) for one, other in zip(plain, again, strict=True) for key in one)


def test_a_vector_stands_until_the_next_but_one() -> None:
    like, here = torch.zeros(buffers.LONG), BufferPool()
    made = [here.of("theta", like) for _ in range(5)]
    assert [one.data_ptr() == made[0].data_ptr() for one in made] == [True, False, True, False, True]
    assert here.of("mean", like).data_ptr() not in {one.data_ptr() for one in made}
    assert here.of("theta", torch.zeros(2, buffers.LONG)).shape == (2, buffers.LONG)
    assert here.scratch(like).data_ptr() == here.scratch(like).data_ptr()
    assert here.scratch(torch.zeros(2, buffers.LONG)).shape == (2, buffers.LONG)


def test_what_somebody_still_holds_is_copied_before_it_is_written_over() -> None:
    here = BufferPool()
    first = here.of("theta", torch.zeros(buffers.LONG)).fill_(1.0)
    shared = held(first)
    here.of("theta", first).fill_(2.0)
    here.of("theta", first).fill_(3.0)
    assert first.eq(3).all()
    assert shared.eq(1).all()
