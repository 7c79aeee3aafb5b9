"""Reports for people: the tightest valid figures, and their meaning. Reporting only; admission never reads this.

Epsilon at the scope's delta is exact for Gaussian answers, also in a stream of disjoint batches. Where sampled or pure
draws are among them, it comes from dp-accounting's privacy loss distributions (two seconds to import, on first use).
Otherwise it is the best conversion of the zCDP total or of our own Renyi prices at many orders. Distributions take half
a second: reports and budgets use them, the cost of a job uses the conversion. An empty ledger is "0".

Attack success is computed from the trade-off curve (Dong, Roth and Su 2022): an attacker must decide
whether somebody's record was used. For mu-GDP, its true positive rate exceeds the false one by at most
2 Phi(mu/2) - 1.
"""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from math import inf, sqrt
from typing import Literal

from core.privacy.amounts import format_figure, write_figure, write_share
from core.privacy.budget import Terms, largest_gaussian, percent_of, standing
from core.privacy.calibration import smallest_epsilon
from core.privacy.conversions import (
    cks_epsilon,
    dp_advantage,
    dp_power,
    gdp_advantage,
    gdp_epsilon,
    gdp_power,
    group_epsilon,
    group_mu,
    group_rho,
    renyi_epsilon,
    rho_of_mu,
)
from core.privacy.events import BoundedRange, Composed, Event, Gaussian, Pure, Repeated, Sampled
from core.privacy.facts import Adjacency, Frozen
from core.privacy.renyi import Leaf, cost, cost_nano
from core.privacy.totals import total_mu, total_rho

_FALSE_POSITIVES = 0.01
_MAX_EPSILON_BY_LOSSES = 50.0  # beyond, a privacy loss distribution is slow and no conversion means much
_ORDERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256, 384, 512)

Label = Literal["guarantee", "informational"]


class Promise(Frozen):
    """One promise in every currency that can state it; figures are rounded up, null where a currency has none."""

    mu: str | None
    rho: str | None
    epsilon: str
    delta: str


class AttackSuccess(Frozen):
    """The most that an attacker can do who knows everything except whether one unit's data were used."""

    advantage: str
    """True less false positives, at best."""
    power_at_one_percent: str
    """True positives at 1 % false ones."""
    sentence: str


class Report(Frozen):
    """The tightest valid figures for the draws, under the scope's adjacency, and the promises that they imply."""

    adjacency: Adjacency
    promise: Promise
    label: Label
    method: str
    attack: AttackSuccess
    implies: dict[Adjacency, Promise]


class CostView(Frozen):
    """The cost of one job: its part of the budget at this head, and its figures if it were alone."""

    budget_share: str
    epsilon_alone: str
    rho: str | None
    mu: str | None


class EpsilonFigures(Frozen):
    """Epsilon at the scope's delta. Spent is informational; remaining is the largest one more job could ask alone."""

    total: str
    spent: str
    remaining: str


class ShareFigures(Frozen):
    """Shares of the budget, as the ledger counts it."""

    spent: str
    reserved: str
    remaining: str


class RhoFigures(Frozen):
    """Figures in zCDP; null once any charge was not zCDP."""

    total: str | None
    spent: str | None
    reserved: str | None
    remaining: str | None


class BudgetFigures(Frozen):
    """A budget as people see it; the service adds the scope, the entries and the head."""

    adjacency: Adjacency
    delta: str
    epsilon: EpsilonFigures
    budget_share: ShareFigures
    rho: RhoFigures


def quick_epsilon(event: Event, delta: float) -> tuple[float, str]:
    """Return an epsilon that holds at `delta`, in nats, and the method that gave it, within a few milliseconds.

    It is the smallest one known, except where sampled or pure draws are among others; see `epsilon_at`.
    """
    mu = total_mu(event)
    if mu == 0:
        return 0.0, "nothing was drawn"
    if mu is not None:
        return gdp_epsilon(mu, delta), "exact Gaussian"
    rho = total_rho(event)
    by_rho = inf if rho is None else cks_epsilon(rho, delta)
    by_renyi = min(renyi_epsilon(cost(event, order), order, delta) for order in _ORDERS)
    by_renyi = min(by_renyi, smallest_epsilon(event, delta))
    return min((by_rho, "zCDP conversion"), (by_renyi, "Renyi conversion"))


@lru_cache(maxsize=1024)  # half a second where losses are composed, and a finished job's stay as they are
def epsilon_at(event: Event, delta: float) -> tuple[float, str]:
    """Return the smallest epsilon known to hold at `delta`, in nats, and the method that gave it."""
    quick = quick_epsilon(event, delta)
    draws = None if total_mu(event) is not None else _flatten(event)
    if draws is None or quick[0] > _MAX_EPSILON_BY_LOSSES:
        return quick
    return min((_epsilon_by_losses(draws, delta), "privacy loss distribution"), quick)


def _flatten(event: Event) -> Counter[Leaf] | None:
    """Return counted draws whose privacy losses can be composed; None where there is no such list.

    Disjoint events stay only if they are all Gaussian: then one with the largest mu stands for all. A bounded range
    is pure privacy and more, but no loss distribution here knows more.
    """
    total: Counter[Leaf] = Counter()
    match event:
        case Gaussian() | Sampled() | Pure():
            return Counter({event: 1})
        case BoundedRange(epsilon=epsilon):
            return Counter({Pure(epsilon=epsilon): 1})
        case Repeated(event=repeated, times=times):
            parts = [(_flatten(repeated), times)]
        case Composed(events=events):
            parts = [(_flatten(part), 1) for part in events]
        case _:
            mu = total_mu(event)
            parts = [(None if mu is None else Counter({Gaussian(sigma=1 / mu): 1} if mu else {}), 1)]
    for part, times in parts:
        if part is None:
            return None
        total.update({leaf: count * times for leaf, count in part.items()})
    return total


def _epsilon_by_losses(draws: Counter[Leaf], delta: float) -> float:
    """Return epsilon by composing privacy loss distributions (pessimistic, so it holds)."""
    # Two seconds that only reports with such draws should pay.
    from dp_accounting.pld import common  # noqa: PLC0415 - as above
    from dp_accounting.pld import privacy_loss_distribution as losses  # noqa: PLC0415 - as above

    total = losses.identity()
    for leaf, count in draws.items():
        match leaf:
            case Gaussian(sigma=sigma):
                # Several Gaussian draws are exactly one of smaller noise, without the errors of composing.
                one, times = losses.from_gaussian_mechanism(sigma / sqrt(count)), 1
            case Sampled(numerator=numerator, sigma=sigma):
                one, times = losses.from_gaussian_mechanism(sigma, sampling_prob=numerator / 2**64), count
            case Pure(epsilon=epsilon):
                parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
                one, times = losses.from_privacy_parameters(parameters), count
            case _:
                raise AssertionError(f"{leaf} has no privacy loss distribution here")
        total = total.compose(one.self_compose(times))
    return float(total.get_epsilon_for_delta(delta))


def implied(
    adjacency: Adjacency, delta: Decimal, epsilon: float, *, mu: float | None = None, rho: float | None = None
) -> dict[Adjacency, Promise]:
    """Return the promise under the other adjacency that one implies, in the strongest currency that was given.

    From zero_out to replace_one are two steps, over the excluded row: 2 mu for Gaussian answers, 4 rho for zCDP, and
    otherwise (2 epsilon, (1 + e^epsilon) delta). Replacing includes zeroing out, so that its figures hold unchanged.
    """
    if adjacency is Adjacency.REPLACE_ONE:
        return {Adjacency.ZERO_OUT: _promise(mu, rho, epsilon, delta)}
    if mu is not None:
        mu, rho = group_mu(mu, 2), group_rho(rho_of_mu(mu), 2)
        return {Adjacency.REPLACE_ONE: _promise(mu, rho, gdp_epsilon(mu, float(delta)), delta)}
    if rho is not None:
        rho = group_rho(rho, 2)
        return {Adjacency.REPLACE_ONE: _promise(None, rho, cks_epsilon(rho, float(delta)), delta)}
    over_epsilon, over_delta = group_epsilon(epsilon, float(delta))
    shown = Decimal(format_figure(over_delta, "up"))
    return {Adjacency.REPLACE_ONE: _promise(None, None, over_epsilon, shown)}


def _promise(mu: float | None, rho: float | None, epsilon: float, delta: Decimal) -> Promise:
    return Promise(
        mu=None if mu is None else format_figure(mu, "up"),
        rho=None if rho is None else format_figure(rho, "up"),
        epsilon=format_figure(epsilon, "up"),
        delta=format_figure(delta, "up", digits=18),  # as declared: 6 digits and 12 more
    )


def attack_success(epsilon: float, delta: float, mu: float | None = None) -> AttackSuccess:
    """Return the most an attacker could do, from the trade-off curve: of mu if given, else of (epsilon, delta)."""
    if mu is not None:
        advantage, power = gdp_advantage(mu), gdp_power(mu, _FALSE_POSITIVES)
    else:
        advantage = dp_advantage(epsilon, delta)
        power = dp_power(epsilon, delta, _FALSE_POSITIVES)
    right, found = (format_figure(min(100.0, x), "up", digits=3) for x in (50 + 50 * advantage, 100 * power))
    return AttackSuccess(
        advantage=format_figure(min(advantage, 1.0), "up"),
        power_at_one_percent=format_figure(min(power, 1.0), "up"),
        sentence=(
            "Somebody who knows all other records and guesses whether one unit's data were used is right at most "
            f"{right} times in 100 (a coin: 50). If wrong about at most 1 in 100 of those absent, such a guesser finds "
            f"at most {found} in 100 of those present."
        ),
    )


def report(event: Event, terms: Terms, adjacency: Adjacency, *, declared: bool = False) -> Report:
    """Return the tightest valid figures for executed (or declared) draws at the scope's delta.

    They are a guarantee only when the whole plan was fixed beforehand (`declared`). For draws chosen after others were
    seen, the guarantee is the scope's cap, and these figures inform.
    """
    delta = float(terms.delta)
    epsilon, method = epsilon_at(event, delta)
    mu, rho = total_mu(event), total_rho(event)
    return Report(
        adjacency=adjacency,
        promise=_promise(mu, rho, epsilon, terms.delta),
        label="guarantee" if declared else "informational",
        method=method,
        attack=attack_success(epsilon, delta, mu),
        implies=implied(adjacency, terms.delta, epsilon, mu=mu, rho=rho),
    )


def weakest_of(reports: Sequence[Report]) -> Report:
    """Return the strongest report that is implied by each of several under one adjacency: figure by figure the largest.

    Each promise protects other people, so that the figures do not add up. This one holds for all of them.

    Raises:
        ArithmeticError: a figure is none.
    """
    promise = _weakest([one.promise for one in reports])
    mu = None if promise.mu is None else float(promise.mu)
    kept = set.intersection(*(set(one.implies) for one in reports))
    return Report(
        adjacency=reports[0].adjacency,
        promise=promise,
        label="guarantee" if all(one.label == "guarantee" for one in reports) else "informational",
        method=reports[0].method,
        attack=attack_success(float(promise.epsilon), float(promise.delta), mu),
        implies={relation: _weakest([one.implies[relation] for one in reports]) for relation in sorted(kept)},
    )


def _weakest(promises: Sequence[Promise]) -> Promise:
    """Return the largest of each figure; None where some promise does not state it."""
    texts: dict[str, str | None] = {}
    for name in Promise.model_fields:
        said = [getattr(one, name) for one in promises]
        texts[name] = None if None in said else max(said, key=Decimal)
    return Promise.model_validate(texts)


def cost_view(event: Event, terms: Terms, spent: tuple[int, ...], reserved: tuple[int, ...]) -> CostView:
    """Return the cost of a job at this head, by quick figures, since every look at a running job computes them."""
    epsilon, _ = quick_epsilon(event, float(terms.delta))
    promise = _promise(total_mu(event), total_rho(event), epsilon, terms.delta)
    percent = percent_of(terms, spent, reserved, cost_nano(event, terms.orders))
    return CostView(budget_share=write_share(percent), epsilon_alone=promise.epsilon, rho=promise.rho, mu=promise.mu)


def budget_figures(
    terms: Terms,
    adjacency: Adjacency,
    spent: tuple[int, ...],
    reserved: tuple[int, ...],
    *,
    epsilon: float,
    rho: float | None,
) -> BudgetFigures:
    """Return a budget as people see it.

    Args:
        terms: of the scope.
        adjacency: of the scope.
        spent: nano-nats, one for each order of the terms.
        reserved: likewise.
        epsilon: in nats, that holds at the scope's delta for what was really charged.
        rho: of the same charges; None where they have none.
    """
    nothing = (0,) * len(terms.orders)
    left = largest_gaussian(terms, spent, reserved)
    total, held = largest_gaussian(terms, nothing, nothing), largest_gaussian(terms, spent, nothing) - left
    shares = standing(terms, spent, reserved)
    remaining = gdp_epsilon(sqrt(2 * left), float(terms.delta)) if left else 0.0
    is_zcdp = rho is not None
    return BudgetFigures(
        adjacency=adjacency,
        delta=write_figure(terms.delta),
        epsilon=EpsilonFigures(
            total=write_figure(terms.epsilon),
            spent=format_figure(epsilon, "up"),
            remaining=format_figure(remaining, "down"),
        ),
        budget_share=ShareFigures(
            spent=write_share(shares.spent),
            reserved=write_share(shares.reserved),
            remaining=write_share(shares.remaining),
        ),
        rho=RhoFigures(
            total=format_figure(total, "down") if is_zcdp else None,
            spent=format_figure(rho, "up") if rho is not None else None,
            reserved=format_figure(max(held, 0.0), "up") if is_zcdp else None,
            remaining=format_figure(left, "down") if is_zcdp else None,
        ),
    )
