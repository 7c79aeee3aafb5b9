"""Planning of Gauss-PSGD and check_bound: fills open settings from public facts, and refuses where no value would do.

Source: second-order settings of ours and of Tao, Zhang, Yu, Cheng, Dressler and Wang; see `sizing`, `presets` and
`theory`.
"""

from collections.abc import Iterator
from math import floor
from typing import Final, TypeVar

from core.base.errors import FieldError, Invalid
from core.methods.second_order.claims import EscapePlan
from core.methods.second_order.figures import MOST_STEPS, EscapeSettings, RoundFigures, SpiderSettings
from core.methods.second_order.rates import SecondOrderConstants
from core.methods.second_order.sizing import EscapeConstants, closed, given_figures, with_sizes
from core.methods.second_order.theory import Constants, NoFixedPoint, theory_params
from core.privacy.arithmetic import fill
from core.privacy.conversions import gdp_epsilon
from core.privacy.facts import Adjacency, Facts

P = TypeVar("P", bound=EscapePlan)

PERIODS: Final = 10
THEORY_DELTA: Final = 1e-5
"""Theorem 2 speaks of an epsilon; it is the one of this delta."""
NO_GAP: Final = FieldError("/optimizer/start_gap", "is not known of this loss: declare it, for the theory")


def with_rounds(asked: EscapeSettings, plan: type[P], facts: Facts, mu: float) -> P:
    """Return the plan that has these settings and rounds of escape.

    Args:
        asked: an analyst's.
        plan: the class of the method's plans.
        facts: public.
        mu: for the estimate, where the settings give none.

    Raises:
        Invalid: a constant is missing, or the figures allow no certificate; names the fields and what to change.
    """
    known = _constants(asked, facts, mu if asked.mu is None else asked.mu)
    given = given_figures(asked, None)
    if asked.mode == "calibrated":
        made = with_sizes(asked, plan, known)
    elif given is not None:
        made = closed(asked, plan, known, given)
    else:
        made = _by_theory(asked, plan, known)
    _refuse_unaffordable(made, facts)
    return made


def _constants(asked: EscapeSettings, facts: Facts, mu: float) -> EscapeConstants:
    """Return the constants, as given or as the loss implies them.

    Raises:
        Invalid: one is not known, or contradicts what is; with a pointer to each.
    """
    smoothness, bend = smoothness_of(asked, facts), asked.hessian_smoothness
    wrong = unfit(asked, facts, *_unsaid(asked, facts))
    if smoothness is None or bend is None or wrong:
        raise refusal(asked, wrong)
    return EscapeConstants(facts, mu, smoothness, bend)


def smoothness_of(settings: SpiderSettings, facts: Facts) -> float | None:
    """Return M, as given or the loss's own; None: not known."""
    return facts.smoothness if settings.smoothness is None else settings.smoothness


def refusal(settings: SpiderSettings, wrong: list[FieldError]) -> Invalid:
    """Return the refusal of settings with such faults."""
    return Invalid(f"{settings.card().kind} needs what is not known here: see {wrong[0].pointer}.", *wrong)


def unfit(settings: SpiderSettings, facts: Facts, *more: FieldError) -> list[FieldError]:
    """Return the faults that no method on such estimates can do with: constants that are missing or contradicted.

    Args:
        settings: an analyst's.
        facts: public.
        more: further faults.

    Raises:
        Invalid: the residual scale is unknown.
    """
    if facts.scale is not None:  # alone: what else is not known of such a loss is for that reason
        raise _wrong(
            "/model/loss", f"has an unknown scale, which {settings.card().kind} does not move: {_ways(settings)}"
        )
    wrong = list(more)
    if smoothness_of(settings, facts) is None:
        detail = f"is not known of this loss: declare it{_or_none(settings)}"
        wrong.insert(0, FieldError("/optimizer/smoothness", detail))
    if settings.clip is not None and settings.clip > facts.gradient_bound:
        detail = f"is above {facts.gradient_bound:.6g}, the model's own bound; lower it, or raise the weights' bound"
        wrong.append(FieldError("/optimizer/clip", detail))
    return wrong


def _ways(settings: SpiderSettings) -> str:
    """Say what to do about a loss of an unknown scale: of a model that exists, the scale was released with it."""
    if not settings.about[1]:
        return "give the scale, and leave joint out"
    return "give the released one and leave joint out, or take claims: gradient, which is about the scale too"


def _or_none(settings: SpiderSettings) -> str:
    """Say what else there is where a constant is missing: of a model that exists, a claim that rests on none."""
    return ", or take claims: gradient, which needs none" if settings.about[1] else ""


def _unsaid(settings: EscapeSettings, facts: Facts) -> Iterator[FieldError]:
    """Go through the figures that somebody has to give."""
    if settings.hessian_smoothness is None:
        bent = "convex losses, none of whose curvatures is below 0" if facts.weak_convexity == 0 else "this loss"
        yield FieldError("/optimizer/hessian_smoothness", f"is not known of {bent}: declare it{_or_none(settings)}")
    if settings.mode == "theory" and settings.start_gap is None and facts.start_gap is None:
        yield NO_GAP
    if (settings.mode, settings.preset, settings.escape_distance) == ("calibrated", "fast", None):
        yield FieldError("/optimizer/escape_distance", "is given by hand in the preset fast")
    for name in RoundFigures._fields if settings.mode == "given" else ():
        if getattr(settings, name) is None:
            yield FieldError(f"/optimizer/{name}", "is given where the mode is given: say it, or take calibrated")


def even_batches(settings: SpiderSettings, facts: Facts, changes: int) -> tuple[int, int, int]:
    """Return b1, b2 and T for so many changes to a fresh gradient, which read as much, ten times over.

    Raises:
        Invalid: a batch is larger than there are units.
    """
    units = settings.epochs * facts.units
    batch = settings.batch or max(1, units // (2 * PERIODS))
    difference_batch = settings.difference_batch or max(1, batch // changes)
    _refuse_large(batch, difference_batch, facts)
    return batch, difference_batch, max(1, min(MOST_STEPS, units // min(batch, difference_batch)))


def _by_theory(asked: EscapeSettings, plan: type[P], known: EscapeConstants) -> P:
    """Return the plan by the theorem, or refuse with its figures.

    Raises:
        Invalid: nobody can run them.
    """
    facts = known.facts
    settings = fill(asked, start_gap=facts.start_gap)
    if settings.start_gap is None:
        raise refusal(settings, [NO_GAP])
    ground = SecondOrderConstants(
        lipschitz=settings.clip_at(facts),
        smoothness=known.smoothness + facts.ridge,
        hessian_smoothness=known.hessian_smoothness,
        start_gap=settings.start_gap,
        dimension=facts.dimension,
        units=facts.units,
        clients=settings.sites or 1,
    )
    # The theory's multiplier is over the effect of changing a unit; zeroing has half of it.
    half = 1.0 if facts.adjacency is Adjacency.REPLACE_ONE else 0.5
    epsilon = gdp_epsilon(known.mu, THEORY_DELTA)
    try:
        found = theory_params(
            ground,
            epsilon,
            half * settings.noise_multiplier(known.mu),
            Constants(failure=settings.failure, form=settings.form),
        )
    except (NoFixedPoint, ValueError) as error:
        raise _wrong("/optimizer/mode", f"theory has no parameters here: {error}; take calibrated") from error
    if found.infeasible:
        raise Invalid(
            f"The theory's own parameters cannot be run: {'; '.join(found.infeasible)}.",
            FieldError("/optimizer/mode", "calibrated keeps what the theorem is about and drops its constants"),
        )
    figures = RoundFigures(
        batch=floor(found.batch),
        difference_batch=floor(found.difference_batch),
        restart_drift=found.drift,
        step_size=found.step_size,
        error_radius=found.error_radius,
        escape_distance=found.escape_distance,
        round_steps=min(found.round_steps, MOST_STEPS),
        rounds=found.rounds,
    )
    return closed(settings, plan, known, settings.with_given(figures))


def _refuse_unaffordable(plan: EscapePlan, facts: Facts) -> None:
    """Refuse to start where no certificate could be paid, or its condition is empty.

    Raises:
        Invalid: with the figures.
    """
    _refuse_large(plan.batch, plan.difference_batch, facts)
    (needed, words), units = plan.needed(), plan.epochs * facts.units
    if needed > units:
        detail = f"is too large: {words}, and there are {units}; lower it, or the rounds"
        raise _wrong("/optimizer/batch", detail)
    if plan.sharpest() > plan.bent_by(facts):
        raise _wrong(
            "/optimizer/error_radius",
            f"makes sqrt(rho alpha) = {plan.sharpest():.4g}, above the smoothness {plan.bent_by(facts):.4g}: "
            "no curvature would be excluded; lower it",
        )


def _refuse_large(batch: int, difference_batch: int, facts: Facts) -> None:
    """Refuse batches that no pass has the units for.

    Raises:
        Invalid: with the figures.
    """
    largest = max(batch, difference_batch)
    if largest > facts.units:
        raise _wrong("/optimizer/batch", f"takes {largest} units, and there are {facts.units}; lower it")


def _wrong(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
