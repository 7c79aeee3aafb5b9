"""The best of several runs: its price above every exact divergence, beside an independent accountant's, and its law."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import exp, factorial, inf, log, pi
from unittest.mock import patch

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from pydantic import ValidationError
from scipy.special import logsumexp, ndtr
from scipy.stats import chisquare

from core.mechanisms.counted import number_of_runs
from core.privacy import selection
from core.privacy.events import EVENT, Gaussian, Repeated, Selected, Zcdp
from core.privacy.renyi import MAX_NANO, cost, cost_fine, cost_nano
from core.privacy.selection import CONVERTED, run_law, slots_for
from examples import verify_ledger as outsider
from tests.support.problems import repeatable_generator

ORDERS = (2, 3, 7, 16, 44)
ROOM = 2.0**-16


def terms(mean: float, slots: int) -> np.ndarray:
    """Return mean^k/k! for k up to `slots`."""
    return np.array([mean**k / factorial(k) for k in range(slots + 1)])


def divergence(mu: float, means: tuple[float, ...], slots: tuple[int, ...], order: int) -> float:
    """Return the Renyi divergence of the whole release, exactly but for a numerical integral, in nats.

    Every run of group l releases its score, normal of variance 1. Its mean is c_l + mu under one neighbour, c_l
    under the other, so that a run has the Renyi cost a mu^2/2, all of it in its score. The least score wins.
    """
    score, width = np.linspace(-70, 70, 140_001, retstep=True)
    polynomials = [terms(*pair) for pair in zip(means, slots, strict=True)]

    def logarithms(moved: float) -> list[np.ndarray]:
        """Return the logarithm of each group's density of the release."""
        later = [ndtr(0.3 * group + moved - score) for group in range(len(means))]
        values = [np.polyval(one[::-1], q) / one.sum() for one, q in zip(polynomials, later, strict=True)]
        found = []
        for group, (one, q, most) in enumerate(zip(polynomials, later, slots, strict=True)):
            slope = np.polyval((one[1:] * np.arange(1, most + 1))[::-1], q) / one.sum()
            own = -((score - 0.3 * group - moved) ** 2) / 2 - log(2 * pi) / 2
            others = sum(np.log(value) for place, value in enumerate(values) if place != group)
            found.append(own + np.log(slope) + others)
        return found

    nothing = float(np.prod([1 / one.sum() for one in polynomials]))
    first, second = logarithms(mu), logarithms(0.0)
    assert sum(float(np.exp(one).sum()) * width for one in first) + nothing == pytest.approx(1.0, abs=1e-6), "a law"
    worst = 0.0
    for one, other in ((first, second), (second, first)):
        powers = np.concatenate([order * p + (1 - order) * q for p, q in zip(one, other, strict=True)])
        worst = max(worst, float(np.logaddexp(logsumexp(powers) + log(width), log(nothing))) / (order - 1))
    return worst


@pytest.mark.parametrize("order", [2, 3, 7, 16])
@pytest.mark.parametrize(
    ("means", "slots"),
    [
        ((1.0,), (1,)),
        ((2.0,), (2,)),
        ((8.0,), (30,)),
        ((0.05,), (3,)),
        ((3.0, 5.0), (4, 20)),
        ((1.0, 1.0, 30.0), (2, 10, 60)),
    ],
)
@pytest.mark.parametrize("mu", [0.02, 0.2, 1.0, 3.0])
def test_no_price_is_below_the_divergence_of_the_release(
    mu: float, means: tuple[float, ...], slots: tuple[int, ...], order: int
) -> None:
    event = Selected(event=Zcdp(rho=mu**2 / 2), means=means, slots=slots)
    assert cost(event, order) >= divergence(mu, means, slots, order) - 1e-9


def test_a_price_without_the_release_of_nothing_or_the_delta_is_seen_to_be_too_small() -> None:
    """The cells above would fail on either omission: their divergences are close to the price."""
    rare = Selected(event=Zcdp(rho=0.5), means=(0.05,), slots=(3,))
    exact = divergence(1.0, (0.05,), (3,), 2)
    assert cost(rare, 2) < 1.3 * exact
    with patch.object(selection, "_group", lambda *_: (Decimal("1e9"), Decimal(0))):
        assert selection.best_price(lambda at: cost_fine(rare.event, at), (0.05,), (3,), 2) / 1e30 < exact
    usual = Selected(event=Zcdp(rho=0.02), means=(8.0,), slots=(30,))
    with patch.object(selection, "_delta", lambda *_: Decimal(0)):
        least = selection.best_price(lambda at: cost_fine(usual.event, at), (8.0,), (30,), 2) / 1e30
    # Without delta the bound is a log m / (a - 1) and a run's cost, which no divergence at this order need pass.
    assert least < cost(usual, 2)


@pytest.mark.parametrize("sigma", [3.0, 12.5, 60.0])
@pytest.mark.parametrize("mean", [1.0, 4.0, 16.0, 200.0])
def test_a_price_is_hardly_above_that_of_an_independent_accountant(mean: float, sigma: float) -> None:
    """Of runs that are worth little; where a run's delta is close to one, the accountant has a better bound of it."""
    accountant = RdpAccountant([*ORDERS, *CONVERTED])
    accountant.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(sigma), mean=mean, shape=inf))
    event = Selected(event=Gaussian(sigma=sigma), means=(mean,), slots=(slots_for(mean, ROOM),))
    for order, theirs in zip(ORDERS, accountant._rdp, strict=False):
        nothing = exp(-mean) / (order - 1)
        assert theirs - 1e-9 <= cost(event, order) <= theirs * 1.02 + ROOM * order / (order - 1) + nothing + 1e-9


def test_equal_groups_together_cost_what_one_does() -> None:
    run = Gaussian(sigma=9.0)
    one = Selected(event=run, means=(12.0,), slots=(60,))
    three = Selected(event=run, means=(4.0, 4.0, 4.0), slots=(60, 60, 60))
    for order in ORDERS:
        assert cost(three, order) == pytest.approx(cost(one, order), rel=1e-9)


def test_more_runs_and_dearer_runs_cost_more_and_fewer_slots_cost_more() -> None:
    def priced(rho: float, mean: float, slots: int) -> float:
        return cost(Selected(event=Zcdp(rho=rho), means=(mean,), slots=(slots,)), 9)

    assert all(priced(0.01, one, 400) < priced(0.01, other, 400) for one, other in pairwise((1.0, 2.0, 16.0, 200.0)))
    assert all(priced(one, 4.0, 40) < priced(other, 4.0, 40) for one, other in pairwise((1e-6, 0.01, 0.3, 20.0)))
    assert all(priced(0.01, 4.0, one) > priced(0.01, 4.0, other) for one, other in pairwise((1, 4, 8, 12, 18)))
    assert priced(0.01, 4.0, 1) > priced(0.01, 1.0, 1)


@pytest.mark.parametrize("rho", [5e-324, 1e-12, 1e8, 1e300])
@pytest.mark.parametrize("mean", [1e-6, 1.0, 10_000.0])
def test_a_price_has_no_figures_that_it_cannot_be_worked_out_at(mean: float, rho: float) -> None:
    event = Selected(event=Zcdp(rho=rho), means=(mean,), slots=(slots_for(mean, ROOM),))
    nano = cost_nano(event, (2, 44, 300))
    assert all(0 < price <= MAX_NANO for price in nano)
    if rho >= 1e8:
        assert nano[-1] == MAX_NANO
    assert EVENT.validate_json(EVENT.dump_json(event)) == event


@pytest.mark.parametrize("rho", [1.0, 1e4, 1e8])
def test_a_price_that_no_digits_tell_from_a_whole_number_is_the_larger(rho: float) -> None:
    """Of one mean run in one slot, (a - 1)(e(a) + d) + a is whole where d is one; nothing drawn adds a little."""
    event = Selected(event=Zcdp(rho=rho), means=(1.0,), slots=(1,))
    for order in (2, 3):
        whole = Fraction(rho) * order + 1 + Fraction(order, order - 1)
        found = Fraction(cost_fine(event, order), 10**30)
        assert 0 < found - whole <= Fraction(1, 10**30) or rho == 1.0
        assert found > Fraction(rho) * order
    text = outsider.canonical(EVENT.dump_python(event, mode="json"))
    assert [outsider.units(text, order) for order in (2, 3)] == [cost_fine(event, order) for order in (2, 3)]


def test_an_event_has_a_mean_and_slots_for_each_group() -> None:
    for means, slots in (((1.0,), (1, 2)), ((), ()), ((0.0,), (1,)), ((1.0,), (0,))):
        with pytest.raises(ValidationError):
            Selected(event=Gaussian(sigma=1.0), means=means, slots=slots)


def test_slots_keep_what_a_limit_costs_within_its_room_and_are_the_fewest() -> None:
    for mean in (0.01, 1.0, 16.0, 900.0):
        for room in (2.0**-10, 2.0**-16, 2.0**-24):
            slots = slots_for(mean, room)
            late = [float(selection._group(mean, most, 60)[1]) for most in (slots, max(1, slots - 1))]
            assert late[0] <= room * (1 + 1e-9)
            assert slots == 1 or late[1] > room * (1 - 1e-9)


def test_selection_is_cheaper_than_composition_for_many_candidates_of_little_worth() -> None:
    run = Zcdp(rho=0.08**2 / 2)
    chosen = Selected(event=run, means=(64.0,), slots=(slots_for(64.0, ROOM),))
    assert cost(chosen, 9) != cost(Repeated(event=run, times=64), 9)
    small = Zcdp(rho=0.03**2 / 2)
    assert cost(Selected(event=small, means=(64.0,), slots=(110,)), 16) < cost(Repeated(event=small, times=64), 16) * 2
    assert max(CONVERTED) == 4096


class TestNumberOfRuns:
    @pytest.mark.parametrize(("mean", "slots"), [(1.0, 1), (4.0, 18), (4.0, 3), (30.0, 60), (0.02, 3)])
    def test_numbers_have_the_law_that_is_priced(self, mean: float, slots: int) -> None:
        """A chi-square test at 1e-6: the draws are fixed, and a change of the law is what may fail it."""
        generator, draws = repeatable_generator(), 20_000
        seen = Counter(number_of_runs(generator, mean, slots) for _ in range(draws))
        assert set(seen) <= set(range(slots + 1))
        law = terms(mean, slots)
        expected = draws * law / law.sum()
        counted = np.array([seen[k] for k in range(slots + 1)], dtype=float)
        few = expected < 5
        if few.any():
            counted, expected = (np.append(one[~few], one[few].sum()) for one in (counted, expected))
        if expected[-1] == 0:
            counted, expected = counted[:-1], expected[:-1]
        assert chisquare(counted, expected).pvalue > 1e-6
        # A mean one part in twenty off is seen.
        moved = terms(mean * 1.05 + 0.02, slots)
        wrong = draws * moved / moved.sum()
        wrong = np.append(wrong[~few], wrong[few].sum()) if few.any() else wrong
        assert chisquare(counted, wrong[: len(counted)] * counted.sum() / wrong[: len(counted)].sum()).pvalue < 1e-4

    def test_its_table_is_the_law_to_the_last_bit(self) -> None:
        for mean, slots in ((4.0, 18), (0.5, 2), (700.0, 900)):
            table, finer = run_law(mean, slots, 192), run_law(mean, slots, 256)
            assert len(table) == slots
            assert all(one <= other for one, other in pairwise(table))
            assert all(abs((one >> 64) - other) <= 1 for one, other in zip(finer, table, strict=True))
