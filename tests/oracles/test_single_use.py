"""The price of one Gaussian answer, against dp-accounting: streams are priced by nothing else.

Its Renyi accountant is not tight for one answer, and neither accountant doubles a sensitivity for replaced records:
multipliers here are noise over the sensitivity of the scope's own adjacency.
"""

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_multiplier_is_worth_its_epsilon(epsilon: float) -> None:
    accountant = PLDAccountant().compose(GaussianDpEvent(1 / gdp_mu(epsilon, DELTA)))
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, abs=1e-3)


def test_the_renyi_accountant_would_charge_more() -> None:
    """1.0926 where 1 is worth it: calibrating by it would add noise for nothing."""
    multiplier = 1 / gdp_mu(1.0, DELTA)
    assert RdpAccountant().compose(GaussianDpEvent(multiplier)).get_epsilon(DELTA) == pytest.approx(1.0926, abs=1e-3)


def test_replacing_doubles_the_sensitivity_here_and_not_there() -> None:
    question = Gradient(sigma=1.0, batch=10, clip=3.0)
    usual = Facts(units=10, dimension=2, adjacency=Adjacency.REPLACE_ONE, gradient_bound=3.0)
    zeroed = usual.model_copy(update={"adjacency": Adjacency.ZERO_OUT})
    assert question.sensitivity(usual) == pytest.approx(2 * 3.0 / 10)
    assert question.sensitivity(zeroed) == pytest.approx(3.0 / 10)
    told = {
        relation: RdpAccountant(neighboring_relation=relation).compose(GaussianDpEvent(3.0)).get_epsilon(DELTA)
        for relation in (NeighboringRelation.REPLACE_ONE, NeighboringRelation.ADD_OR_REMOVE_ONE)
    }
    assert len(set(told.values())) == 1, "the multiplier must come with the doubled sensitivity"


def test_less_privacy_is_less_noise() -> None:
    finer = [1 / gdp_mu(epsilon, DELTA) for epsilon in (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)]
    assert finer == sorted(finer, reverse=True)
    looser = [1 / gdp_mu(1.0, delta) for delta in (1e-9, 1e-7, 1e-5, 1e-3)]
    assert looser == sorted(looser, reverse=True)
