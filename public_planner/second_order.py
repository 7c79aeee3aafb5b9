"""Plans of Gauss-PSGD and certify from public figures alone, and the one figure that is left out and looked for.

Of a claim about a gradient alone, alpha is what its told norm is raised by: all that can be known before it is told.

The settings are those of a job, and are filled as a job's are; where a job would be refused for want of records or of
privacy, the plan is vacuous and says why. `find` solves for the fewest units, the smallest epsilon, or the largest
spread of gradients with which alpha is at most the target. Alpha falls with the units but for small teeth, for batches
and rounds are whole numbers: the search doubles until it finds, goes over the last doubling in steps of 2 %, and closes
in to half a per cent. What it returns is enough.

Source: the settings cite theirs; the search is ours.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from core.base.errors import FieldError, Invalid
from core.methods.second_order.certify.spec import Certify
from core.methods.second_order.claims import AbstractEscape
from core.methods.second_order.figures import known
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.planned import refuse_missing
from core.privacy.amounts import PositiveFigure, format_figure, write_figure
from core.privacy.conversions import gdp_epsilon, gdp_mu
from core.privacy.facts import Adjacency, Facts, Frozen

MOST_UNITS: Final = 10**12
EPSILONS: Final = (1e-3, 100.0)
LEAST_DELTA: Final = Decimal("1e-15")
SMALLEST_SPREAD: Final = 1e-9
"""Over the bound of a gradient."""
STRIDE, CLOSE = 1.02, 1.005
Figure = Annotated[float, Field(ge=1e-30, le=1e30)]
Hole = Literal["units", "epsilon", "spread"]


class EscapePlanRequest(Frozen):
    """Public figures of a problem, for a method with rounds of escape, or a claim about a gradient alone."""

    units: Annotated[int, Field(ge=1, le=MOST_UNITS)] | None = Field(
        default=None, description="n; null only where it is to be found"
    )
    dimension: Annotated[int, Field(ge=1, le=10**9)] = Field(description="d, of the parameters")
    gradient_bound: Figure = Field(description="G, of one unit's gradient: the clip")
    epsilon: PositiveFigure | None = Field(default=None, description="null only where it is to be found")
    delta: PositiveFigure
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    find: Hole | None = Field(default=None, description="what is left out and looked for, so that the target is met")
    target: Figure | None = Field(default=None, description="what alpha shall be at most; with `find`")


class GaussPlanRequest(EscapePlanRequest):
    """Figures for Gauss-PSGD."""

    kind: Literal["gauss_psgd"]
    settings: GaussPsgd = Field(description="as a job has them; what is null is planned")


class CertifyPlanRequest(EscapePlanRequest):
    """Figures for a certificate of a released model."""

    kind: Literal["certify"]
    settings: Certify = Field(description="as a job has them; what is null is planned")


class EscapePrivacy(Frozen):
    """What a run costs: one Gaussian answer a pass."""

    mu: float
    epsilon_spent: str = Field(description="rounded up, at most what was asked")
    delta: str
    adjacency: Adjacency
    compositions: int = Field(description="passes over the units")


class EscapeSolved(Frozen):
    """What was looked for, so that alpha, or a gradient's tolerance, is at most the target; the other two are null."""

    target: float
    units: int | None = None
    epsilon: str | None = None
    spread: float | None = None


class EscapePlan(Frozen):
    """A run with rounds of escape; with a vacuous one nothing can be certified, and `because` says why."""

    model_config = ConfigDict(allow_inf_nan=False)

    object: Literal["plan"] = "plan"
    kind: Literal["gauss_psgd", "certify"]
    units: int
    settings: dict[str, Any] | None = Field(description="filled, as a job would run them; null: none would do")
    figures: dict[str, float | int | None] = Field(description="alpha, gamma_star, p_round and what they rest on")
    alpha: float | None = Field(
        description="the gradient is looked for at most so long; of `claims: gradient` what a told norm is raised by"
    )
    trivial: float = Field(description="what every gradient satisfies untrained")
    confidence: float | None = Field(description="null: no theorem covers these figures")
    source: str
    vacuous: bool
    because: str | None = Field(description="why it is vacuous")
    privacy: EscapePrivacy
    solved: EscapeSolved | None


def plan(request: GaussPlanRequest | CertifyPlanRequest) -> EscapePlan:
    """Return the plan, once what it looks for is found.

    Raises:
        Invalid: a figure is missing or contradicts another; or no units, no epsilon, no spread meet the target.
        ValueError, ArithmeticError: figures are too extreme for floats.
    """
    _refuse(request)
    filled = request if request.find is None else _found(request, request.find)
    facts, mu = _facts(filled), _mu(filled)
    try:
        settings = filled.settings.plan(facts, mu)
    except Invalid as refusal:
        return _described(request, filled, None, because=refusal.detail)
    why = None
    if settings.bound(facts).vacuous:
        why = (
            "no better than what every point satisfies untrained" if settings.escapes else settings.bound(facts).source
        )
    return _described(request, filled, settings, because=why)


def _facts(filled: GaussPlanRequest | CertifyPlanRequest) -> Facts:
    return Facts(
        units=known(filled.units),
        dimension=filled.dimension,
        adjacency=filled.adjacency,
        gradient_bound=filled.gradient_bound,
    )


def _mu(filled: GaussPlanRequest | CertifyPlanRequest) -> float:
    return gdp_mu(float(known(filled.epsilon)), float(filled.delta))


def _refuse(request: GaussPlanRequest | CertifyPlanRequest) -> None:
    """Refuse figures that no plan is made of, naming each.

    Raises:
        Invalid: they are missing, or contradict each other.
    """
    wrong: list[tuple[str, str]] = []
    for hole, missing in (("units", request.units is None), ("epsilon", request.epsilon is None)):
        if missing != (hole == request.find):
            wrong.append((f"/{hole}", "is to be found; leave it out" if not missing else "is missing"))
    if request.find == "spread" and request.settings.spread is not None:
        wrong.append(("/settings/spread", "is to be found; leave it out"))
    if (request.find is None) != (request.target is None):
        wrong.append(("/target", "comes with `find`, and `find` with it"))
    if request.find is not None and isinstance(request.settings, GaussPsgd) and not request.settings.escapes:
        wrong.append(("/find", "is for methods with rounds of escape: DIFF2 has no alpha"))
    if request.epsilon is not None and not EPSILONS[0] <= float(request.epsilon) <= EPSILONS[1]:
        wrong.append(("/epsilon", f"is outside {EPSILONS[0]:g} to {EPSILONS[1]:g}"))
    if not LEAST_DELTA <= request.delta < Decimal("0.5"):
        wrong.append(("/delta", f"is outside {LEAST_DELTA} to 0.5"))
    if wrong:
        pointer, detail = wrong[0]
        raise Invalid(f"This plan cannot be made: {pointer[1:]} {detail}.", *(FieldError(*one) for one in wrong))
    _refuse_settings(request)


def _refuse_settings(request: GaussPlanRequest | CertifyPlanRequest) -> None:
    """Refuse settings that lack a constant, or have one that is of no use to them.

    Raises:
        Invalid: with pointers into the request.
    """
    facts = _facts(request.model_copy(update={"units": request.units or MOST_UNITS}))
    try:
        if isinstance(request.settings, Certify) and not request.settings.escapes:
            request.settings.refuse_rounds(facts)
        else:
            refuse_missing(request.settings.model_copy(update={"mu": 1.0}), facts)
    except Invalid as refusal:
        moved = (FieldError(one.pointer.replace("/optimizer", "/settings"), one.detail) for one in refusal.fields)
        raise Invalid(refusal.detail.replace("/optimizer", "/settings"), *moved) from refusal


def _found(request: GaussPlanRequest | CertifyPlanRequest, hole: Hole) -> GaussPlanRequest | CertifyPlanRequest:
    """Return the request with what it looks for.

    Raises:
        Invalid: nothing within the limits meets the target.
    """

    def put(value: float) -> GaussPlanRequest | CertifyPlanRequest:
        if hole == "units":
            return request.model_copy(update={"units": int(value)})
        if hole == "epsilon":
            return request.model_copy(update={"epsilon": Decimal(format_figure(value, "up", digits=6))})
        return request.model_copy(update={"settings": request.settings.model_copy(update={"spread": value})})

    def meets(value: float) -> bool:
        try:
            return known(_bounded(put(value))) <= known(request.target)
        except Invalid:
            return False

    top = request.gradient_bound
    ends = {"units": (1.0, float(MOST_UNITS)), "epsilon": EPSILONS, "spread": (top, top * SMALLEST_SPREAD)}[hole]
    value = _searched(meets, *ends)
    if value is None:
        detail = f"is met by no {hole} between {min(ends):.4g} and {max(ends):.4g}; raise it, or change other figures"
        raise Invalid(f"/target {detail}.", FieldError("/target", detail))
    return put(value)


def _bounded(filled: GaussPlanRequest | CertifyPlanRequest) -> float | None:
    """Return alpha, or of a gradient alone what a told norm is raised by."""
    facts = _facts(filled)
    return filled.settings.plan(facts, _mu(filled)).bound(facts).value


def _searched(meets: Callable[[float], bool], first: float, last: float) -> float | None:
    """Return a value that meets, next to one that does not on the side of the first; None: there is none."""
    bad, good = _bracketed(meets, first, last, 2.0)
    if bad is None or good is None:
        return good
    bad, good = _bracketed(meets, bad, good, STRIDE)
    while bad is not None and good is not None and max(good / bad, bad / good) > CLOSE:
        middle = (good * bad) ** 0.5
        bad, good = (bad, middle) if meets(middle) else (middle, good)
    return good


def _bracketed(
    meets: Callable[[float], bool], first: float, last: float, factor: float
) -> tuple[float | None, float | None]:
    """Go from the first to the last by a factor; return the one before the first that meets, and that one."""
    before, at = None, first
    while not meets(at):
        if at == last:
            return at, None
        before, at = at, min(at * factor, last) if last > first else max(at / factor, last)
    return before, at


def _described(
    request: GaussPlanRequest | CertifyPlanRequest,
    filled: GaussPlanRequest | CertifyPlanRequest,
    settings: AbstractEscape | None,
    *,
    because: str | None,
) -> EscapePlan:
    """Return the answer to a request."""
    facts, mu, delta = _facts(filled), _mu(filled), float(filled.delta)
    bound = None if settings is None else settings.bound(facts)
    return EscapePlan(
        kind=request.kind,
        units=facts.units,
        settings=None if settings is None else settings.model_dump(mode="json"),
        figures={} if settings is None else settings.figures(facts),
        alpha=None if bound is None else bound.value,
        trivial=filled.settings.clip_at(facts),
        confidence=None if bound is None else bound.confidence,
        source="none: no figures would do" if bound is None else bound.source,
        vacuous=because is not None,
        because=because,
        privacy=EscapePrivacy(
            mu=mu,
            epsilon_spent=format_figure(gdp_epsilon(mu, delta), "up", digits=12),
            delta=write_figure(filled.delta),
            adjacency=filled.adjacency,
            compositions=filled.settings.epochs,
        ),
        solved=None if request.find is None else _solved(request, filled),
    )


def _solved(
    request: GaussPlanRequest | CertifyPlanRequest, filled: GaussPlanRequest | CertifyPlanRequest
) -> EscapeSolved:
    told = partial(EscapeSolved, target=known(request.target))
    if request.find == "units":
        return told(units=filled.units)
    return told(epsilon=str(filled.epsilon)) if request.find == "epsilon" else told(spread=filled.settings.spread)
