"""Curves: predicted widths at nine privacy targets around the one that was asked for."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import exp, log
from statistics import fmean
from typing import Final

from core.base.errors import Invalid
from core.data.datasets import Declaration
from core.ledger.accounts import Balance
from core.planning.forecast import LEAST_MU, MOST_MU, Asker
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob
from core.privacy.amounts import format_figure
from core.service.budgets import cost_figures, has_room
from core.service.context import Caller, Context
from core.service.quotes import appraise, most_reserved
from farthing.schemas.curves import CurvePointView, CurveView
from farthing.schemas.estimates import RangedWidth

FACTORS: Final = tuple(2 ** (step / 2) for step in range(-4, 5))
"""Of the asked target's mu: a quarter to four times."""
_ASKED: Final = 1.0


def get(context: Context, caller: Caller, spec: JobSpec, declaration: Declaration | None = None) -> CurveView:
    """Return a job's predicted widths at targets around its own; nothing is reserved and no record is read.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: the dataset has no records to read.
        Invalid: the job does not fit the dataset or the declaration.
    """
    with context.database.read() as session:
        appraisal = appraise(session, context, caller, spec, declaration)
    inference = appraisal.planned.spec.inference
    points = [
        _point(one, planned, appraisal.accounts, mu=mu, asked=asked)
        for mu, one, planned, asked in _planned(appraisal.asker, appraisal.planned)
    ]
    return CurveView(level=inference.level if inference.intervals else None, head=appraisal.head, points=points)


def _planned(asker: Asker, own: PlannedJob) -> Iterator[tuple[str, Asker, PlannedJob, bool]]:
    """Yield the job at each target, planned; those at which it cannot be are left out."""
    asked_mu = asker.spec.privacy.total_mu(asker.terms)
    for factor in FACTORS:
        if factor == _ASKED:  # 2 ** 0 is exactly 1.0
            yield format_figure(asked_mu, "up"), asker, own, True
            continue
        if not LEAST_MU <= asked_mu * factor <= MOST_MU:
            continue
        other = asker.worth(asked_mu * factor)
        try:
            planned = other.plan()
        # At extreme targets the planner's arithmetic leaves the range of floats.
        except (Invalid, ValueError, ArithmeticError):
            continue
        mu = other.spec.privacy.mu
        assert isinstance(mu, Decimal), "it is worth some mu"
        yield format_figure(float(mu), "up"), other, planned, False


def _point(asker: Asker, planned: PlannedJob, accounts: Sequence[Balance], *, mu: str, asked: bool) -> CurvePointView:
    """Return one target's price and widths; the scope's account is the first."""
    price, scope = planned.price, accounts[0]
    cost = cost_figures(price, scope, at_head=False)
    widths = asker.predicted(planned)
    ranged = () if widths is None else asker.ranged(planned, widths)
    known = asker.unknown_rate(planned) is None
    return CurvePointView(
        mu=mu,
        epsilon_alone=cost.epsilon_alone,
        budget_share=cost.budget_share,
        asked=asked,
        fits=all(has_room(one, most_reserved(planned, one), planned.draws, scope.terms) for one in accounts),
        ratio=_mean([one.ratio for one in ranged]) if known else None,
        lowest=_mean([_over(one.lowest, one) for one in ranged]) if known else None,
        highest=_mean([_over(one.highest, one) for one in ranged]) if known else None,
    )


def _over(width: float | None, one: RangedWidth) -> float | None:
    """Return a width in predicted widths without privacy."""
    return None if width is None or not one.nonprivate_width else width / one.nonprivate_width


def _mean(ratios: Sequence[float | None]) -> float | None:
    """Return the geometric mean; None where there are none, or one of them is unknown."""
    known = [one for one in ratios if one is not None and one > 0]
    return exp(fmean(log(one) for one in known)) if known and len(known) == len(ratios) else None
