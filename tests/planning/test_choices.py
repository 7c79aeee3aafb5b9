"""The planner's choices by predicted widths: shares and steps, against replicates of the paper's designs.

Data and noise seeds are fixed and the same for what is compared, so that widths differ by their plans alone: a median
over REPLICATES replicates then errs by less than 2 %. The coverage of REPLICATES replicates and four coefficients has a
standard error below .013, and below .0065 for the difference of two on the same data: .03 is more than 4.5 of it (p <
1e-5).
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from core.base.errors import Invalid
from core.inference.sandwich import infer
from core.inference.settings import Inference, Shares
from core.methods.fits import iterate
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, planned_steps
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.registry import AnySpec
from core.planning.choices import best_of, narrowest
from core.planning.completion import Completed, complete
from core.planning.job import JobSpec, PlannedSpec
from core.planning.shares import best_shares, equal_shares
from tests.planning.test_planning import flat, plan
from tests.planning.test_prediction import DESIGNS, outlook
from tests.support.studies import TRUTH, known_scale_facts, known_scale_problem, simulation

REPLICATES = 200
OPEN = Inference(plausible_radius=3.0)


@dataclass(frozen=True)
class Seen:
    widths: np.ndarray
    coverage: float


def run(made: Completed, units: int, design: str = "D1") -> Seen:
    oracle = simulation(known_scale_problem(DESIGNS[design], units, REPLICATES, seed=17), seed=3)
    estimate, _ = iterate(made.optimizer, oracle)
    deviations = infer(made.inference, estimate, oracle).covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    covered = ((estimate.theta - torch.from_numpy(TRUTH)).abs() <= 1.959964 * deviations).double().mean().item()
    return Seen(2 * 1.959964 * deviations.median(0).values.numpy(), covered)


def equally(asked: AnySpec, units: int) -> Completed:
    settings, shares = equal_shares(asked, known_scale_facts(units), 1.0)
    return complete(settings, OPEN.model_copy(update={"shares": shares}), 1.0, known_scale_facts(units))


@pytest.mark.parametrize("units", [1000, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("asked", "gain"),
    [
        (NoisyGradientDescent(steps=60), -0.01),
        (NoisyNewton(memory=0.0, damping=0.5, steps=17), 0.02),
        (NoisyNewton(), -0.01),
    ],
    ids=["gradient descent", "the paper's Newton", "Newton"],
)
def test_optimised_shares_give_narrower_intervals_than_equal_ones_and_cover_as_well(
    asked: AnySpec, gain: float, units: int
) -> None:
    equal = run(equally(asked, units), units)
    optimised = run(narrowest(asked, OPEN, 1.0, known_scale_facts(units), outlook("D1")), units)
    planned = run(complete(asked, OPEN, 1.0, known_scale_facts(units)), units)
    assert np.log(optimised.widths / equal.widths).mean() < -gain, "equal shares are within 1 % of the best for some"
    assert np.log(optimised.widths / planned.widths).mean() < -0.005
    assert optimised.coverage > equal.coverage - 0.03


def test_shares_chosen_by_width_alone_are_seen_to_fail() -> None:
    """Planted: without the penalty, matrices that are all noise and floor give intervals that are narrow and wrong."""
    public = known_scale_facts(500)
    asked = NoisyGradientDescent(steps=60)
    starved = Shares(estimate=0.998, curvature=0.001, score=0.001)
    wrong = complete(asked, OPEN.model_copy(update={"shares": starved}), 0.5, public)
    right = narrowest(asked, OPEN, 0.5, public, outlook("D1"))
    assert isinstance(right.inference.shares, Shares)
    assert right.inference.shares.curvature > 5 * 0.001
    assert run(right, 500).coverage > run(wrong, 500).coverage - 0.03


def test_a_search_never_ends_worse_than_it_began_and_finds_an_inner_minimum() -> None:
    def bowl(shares: Shares) -> float:
        return (np.log(shares.curvature / 0.03) ** 2 + np.log(shares.score / 0.2) ** 2).item()

    first = Shares(estimate=0.5, curvature=0.3, score=0.2)
    value, found = best_shares(bowl, first)
    assert value <= bowl(first)
    assert (found.curvature, found.score) == pytest.approx((0.03, 0.2), rel=0.3)
    assert best_shares(lambda _: 1.0, first)[1] == first


@pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
def test_equal_shares_make_all_answers_worth_the_same(kind: str) -> None:
    job = plan(optimizer={"kind": kind}, inference={"shares": "equal"})
    counted = sum((flat(event) for event in job.schedule), start=type(flat(job.schedule[0]))())
    assert max(counted) == pytest.approx(min(counted), rel=1e-9), "one noise multiplier"
    assert max(counted) == pytest.approx(sum(counted.values()) ** 0.5 / 0.5, rel=1e-9), "sqrt(answers)/mu"


@pytest.mark.parametrize("kind", ["noisy_gd", "noisy_newton"])
@pytest.mark.parametrize("shares", ["equal", "optimised"])
def test_words_become_numbers_in_a_plan(kind: str, shares: str) -> None:
    job = plan(optimizer={"kind": kind}, inference={"shares": shares}, assume={"base_rate": 0.2})
    assert isinstance(job.spec.inference.shares, Shares)
    written = job.spec.model_dump(mode="json")
    assert written["assume"] is None
    again = PlannedSpec.read(written)
    assert again == job.spec


def test_what_is_not_asked_for_is_null_in_a_request() -> None:
    body = {"model": {"kind": "logistic", "target": "y"}, "optimizer": {"kind": "noisy_gd"}, "privacy": {"mu": "1"}}
    assert JobSpec.model_validate(body).model_dump()["assume"] is None
    assert JobSpec.model_validate(body | {"assume": {"base_rate": 0.1}}).model_dump()["assume"]["base_rate"] == 0.1


def test_shares_are_not_optimised_where_nothing_is_predicted() -> None:
    with pytest.raises(Invalid) as refusal:
        plan(
            optimizer={"kind": "noisy_gd"},
            model={"kind": "logistic", "target": "y", "weights": {"kind": "clip", "bound": 1}},
            inference={"shares": "optimised"},
        )
    assert [field.pointer for field in refusal.value.fields] == ["/inference/intervals"]


def test_given_numbers_are_kept() -> None:
    shares = {"estimate": 0.7, "curvature": 0.2, "score": 0.1}
    assert plan(inference={"shares": shares}).spec.inference.shares == Shares(**shares)
    assert plan(optimizer={"kind": "noisy_gd", "steps": 33}).spec.optimizer.steps == 33


@pytest.mark.parametrize("units", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_the_number_of_steps_is_never_worse_than_the_usual_one(units: int) -> None:
    public, asked = known_scale_facts(units), NoisyGradientDescent()
    d1 = outlook("D1")
    usual = complete(asked, OPEN, 1.0, public)
    best = best_of(asked.alternatives(usual.optimizer), usual.optimizer, OPEN, 1.0, public, (d1, d1))
    chosen = complete(best, OPEN, 1.0, public)
    assert usual.optimizer.steps == planned_steps(public, usual.optimizer.mu)  # type: ignore[arg-type]  # planned
    fewest = complete(asked.model_copy(update={"steps": 10}), OPEN, 1.0, public)
    seen = {name: run(made, units) for name, made in (("chosen", chosen), ("usual", usual), ("fewest", fewest))}
    assert np.log(seen["chosen"].widths / seen["usual"].widths).mean() < 0.01
    assert seen["chosen"].coverage > 0.92
    assert np.log(seen["fewest"].widths / seen["chosen"].widths).mean() > 0.05, "the start is not forgotten by then"


def test_more_steps_are_taken_where_units_and_budget_make_room() -> None:
    def steps(units: int, mu: str) -> int:
        found = plan(units=units, optimizer={"kind": "noisy_gd"}, privacy={"mu": mu}).spec.optimizer.steps
        assert found is not None
        return found

    assert steps(1000, "0.5") <= steps(10_000, "0.5") <= steps(100_000, "0.5")
    assert steps(10_000, "0.2") <= steps(10_000, "1") <= steps(10_000, "5")
    assert steps(1000, "0.5") < steps(100_000, "1")
