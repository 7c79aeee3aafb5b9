"""Reports to people are valid, tight, and silent where nothing is known."""

from decimal import Decimal
from math import exp

import pytest

from core.privacy.budget import plan_orders
from core.privacy.conversions import cks_epsilon, gdp_epsilon
from core.privacy.events import (
    NOTHING,
    BoundedRange,
    Composed,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    Zcdp,
)
from core.privacy.facts import Adjacency
from core.privacy.renyi import cost_nano
from core.privacy.reports import budget_figures, cost_view, epsilon_at, implied, report
from core.privacy.totals import total_mu, total_rho

TERMS = plan_orders(Decimal(3), Decimal("1e-6"))
EMPTY = (0,) * len(TERMS.orders)
EIGHT = Repeated(event=Gaussian(sigma=20.0), times=8)
SAMPLED = Repeated(event=Sampled(numerator=2**57, sigma=1.0), times=10)


@pytest.mark.parametrize(
    ("event", "rho", "mu"),
    [
        (NOTHING, 0.0, 0.0),
        (EIGHT, 0.01, 0.02**0.5),
        (Disjoint(events=(Gaussian(sigma=2.0), Gaussian(sigma=1.0))), 0.5, 1.0),
        (Zcdp(rho=0.3), 0.3, None),
        (Pure(epsilon=1.0), 0.5, None),
        (BoundedRange(epsilon=1.0), 0.125, None),
        (Composed(events=(Gaussian(sigma=1.0), Zcdp(rho=0.3))), 0.8, None),
        (SAMPLED, None, None),
        (Composed(events=(Gaussian(sigma=1.0), SAMPLED)), None, None),
        (Disjoint(events=(Gaussian(sigma=1.0), SAMPLED)), None, None),
    ],
    ids=repr,
)
def test_totals(event: Event, rho: float | None, mu: float | None) -> None:
    assert total_rho(event) == (None if rho is None else pytest.approx(rho))
    assert total_mu(event) == (None if mu is None else pytest.approx(mu))


@pytest.mark.parametrize(
    ("event", "method"),
    [
        (NOTHING, "nothing was drawn"),
        (EIGHT, "exact Gaussian"),
        (Zcdp(rho=0.01), "zCDP conversion"),
        (SAMPLED, "privacy loss distribution"),
        (Pure(epsilon=0.1), "privacy loss distribution"),
        (Composed(events=(Zcdp(rho=0.01), SAMPLED)), "Renyi conversion"),
        (Disjoint(events=(Gaussian(sigma=1.0), SAMPLED)), "Renyi conversion"),
        (Composed(events=(Disjoint(events=(Gaussian(sigma=4.0),)), SAMPLED)), "privacy loss distribution"),
        (Composed(events=(Disjoint(), SAMPLED)), "privacy loss distribution"),
        (Repeated(event=Sampled(numerator=2**62, sigma=0.3), times=10_000), "Renyi conversion"),
    ],
    ids=repr,
)
def test_method(event: Event, method: str) -> None:
    assert epsilon_at(event, 1e-6)[1] == method


def test_pure_events_never_report_more_than_they_are() -> None:
    for event in (Pure(epsilon=0.5), BoundedRange(epsilon=0.5)):
        assert epsilon_at(event, 1e-6)[0] <= 0.5 + 1e-9


def test_losses_agree_with_the_exact_form() -> None:
    """A sample of everybody is no sample: priced by losses, it must come out as the Gaussian it is."""
    whole = Repeated(event=Sampled(numerator=2**64, sigma=20.0), times=8)
    epsilon, method = epsilon_at(whole, 1e-6)
    assert method == "privacy loss distribution"
    assert epsilon == pytest.approx(epsilon_at(EIGHT, 1e-6)[0], rel=2e-3)


def test_report() -> None:
    full = report(EIGHT, TERMS, Adjacency.ZERO_OUT, declared=True)
    assert full.label == "guarantee"
    assert (full.promise.mu, full.promise.rho, full.promise.delta) == ("0.1415", "0.01", "1e-6")
    assert float(full.promise.epsilon) == pytest.approx(gdp_epsilon(0.02**0.5, 1e-6), rel=1e-3)
    assert full.attack.advantage == "0.05638"
    assert "52.9 times in 100" in full.attack.sentence
    other = full.implies[Adjacency.REPLACE_ONE]
    assert (other.mu, other.rho) == ("0.2829", "0.04")
    assert report(SAMPLED, TERMS, Adjacency.ZERO_OUT).label == "informational"
    assert report(NOTHING, TERMS, Adjacency.ZERO_OUT).promise.epsilon == "0"


def test_implied_rules() -> None:
    delta = Decimal("1e-6")
    by_mu = implied(Adjacency.ZERO_OUT, delta, 1.0, mu=0.25, rho=0.03125)[Adjacency.REPLACE_ONE]
    assert (by_mu.mu, by_mu.rho) == ("0.5", "0.125")
    assert float(by_mu.epsilon) == pytest.approx(gdp_epsilon(0.5, 1e-6), rel=1e-3)
    by_rho = implied(Adjacency.ZERO_OUT, delta, 1.0, rho=0.01)[Adjacency.REPLACE_ONE]
    assert (by_rho.mu, by_rho.rho) == (None, "0.04")
    assert float(by_rho.epsilon) == pytest.approx(cks_epsilon(0.04, 1e-6), rel=1e-3)
    neither = implied(Adjacency.ZERO_OUT, delta, 1.0)[Adjacency.REPLACE_ONE]
    assert (neither.mu, neither.rho, neither.epsilon) == (None, None, "2")
    assert float(neither.delta) == pytest.approx((1 + exp(1)) * 1e-6, rel=1e-3)
    same = implied(Adjacency.REPLACE_ONE, delta, 1.0, mu=0.25, rho=0.03125)[Adjacency.ZERO_OUT]
    assert (same.mu, same.epsilon) == ("0.25", "1")


def test_cost_view() -> None:
    view = cost_view(EIGHT, TERMS, EMPTY, EMPTY)
    assert view.rho == "0.01"
    assert float(view.budget_share) == pytest.approx(0.01 * 9 / (TERMS.caps_nano[0] / 1e9), abs=1e-5)
    assert cost_view(SAMPLED, TERMS, EMPTY, EMPTY).rho is None


def test_a_sampled_job_costs_by_conversion_what_its_report_has_tighter() -> None:
    """Every look at a running job asks what it costs; half a second for each would be too long."""
    event = Repeated(event=Sampled(numerator=2**58, sigma=1.2), times=500)
    quick, told = cost_view(event, TERMS, EMPTY, EMPTY), report(event, TERMS, Adjacency.ZERO_OUT, declared=True)
    assert told.method == "privacy loss distribution"
    assert float(told.promise.epsilon) < float(quick.epsilon_alone) < 1.3 * float(told.promise.epsilon)
    assert (told.promise.mu, told.promise.rho, told.label) == (None, None, "guarantee")
    over = told.implies[Adjacency.REPLACE_ONE]
    assert float(over.epsilon) == pytest.approx(2 * float(told.promise.epsilon), rel=1e-3)
    assert float(over.delta) == pytest.approx(1e-6 * (1 + exp(float(told.promise.epsilon))), rel=2e-3)
    assert len(over.delta) <= len("9.999e-6"), "four digits, rounded up"


def test_a_stream_is_reported_as_the_one_answer_it_costs() -> None:
    stream = Composed(events=(Gaussian(sigma=20.0), Repeated(event=NOTHING, times=96)))
    told = report(stream, TERMS, Adjacency.REPLACE_ONE, declared=True)
    assert told.model_copy(update={"method": ""}) == report(
        Gaussian(sigma=20.0), TERMS, Adjacency.REPLACE_ONE, declared=True
    ).model_copy(update={"method": ""})
    assert (told.promise.mu, told.promise.rho, told.method) == ("0.05", "0.00125", "exact Gaussian")


def test_budget_figures() -> None:
    empty = budget_figures(TERMS, Adjacency.ZERO_OUT, EMPTY, EMPTY, epsilon=0.0, rho=0.0)
    assert (empty.epsilon.total, empty.epsilon.spent, empty.epsilon.remaining) == ("3", "0", "2.756")
    assert empty.budget_share.model_dump() == {"spent": "0", "reserved": "0", "remaining": "1"}
    assert empty.rho.model_dump() == {"total": "0.18", "spent": "0", "reserved": "0", "remaining": "0.18"}
    price = cost_nano(EIGHT, TERMS.orders)
    used = budget_figures(TERMS, Adjacency.ZERO_OUT, price, price, epsilon=1.0, rho=total_rho(EIGHT))
    assert used.rho.spent == used.rho.reserved == "0.01"
    assert sum(Decimal(share) for share in used.budget_share.model_dump().values()) == 1
    price = cost_nano(SAMPLED, TERMS.orders)
    sampled = budget_figures(TERMS, Adjacency.ZERO_OUT, price, EMPTY, epsilon=1.0, rho=total_rho(SAMPLED))
    assert set(sampled.rho.model_dump().values()) == {None}
    full = budget_figures(TERMS, Adjacency.ZERO_OUT, TERMS.caps_nano, EMPTY, epsilon=3.0, rho=0.18)
    assert (full.epsilon.remaining, full.budget_share.remaining) == ("0", "0")
