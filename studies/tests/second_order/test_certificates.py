"""Certificates on populations whose saddles are known, against the truth: the rank-one problem and the egg carton.

Seeds are fixed, so a verdict repeats. Full gates were seen at 20 of 20 and 30 of 30; one certificate less is allowed.
"""

import pytest
import torch

from studies.second_order.certificates import CARTON, COMPONENT_UNITS, found
from studies.second_order.populations import EggCarton
from studies.second_order.saddles import carton_settings, component, component_settings, exact_descent, run

LAW = component(COMPONENT_UNITS)
EGGS = EggCarton(*CARTON)


def test_exact_gradient_descent_stays_at_the_saddle() -> None:
    assert float(LAW.least_curvature(exact_descent(LAW, LAW.stationary(1), 2000))) == pytest.approx(-0.5, abs=1e-9)


@pytest.mark.slow
def test_a_run_leaves_the_saddle_and_what_it_certifies_is_true() -> None:
    settings = component_settings(LAW)
    one = run(LAW, settings, seed=0)
    assert found([one]), "no escape from where it ended"
    assert one.curvature >= 0.4
    assert one.gradient <= one.found.alpha
    assert one.records < LAW.units


def test_where_everything_counts_as_an_escape_nothing_is_certified() -> None:
    few = component(700_000)
    one = run(few, component_settings(few, escape_distance=1e-12, rounds=1), seed=0)
    assert one.found.outcome == "data_exhausted"


def test_strict_figures_are_the_derived_ones() -> None:
    settings = carton_settings(EGGS, EGGS.saddle(1))
    assert settings.restart_drift == pytest.approx(0.00144, rel=1e-4)
    assert settings.error_radius == pytest.approx(0.1037, rel=5e-4)
    assert settings.sharpest() == pytest.approx(0.7887, rel=1e-4)
    assert settings.escape_distance == pytest.approx(0.1315, rel=5e-4)
    assert settings.round_steps == 32


@pytest.mark.parametrize("index", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_strict_certificates_are_true(index: int) -> None:
    one = run(EGGS, carton_settings(EGGS, EGGS.saddle(index)), seed=7)
    assert found([one])
    assert one.gradient <= one.found.alpha
    assert one.curvature >= -one.found.gamma_star


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_leave_the_saddle_and_nine_of_ten_are_certified() -> None:
    """All leave with each of ten seeds, at least nine certified, every certificate true."""
    runs = [run(LAW, component_settings(LAW), seed) for seed in range(100, 110)]
    certain = found(runs)
    assert len(certain) >= 9
    assert all(one.curvature >= 0.4 for one in runs)
    assert all(one.gradient <= one.found.alpha for one in certain)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_strict_runs() -> None:
    """At least 29 of 30 certified, each of them truly."""
    starts = [EGGS.saddle(1), EGGS.saddle(3), torch.linspace(0.3, 6.0, 10, dtype=torch.float64)]
    runs = [run(EGGS, carton_settings(EGGS, start), seed) for start in starts for seed in range(100, 110)]
    certain = found(runs)
    assert len(certain) >= 29
    assert all(one.gradient <= one.found.alpha for one in certain)
    assert all(one.curvature >= -one.found.gamma_star for one in certain)
