"""Costs of samples and streams, to the digits of two implementations, and the wrong prices that these reveal.

Figures at delta 1e-5 were worked out with dp-accounting 0.6.0, which reports use; a release of it that counts
otherwise shows here. The formula at integer orders is written a second time, from Mironov, Talwar and Zhang (2019).
"""

from math import comb, exp, log, log1p, sqrt

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from core.privacy.amounts import PrivacyTarget
from core.privacy.calibration import allowed, smallest_epsilon, smallest_sigma
from core.privacy.conversions import gdp_epsilon, gdp_mu
from core.privacy.events import NOTHING, Composed, Event, Gaussian, Repeated, Sampled
from core.privacy.facts import Adjacency
from core.privacy.reports import epsilon_at
from core.queries.gradients import Gradient
from tests.support.problems import facts
from tests.support.store import TERMS

DELTA = 1e-5
ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
POISSON = [
    pytest.param(0.01, 1.0, 1000, 1.8282, 2.1014, 2.8434, 2.1078, id="small rate"),
    pytest.param(0.01, 1.0, 10_000, 6.1877, 6.7128, 10.881, 6.7194, id="many steps", marks=pytest.mark.slow),
    pytest.param(0.1, 2.0, 500, 5.5555, 6.0346, 11.385, 6.0895, id="large rate", marks=pytest.mark.slow),
]


def steps(rate: float, noise: float, times: int) -> Event:
    return Repeated(event=Sampled(numerator=int(rate * 2**64), sigma=noise), times=times)


def by_integer_orders(rate: float, noise: float, times: int, delta: float = DELTA) -> float:
    """The price of Poisson samples, and its improved conversion, written again."""

    def renyi(r: int) -> float:
        terms = [
            log(comb(r, k)) + (r - k) * log1p(-rate) + k * log(rate) + (k * k - k) / (2 * noise**2)
            for k in range(r + 1)
        ]
        top = max(terms)
        return (top + log(sum(exp(term - top) for term in terms))) / (r - 1)

    return min(times * renyi(r) + log((r - 1) / r) - (log(delta) + log(r)) / (r - 1) for r in range(2, 257))


@pytest.mark.parametrize(("rate", "noise", "times", "tight", "fractional", "replaced", "integer"), POISSON)
def test_poisson_samples(
    rate: float, noise: float, times: int, tight: float, fractional: float, replaced: float, integer: float
) -> None:
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
    told, method = epsilon_at(steps(rate, noise, times), DELTA)
    assert told == pytest.approx(tight, rel=1e-3)
    assert method == "privacy loss distribution"
    assert PLDAccountant(ADD).compose(event, times).get_epsilon(DELTA) == pytest.approx(told, rel=1e-6)
    assert PLDAccountant(REPLACE).compose(event, times).get_epsilon(DELTA) == pytest.approx(replaced, rel=1e-3)
    assert RdpAccountant().compose(event, times).get_epsilon(DELTA) == pytest.approx(fractional, rel=1e-2)
    ours = smallest_epsilon(steps(rate, noise, times), DELTA)
    assert ours == pytest.approx(integer, abs=1e-4)
    assert ours == pytest.approx(by_integer_orders(rate, noise, times), rel=1e-9)
    assert tight < ours < 1.01 * fractional


@pytest.mark.slow
def test_poisson_samples_at_tiny_rates() -> None:
    """Renyi prices are poor there: six times what loss distributions say."""
    assert epsilon_at(steps(1e-4, 0.6, 10_000), DELTA)[0] == pytest.approx(0.2749, rel=1e-3)
    event = PoissonSampledDpEvent(1e-4, GaussianDpEvent(0.6))
    fractional = RdpAccountant().compose(event, 10_000).get_epsilon(DELTA)
    assert fractional == pytest.approx(1.6568, rel=1e-2)
    assert fractional < smallest_epsilon(steps(1e-4, 0.6, 10_000), DELTA) < 1.1 * fractional


@pytest.mark.parametrize(
    ("rate", "times"), [(0.0099, 1000), (0.0101, 1000), (0.01, 1001), (0.01, 999)], ids=["q-", "q+", "K+1", "K-1"]
)
def test_other_rates_and_numbers_of_steps_are_told_apart(rate: float, times: int) -> None:
    """Planted bugs: a rate one part in a hundred off, and one step more or less than is taken."""
    wrong, right = by_integer_orders(rate, 1.0, times), smallest_epsilon(steps(0.01, 1.0, 1000), DELTA)
    assert wrong != pytest.approx(right, rel=1e-4)


def fixed_batches(noise: float) -> float:
    """Epsilon of a hundred of 10,000 units in each of 1,000 steps, as an accountant is called with a multiplier."""
    event = SampledWithoutReplacementDpEvent(10_000, 100, GaussianDpEvent(noise))
    return RdpAccountant(neighboring_relation=REPLACE).compose(event, 1000).get_epsilon(DELTA)


def cyclic(noise: float, passes: int) -> float:
    """Epsilon of disjoint batches that are read in each of some passes, where units may change into any other."""
    return gdp_epsilon(2 * sqrt(passes) / noise, DELTA)


def test_noise_relative_to_the_clip_is_halved_where_records_change() -> None:
    """Renyi accountants take multipliers of the true sensitivity; loss distributions double it themselves."""
    assert fixed_batches(0.5) == pytest.approx(20.987, rel=1e-2)
    assert fixed_batches(1.0) == pytest.approx(3.576, rel=1e-2), "planted: not halved"
    four = GaussianDpEvent(4.0)
    assert PLDAccountant(ADD).compose(four, 10).get_epsilon(DELTA) == pytest.approx(3.3414, rel=1e-3)
    assert PLDAccountant(REPLACE).compose(four, 10).get_epsilon(DELTA) == pytest.approx(7.5113, rel=1e-3)
    assert cyclic(4.0, 10) == pytest.approx(7.5113, rel=1e-3)
    halved, whole = (RdpAccountant(neighboring_relation=REPLACE).compose(GaussianDpEvent(z), 10) for z in (2.0, 4.0))
    assert halved.get_epsilon(DELTA) == pytest.approx(8.079, rel=1e-2)
    assert whole.get_epsilon(DELTA) == pytest.approx(3.617, rel=1e-2), "planted: not halved"


def test_one_pass_is_cheapest_of_disjoint_batches_and_fixed_samples_gain_by_noise() -> None:
    for noise in (1.0, 4.0):
        once, ten, sampled = cyclic(noise, 1), cyclic(noise, 10), fixed_batches(noise / 2)
        assert once < ten
        assert sampled < ten
        assert (once < sampled) == (noise == 1.0), "a little noise is not amplified"


def test_a_stream_costs_one_answer_whatever_its_steps() -> None:
    whole = Composed(events=(Gaussian(sigma=4.0), Repeated(event=NOTHING, times=96)))
    told, method = epsilon_at(whole, DELTA)
    assert (told, method) == (gdp_epsilon(0.25, DELTA), "exact Gaussian")
    for adjacency, multiple in ((Adjacency.ZERO_OUT, 1), (Adjacency.REPLACE_ONE, 2)):
        public = facts(1000, 3, adjacency=adjacency).model_copy(update={"gradient_diameter": None})
        assert Gradient(sigma=4.0, batch=50, clip=1.0).sensitivity(public) == multiple / 50


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),
    [(1, 1e-5, 3.730632), (2, 1e-5, 1.993812), (0.5, 1e-5, 7.031827), (8, 1e-6, 0.652935), (2, 1e-7, 2.449061)],
)
def test_the_analytic_gaussian(epsilon: float, delta: float, noise: float) -> None:
    assert 1 / gdp_mu(epsilon, delta) == pytest.approx(noise, abs=1e-6)


@pytest.mark.parametrize(
    ("batch", "times", "rule", "noise"),
    [
        pytest.param(1, 60_000, 0.0139, 0.446, marks=pytest.mark.slow),
        pytest.param(1, 600_000, 0.0438, 0.482, marks=pytest.mark.slow),
        (600, 1000, 1.073, 1.415),
        (600, 10_000, 3.393, 3.813),
        (6000, 1000, 10.73, 11.87),
    ],
)
def test_the_asymptotic_rule_promises_too_much(batch: int, times: int, rule: float, noise: float) -> None:
    """Of 60,000 units at epsilon 1: noise by the rule, with constant one, beside what it takes."""
    rate = batch / 60_000
    asymptotic = rate * sqrt(times * log(1 / DELTA))
    assert asymptotic == pytest.approx(rule, rel=5e-3)
    assert epsilon_at(steps(rate, noise, times), DELTA)[0] == pytest.approx(1, abs=1e-2)
    assert smallest_epsilon(steps(rate, asymptotic, times), DELTA) > 1.05
    if batch > 1:
        terms = TERMS.model_copy(update={"delta": TERMS.delta * 10})
        ours = smallest_sigma(
            lambda sigma: steps(rate, sigma, times), allowed(PrivacyTarget.model_validate({"epsilon": "1"}), terms)
        )
        assert noise < ours < 1.12 * noise, "conversions of Renyi prices ask somewhat more"
