"""Avella-Medina, Bradshaw and Loh (2023): claims of its other experiments (S12 to S17, E15), by `studies.inference`.

Data and noise seeds are fixed, so a verdict repeats. Medians of 250 repetitions have standard errors of .004 to .007
(S12), means of errors over 40 resamples 2 to 3 % (S13). Shares of 60 or 200 runs have at most .06 and .035 (S14, S15),
mean errors over 400 repetitions 2 to 3 % (S16, S17). Each claim is 4 standard errors or more away from the figure seen.
"""

import json
from functools import partial
from math import log, sqrt
from pathlib import Path

import pytest
import torch
from torch import Tensor

from core.losses.categorical import Logistic
from core.losses.weights import Clip, Mallows
from core.mechanisms.generator import SimulationGenerator
from core.methods.m_estimation.noisy_newton.options import LineSearch
from studies.inference.__main__ import EXPERIMENTS, PAPER
from studies.inference.curves import losses
from studies.inference.designs import D3, Records
from studies.inference.housing import TABLE_1
from studies.inference.marketing import PRIVATE, errors, prepared, reference, resamples
from studies.inference.published import diverged_as_published
from studies.inference.rates import far_errors, far_paths, far_study
from studies.inference.results import Result
from studies.inference.rivals import (
    CLIPPED_LIMIT,
    clipped_far_along,
    clipped_limit,
    d3_logistic,
    estimates,
    linear_rivals,
    logistic_rows,
    mean_error,
    perturbed,
)
from studies.inference.stability import DIVERGED_SEEN, FIGURE_10, diverged, search
from studies.inference.studies import HUBER_OF_ONE, MALLOWS, newton, path, study


def ours(result: Result) -> dict[str, float]:
    return {row.what: row.ours for row in result.rows}


class TestClipping:
    """S12: clipped logistic regression goes elsewhere, weighted one does not."""

    def test_medians(self) -> None:
        run = (100, 1.0, 0.5)
        clipped = estimates(d3_logistic, 4000, 250, 9, Logistic(), Clip(bound=1.0), run)[:, 3].median()
        weighted = estimates(d3_logistic, 4000, 250, 9, Logistic(), MALLOWS, run)[:, 3].median()
        assert 0.60 <= clipped <= 0.67
        assert 0.46 <= weighted <= 0.51

    def test_limit(self) -> None:
        """Asked was .636 within .003, 2,000,000 draws with a standard error of .0016; two integrals say .63944."""
        exact = clipped_limit()
        assert float(exact[3]) == pytest.approx(0.639435, abs=1e-6)
        assert exact.tolist() == pytest.approx(CLIPPED_LIMIT, abs=0.006), "beta_1 to beta_4 as drawn, within 3.5 errors"
        unclipped = clipped_limit(bound=1e6)
        assert unclipped.tolist() == pytest.approx(D3.truth, abs=1e-6), "without clipping the truth"

    @pytest.mark.parametrize("units", [200_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
    def test_exact_steps_go_there(self, units: int) -> None:
        """Within 4.5 standard errors of .0016 at 2,000,000 draws."""
        seen = clipped_far_along(SimulationGenerator(99), units)[3]
        assert float(seen) == pytest.approx(float(clipped_limit()[3]), abs=4.5 * 0.0016 * sqrt(2_000_000 / units))


@pytest.fixture(scope="module")
def bank() -> tuple[Records, Tensor]:
    """The prepared records and the estimate that errors are measured from."""
    features, target, _ = prepared()
    return (features, target), reference((features, target))


class TestBankData:
    """S13: each mean error within 8 % of the paper's figure, private or not."""

    @pytest.mark.parametrize("units", [500, 2000])
    def test_errors(self, bank: tuple[Records, Tensor], units: int) -> None:
        seen = float(errors(*bank, units, 40, units, exact=False).mean())
        assert seen == pytest.approx(PRIVATE[units], rel=0.08)

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    def test_all_errors(self) -> None:
        assert all(row.agrees is not False for row in resamples(full=True).rows)


SIX_DAMPINGS = pytest.param(tuple(DIVERGED_SEEN), 1000, marks=pytest.mark.slow)


class TestDivergence:
    """S14."""

    @pytest.mark.parametrize(("dampings", "repetitions"), [((1.0, 0.4, 0.1), 200), SIX_DAMPINGS])
    def test_published_joint_newton_steps_diverge_the_more_the_longer_they_are(
        self, dampings: tuple[float, ...], repetitions: int
    ) -> None:
        """Asked: decreasing, at least .9 at 1 and at most .1 at .1; and near the reference."""
        shares = [diverged_as_published(damping, repetitions) for damping in dampings]
        assert shares == sorted(shares, reverse=True)
        assert shares[0] >= 0.9
        assert shares[-1] <= 0.1
        assert shares == pytest.approx([DIVERGED_SEEN[damping][1] for damping in dampings], abs=2 / sqrt(repetitions))

    def test_private_joint_newton_steps_do_so_too(self) -> None:
        shares = [diverged(damping, 200, safe=False) for damping in (1.0, 0.6, 0.1)]
        assert shares[0] >= 0.9
        assert shares[0] > shares[1] + 0.2 > shares[2] + 0.4
        assert shares[2] <= 0.2, "more than the published code's .02: its noise is 2.2 times smaller"

    def test_the_steps_of_jobs_do_not(self) -> None:
        assert all(diverged(damping, 200, safe=True) <= 0.01 for damping in (1.0, 0.6, 0.1))

    def test_a_line_search_shortens_the_first_step_four_times(self) -> None:
        made = study(FIGURE_10.linear(SimulationGenerator(21), 50, 2000), HUBER_OF_ONE)
        truth, start = FIGURE_10.parameters(), (4.0, -2.0, 0.0, 4.0)
        pure = path(newton(30, 1.0, 1.0, floor=1e-9, start=start), made, 1, noiseless=True)[-1]
        assert (torch.linalg.vector_norm(pure - truth, dim=-1) > 1).all(), "pure steps diverge"
        for alpha in (0.1, 0.25, 0.4):
            rule = LineSearch(evaluations=40, shrink=0.5, alpha=alpha, share=0.5)
            settings = newton(10, 1.0, 1.0, floor=1e-9, start=start).model_copy(update={"line_search": rule})
            found = search(made, settings, truth, 2, noiseless=True)
            assert found.typical() == [4, 0, 0]
            assert found.errors.max() < 0.2


def test_adaptive_steps_arrive_from_far_away_and_fixed_ones_may_not() -> None:
    """S15."""
    found = far_errors(far_paths(far_study(), 60))
    assert (found["adaptive"] < 0.2).double().mean() >= 0.95
    assert (found["fixed"] < 0.2).double().mean() < 0.8


@pytest.mark.parametrize("units", [(500, 1000), pytest.param((500, 2000), marks=pytest.mark.slow)])
def test_robust_gradient_descent_beats_sufficient_statistics(units: tuple[int, int]) -> None:
    """S16."""
    result = linear_rivals(full=True, units=units)
    seen = ours(result)
    for scenario in ("bounded", "unbounded"):
        for count in units:
            assert seen[f"{scenario}, robust, n = {count}"] < seen[f"{scenario}, sufficient statistics, n = {count}"]
    assert all(row.agrees for row in result.rows if "robust" in row.what)


def test_bounded_logistic_rivals_are_alike() -> None:
    """S17: weights and objective perturbation within 20 % of one another from 1000 records on."""
    draw, weights = partial(logistic_rows, 2.0), Mallows(bound=2.0, power=1)
    for units, count in ((1000, 400), (8000, 100)):
        robust = mean_error(estimates(draw, units, count, 14, Logistic(), weights, (round(6 * log(units)), 1.0, 0.5)))
        assert robust == pytest.approx(mean_error(perturbed(draw, units, count, 14, 2.0)), rel=0.2)


def test_clipping_is_worst_without_bounds() -> None:
    """S17: where the records' bias is all that is left."""
    draw, steps = partial(logistic_rows, None), round(6 * log(8000))
    weights = Mallows(bound=sqrt(2), power=1)
    robust = mean_error(estimates(draw, 8000, 100, 14, Logistic(), weights, (steps, 2.0, 0.5)))
    clipped = mean_error(estimates(draw, 8000, 100, 14, Logistic(), Clip(bound=sqrt(2)), (steps, 4.0, 0.5)))
    assert clipped > 2 * robust


def test_losses_are_those_of_the_figure() -> None:
    """E15."""
    assert all(row.agrees for row in losses(full=False).rows)


def test_every_experiment_has_a_name_and_leaves_its_numbers(tmp_path: Path) -> None:
    assert sorted(EXPERIMENTS, key=lambda key: int(key[1:])) == [f"E{number}" for number in range(1, 16)]
    assert PAPER.main(["E15", "E7", "--quick", "--to", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "e07.json").read_text())
    assert told["rows"][0].keys() == {"what", "reference", "ours", "agrees"}
    assert all((tmp_path / name).read_text().startswith("<svg") for name in told["charts"])


@pytest.mark.parametrize("name", TABLE_1)
def test_the_housing_tables_arithmetic(name: str) -> None:
    """U12: z is the value over its standard error."""
    value, error, z = TABLE_1[name]
    assert value / error == pytest.approx(z, rel=1e-5)
