"""J in small: held-out records are what they are said to be, pairs are stored, and the claim is a hypothesis.

Thresholds: |z| > 4.5, a false alarm in 150,000; seeds are fixed, so a run repeats.
"""

from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
import torch

from core.mechanisms.generator import SimulationGenerator
from core.queries.gradients import Gradient
from core.queries.hessians import Hessian
from studies.second_order import prior_work
from studies.second_order.populations import EggCarton, SaddlePopulation
from studies.second_order.prior_report import report
from studies.second_order.prior_work import Case, HeldOut, Point, Rival, pairs, rival_settings, select
from studies.second_order.saddles import component, component_settings, facts_of

LAWS = (component(64_000), EggCarton(10, 64_000, 0.5, 0.3))


def small() -> Case:
    """Return the rank-one problem with a fifteenth of its records and batches a tenth as large."""
    whole, less = component(320_000), component(256_000)
    sizes = {"batch": 10_000, "difference_batch": 2000, "round_steps": 10, "rounds": 2}
    settings, base = (component_settings(law, **sizes) for law in (whole, less))
    return Case("J9", "Small", whole, settings, less, base)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_held_out_records_have_the_law_s_moments(law: SaddlePopulation) -> None:
    """Of 60 sets of 64,000 records each, at one point: mean and spread of the mean gradient are the population's."""
    at = 0.3 * torch.ones(law.dimension, dtype=torch.float64)
    sets = [HeldOut(law, law.units, SimulationGenerator(seed)) for seed in range(60)]
    slopes = torch.stack([one.slope(at) for one in sets])
    drawn = law.gradients(at.expand(1, -1), 20_000, SimulationGenerator(7))[0]
    expected = drawn.std(0) / sqrt(law.units)
    scores = (slopes.mean(0) - law.mean_gradient(at)) / (expected / sqrt(60))
    assert float(scores.abs().max()) < 4.5
    ratio = slopes.std(0) / expected
    assert float((ratio - 1).abs().max()) < 4.5 / sqrt(2 * 59), "of each coordinate"
    bends = torch.stack([one.bend(at) for one in sets]).mean(0)
    assert float((bends - law.mean_hessian(at)).abs().max()) < 4.5 * 1.6 / sqrt(60 * law.units)
    question, facts = Gradient(sigma=1.0), facts_of(law)
    assert torch.equal(sets[0].bounded_sum(question, facts, at), law.units * sets[0].slope(at))
    assert sets[0].bounded_sum(Hessian(sigma=1.0, clip=9.0), facts, at).shape == (law.dimension, law.dimension)


def test_selection_takes_the_first_point_that_is_no_saddle() -> None:
    law, base = component(2_000_000), component_settings(component(10_000_000))
    saddle, minimum = law.stationary(1), law.stationary(0)
    found = select(law, torch.stack([saddle, 1.5 * minimum, minimum, saddle]), base, 1_999_936, seed=1)
    assert found is not None
    assert found.gradient == 0
    assert found.curvature == pytest.approx(0.5)
    assert select(law, torch.stack([saddle, 1.5 * minimum]), base, 1_999_936, seed=1) is None


def test_rivals_have_the_figures_of_gauss_psgd_but_for_the_step() -> None:
    law = component(10_000_000)
    ours = component_settings(law)
    for part in (1.0, 0.5):
        theirs = rival_settings(law, ours, part)
        assert (theirs.batch, theirs.difference_batch, theirs.restart_drift) == (100_000, 2000, 3e-4)
        assert (theirs.error_radius, theirs.frozen_steps) == (0.007, 120)
        assert theirs.step_size == pytest.approx(part / 6.03)
        assert theirs.extra_noise == pytest.approx(0.0034 / sqrt(20), rel=0.2), "psi is about .0034"


def test_pairs_are_stored_and_taken_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, path = small(), tmp_path / "runs.jsonl"
    first = pairs(case, range(2), path)
    assert pairs(replace(case, key="J8"), range(2), path, minutes=0.0) == [], "those are another case's"
    monkeypatch.setattr(prior_work, "pair", lambda *_: pytest.fail("they are stored"))
    assert pairs(case, range(2), path) == first
    rival = first[0].rivals[0]
    assert isinstance(rival, Rival)
    assert 0 < rival.records <= case.less.units
    assert rival.best.gradient <= max(rival.last.gradient, rival.random.gradient)


def test_the_claim_is_judged_in_pairs() -> None:
    """Planted: rivals whose gradients are all longer, or all shorter, by a known distance."""
    (one,) = pairs(small(), [0])

    def made(longer: float) -> str:
        found = []
        for seed in range(20):
            ours = replace(one.ours, at=Point(0.01 + 0.0001 * seed, 0.5))
            theirs = Point(ours.at.gradient + longer + 0.0001 * (seed % 3), 0.5)
            rivals = tuple(replace(it, last=theirs, selected=theirs) for it in one.rivals)
            found.append(replace(one, seed=seed, ours=ours, rivals=rivals))
        return report(small(), found).note

    assert made(0.002).count("supported against") == 4
    assert made(-0.002).count("refuted against") == 4
    assert made(-0.0001).count("undecided against") == 4
