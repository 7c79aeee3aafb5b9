"""Planning of Gauss-PSGD and certify: fills open settings from public facts, and refuses where no value would do.

Source: second-order settings of ours and of Tao, Zhang, Yu, Cheng, Dressler and Wang; see `sizing`, `presets` and
`theory`.
"""

from collections.abc import Iterator
from math import floor
from typing import Final, TypeVar

from core.base.errors import FieldError, Invalid
from core.methods.second_order.figures import MOST_STEPS, EscapeFigures, SpiderFigures, known
from core.methods.second_order.rates import SecondOrderConstants
from core.methods.second_order.sizing import ESCAPE, SIZES, with_sizes
from core.methods.second_order.theory import Constants, NoFixedPoint, theory_params
from core.privacy.arithmetic import PLANNED_RADIUS, fill
from core.privacy.conversions import gdp_epsilon
from core.privacy.facts import Adjacency, Facts

S = TypeVar("S", bound=SpiderFigures)
F = TypeVar("F", bound=EscapeFigures)

PLANNED_PERIOD: Final = 10
PERIODS: Final = 10
THEORY_DELTA: Final = 1e-5
"""Theorem 2 speaks of an epsilon; it is the one of this delta."""


def fill_figures(asked: F, facts: Facts, mu: float) -> F:
    """Return the settings with nothing open.

    Raises:
        Invalid: a constant is missing, or the figures allow no certificate; names the fields and what to change.
    """
    settings = fill(asked, mu=mu, smoothness=facts.smoothness, radius=PLANNED_RADIUS, sites=1, start="zeros")
    refuse_missing(settings, facts)
    if settings.escapes and settings.mode == "calibrated":
        settings = with_sizes(settings, facts)
    settings = fill(settings, preset="strict")  # without a part elsewhere
    if not settings.escapes:
        return _with_periods(settings, facts)
    if settings.mode == "theory":
        settings = _by_theory(settings, facts)
    _refuse_unaffordable(settings, facts)
    return fill(settings, steps=max(1, min(MOST_STEPS, settings.most_steps(facts))))


def refuse_missing(settings: EscapeFigures, facts: Facts) -> None:
    """Refuse where a constant is not known, or contradicts what is.

    Raises:
        Invalid: with a pointer to each.
    """
    refuse_unfit(settings, facts, *_unknown(settings, facts))


def refuse_unfit(settings: SpiderFigures, facts: Facts, *more: FieldError) -> None:
    """Refuse what no method on such estimates can do without.

    Args:
        settings: constants filled that are known.
        facts: public.
        more: further faults.

    Raises:
        Invalid: the smoothness is not known, a clip is above the bound, the residual scale is unknown; or anything
            more is wrong.
    """
    if facts.scale is not None:  # alone: what else is not known of such a loss is for that reason
        raise _wrong(
            "/model/loss", f"has an unknown scale, which {settings.card().kind} does not move: {_ways(settings)}"
        )
    wrong = list(more)
    if settings.smoothness is None:
        detail = f"is not known of this loss: declare it{_or_none(settings)}"
        wrong.insert(0, FieldError("/optimizer/smoothness", detail))
    if settings.clip is not None and settings.clip > facts.gradient_bound:
        detail = f"is above {facts.gradient_bound:.6g}, the model's own bound; lower it, or raise the weights' bound"
        wrong.append(FieldError("/optimizer/clip", detail))
    if wrong:
        raise Invalid(f"{settings.card().kind} needs what is not known here: see {wrong[0].pointer}.", *wrong)


def _ways(settings: SpiderFigures) -> str:
    """Say what to do about a loss of an unknown scale: of a model that exists, the scale was released with it."""
    if not settings.about[1]:
        return "give the scale, and leave joint out"
    return "give the released one and leave joint out, or take claims: gradient, which is about the scale too"


def _or_none(settings: SpiderFigures) -> str:
    """Say what else there is where a constant is missing: of a model that exists, a claim that rests on none."""
    return ", or take claims: gradient, which needs none" if settings.about[1] else ""


def _unknown(settings: EscapeFigures, facts: Facts) -> Iterator[FieldError]:
    """Go through the figures that somebody has to give."""
    if not settings.escapes:
        if settings.mode == "theory":
            yield FieldError("/optimizer/mode", "theory is about the estimator drift: take calibrated or given")
        return
    if settings.hessian_smoothness is None:
        bent = "convex losses, none of whose curvatures is below 0" if facts.weak_convexity == 0 else "this loss"
        yield FieldError("/optimizer/hessian_smoothness", f"is not known of {bent}: declare it{_or_none(settings)}")
    if settings.mode == "theory" and settings.start_gap is None and facts.start_gap is None:
        yield FieldError("/optimizer/start_gap", "is not known of this loss: declare it, for the theory")
    if (settings.mode, settings.preset, settings.escape_distance) == ("calibrated", "fast", None):
        yield FieldError("/optimizer/escape_distance", "is given by hand in the preset fast")
    for name in (*SIZES, *ESCAPE) if settings.mode == "given" else ():
        if getattr(settings, name) is None:
            yield FieldError(f"/optimizer/{name}", "is given where the mode is given: say it, or take calibrated")


def _with_periods(settings: F, facts: Facts) -> F:
    """Return DIFF2 with nothing open: by default ten periods of ten steps, whose changes read as much as gradients."""
    settings = fill(settings, period=PLANNED_PERIOD, step_size=0.5 / settings.bent_by(facts))
    return with_even_batches(settings, facts, known(settings.every))


def with_even_batches(settings: S, facts: Facts, changes: int) -> S:
    """Return settings with batches for so many changes to a fresh gradient, which read as much, ten times over.

    Raises:
        Invalid: a batch is larger than there are units.
    """
    units = settings.epochs * facts.units
    settings = fill(settings, batch=max(1, units // (2 * PERIODS)))
    settings = fill(settings, difference_batch=max(1, known(settings.batch) // changes))
    refuse_large(settings, facts)
    return fill(
        settings, steps=max(1, min(MOST_STEPS, units // min(known(settings.batch), known(settings.difference_batch))))
    )


def _by_theory(settings: F, facts: Facts) -> F:
    """Return settings filled by the theorem, or refuse with its figures.

    Raises:
        Invalid: nobody can run them.
    """
    if all(getattr(settings, name) is not None for name in (*SIZES, *ESCAPE)):
        return settings
    settings = fill(settings, start_gap=facts.start_gap)
    ground = SecondOrderConstants(
        lipschitz=settings.clip_at(facts),
        smoothness=settings.bent_by(facts),
        hessian_smoothness=known(settings.hessian_smoothness),
        start_gap=known(settings.start_gap),
        dimension=facts.dimension,
        units=facts.units,
        clients=settings.sites or 1,
    )
    # The theory's multiplier is over the effect of changing a unit; zeroing has half of it.
    half = 1.0 if facts.adjacency is Adjacency.REPLACE_ONE else 0.5
    epsilon = gdp_epsilon(known(settings.mu), THEORY_DELTA)
    try:
        found = theory_params(
            ground, epsilon, half * settings.multiplier, Constants(failure=settings.failure, form=settings.form)
        )
    except (NoFixedPoint, ValueError) as error:
        raise _wrong("/optimizer/mode", f"theory has no parameters here: {error}; take calibrated") from error
    if found.infeasible:
        raise Invalid(
            f"The theory's own parameters cannot be run: {'; '.join(found.infeasible)}.",
            FieldError("/optimizer/mode", "calibrated keeps what the theorem is about and drops its constants"),
        )
    return fill(
        settings,
        batch=floor(found.batch),
        difference_batch=floor(found.difference_batch),
        restart_drift=found.drift,
        step_size=found.step_size,
        error_radius=found.error_radius,
        escape_distance=found.escape_distance,
        round_steps=min(found.round_steps, MOST_STEPS),
        rounds=found.rounds,
    )


def _too_dear(settings: EscapeFigures, units: int) -> str:
    """Say what a certificate takes and what there is."""
    return f"{settings.needed()[1]}, and there are {units}"


def _refuse_unaffordable(settings: EscapeFigures, facts: Facts) -> None:
    """Refuse to start where no certificate could be paid, or its condition is empty.

    Raises:
        Invalid: with the figures.
    """
    refuse_large(settings, facts)
    units = settings.epochs * facts.units
    if settings.needed()[0] > units:
        raise _wrong("/optimizer/batch", f"is too large: {_too_dear(settings, units)}; lower it, or the rounds")
    if settings.sharpest() > settings.bent_by(facts):
        raise _wrong(
            "/optimizer/error_radius",
            f"makes sqrt(rho alpha) = {settings.sharpest():.4g}, above the smoothness {settings.bent_by(facts):.4g}: "
            "no curvature would be excluded; lower it",
        )


def refuse_large(settings: SpiderFigures, facts: Facts) -> None:
    """Refuse batches that no pass has the units for.

    Raises:
        Invalid: with the figures.
    """
    largest = max(known(settings.batch), known(settings.difference_batch))
    if largest > facts.units:
        raise _wrong("/optimizer/batch", f"takes {largest} units, and there are {facts.units}; lower it")


def _wrong(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
