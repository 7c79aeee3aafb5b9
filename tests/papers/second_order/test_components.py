"""Certificates of the rank-one problem from the origin, with other gaps, and at minima: their exclusions are true.

Seeds are fixed. A quick run is one level above records; full ones read them.
"""

import pytest
import torch

from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from studies.second_order.certificates import CARTON, COMPONENT_UNITS, found
from studies.second_order.components import first_phase_certified
from studies.second_order.levels import Level, level_facts
from studies.second_order.populations import EggCarton
from studies.second_order.rounds import COMPONENT_SPREADS, errors_per_coordinate
from studies.second_order.saddles import Seen, carton_settings, component, component_settings, judged, run


def one_level_up(second: float, start: float, **figures: float) -> Seen:
    """Run once from start times the second component, without records."""
    law = component(COMPONENT_UNITS, gap=second)
    at = [0.0, start, *[0.0] * (law.dimension - 2)]
    settings = component_settings(law, start=tuple(at), **figures)
    noise = errors_per_coordinate(law, settings, COMPONENT_SPREADS)
    oracle = Level(law.mean_gradient, noise, level_facts(law.dimension), SimulationGenerator(4))
    return judged(law, settings, gauss_psgd.iterate(settings, oracle)[0])


STARTS = pytest.mark.parametrize(
    ("second", "start"),
    [(0.5, 0.0), (0.5, 0.5**0.5), (0.3, 0.3**0.5)],
    ids=["origin", "second component", "another gap"],
)


@STARTS
def test_a_saddle_of_the_kind_that_is_excluded_is_left(second: float, start: float) -> None:
    one = one_level_up(second, start)
    assert found([one])
    assert one.curvature >= -one.found.gamma_star
    assert one.gradient <= one.found.alpha


@STARTS
def test_without_an_escape_distance_that_can_be_left_it_is_certified(second: float, start: float) -> None:
    """Planted: rounds that nothing can leave. The start is an alpha-strict saddle, and it is returned."""
    one = one_level_up(second, start, escape_distance=1e5)
    assert found([one])
    assert one.curvature < -one.found.gamma_star


def test_a_minimum_is_certified_in_the_first_phase() -> None:
    eggs = EggCarton(*CARTON)
    bottom = carton_settings(eggs, torch.zeros(eggs.dimension, dtype=torch.float64))
    assert first_phase_certified([run(eggs, bottom, seed=1)]) == 1
