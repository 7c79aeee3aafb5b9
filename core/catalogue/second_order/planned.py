"""What is open in the settings of Gauss-PSGD and certify, filled from public facts, and refused where nothing would do.

Calibrated. The step is half of 1/M. b1 is as large as leaves room for four times a phase without an escape: half of
that room is for descent, and a phase may come twice. b2 is a round's share of b1, so that a round's changes take about
as many units as its fresh gradient, and kappa the drift at which the noise of both is equal. [choice]

Source: second-order settings of ours and of Tao, Zhang, Yu, Cheng, Dressler and Wang; see `presets` and `theory`.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from math import floor
from typing import Final, TypeVar

from core.catalogue.planning_rules import PLANNED_RADIUS, fill
from core.catalogue.second_order.escape import rounds_for
from core.catalogue.second_order.figures import MOST_STEPS, EscapeFigures, SpiderFigures, known
from core.catalogue.second_order.presets import Escape, Unfit, fast, strict
from core.catalogue.second_order.rates import Ground
from core.catalogue.second_order.theory import Constants, NoFixedPoint, theory_params
from core.errors import FieldError, Invalid
from core.privacy.conversions import gdp_epsilon
from core.privacy.facts import Adjacency, Facts

S = TypeVar("S", bound=SpiderFigures)
F = TypeVar("F", bound=EscapeFigures)

PLANNED_PERIOD: Final = 10
PERIODS: Final = 10
FINER: Final = 0.9
"""From one b1 that is tried to the next."""
ROUND_SHARE: Final = 16
"""Changes that a first guess of b2 allows for."""
THEORY_DELTA: Final = 1e-5
"""Theorem 2 speaks of an epsilon; it is the one of this delta."""
ESCAPE: Final = ("error_radius", "escape_distance", "round_steps", "rounds")
SIZES: Final = ("batch", "difference_batch", "restart_drift", "step_size")


def fill_figures(asked: F, facts: Facts, mu: float) -> F:
    """Return the settings with nothing open.

    Raises:
        Invalid: a constant is missing, or the figures allow no certificate; names the fields and what to change.
    """
    settings = fill(asked, mu=mu, smoothness=facts.smoothness, radius=PLANNED_RADIUS, clients=1)
    refuse_missing(settings, facts)
    if not settings.escapes:
        return _with_periods(settings, facts)
    if settings.mode == "calibrated":
        settings = _calibrated(settings, facts)
    elif settings.mode == "theory":
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
        more: what else is wrong.

    Raises:
        Invalid: the smoothness is not known, a clip is above the bound, the residual scale is unknown; or anything
            more is wrong.
    """
    wrong = list(more)
    if settings.smoothness is None:
        wrong.insert(0, FieldError("/optimizer/smoothness", "is not known of this loss: declare it"))
    if settings.clip is not None and settings.clip > facts.gradient_bound:
        detail = f"is above {facts.gradient_bound:.6g}, the model's own bound; lower it, or raise the weights' bound"
        wrong.append(FieldError("/optimizer/clip", detail))
    if facts.scale is not None:
        wrong.append(
            FieldError("/model/loss", "has an unknown scale, which this method does not train: give the scale")
        )
    if wrong:
        raise Invalid(f"{settings.card().kind} needs what is not known here: see {wrong[0].pointer}.", *wrong)


def _unknown(settings: EscapeFigures, facts: Facts) -> Iterator[FieldError]:
    """Go through the figures that somebody has to give."""
    if not settings.escapes:
        if settings.mode == "theory":
            yield FieldError("/optimizer/mode", "theory is about the estimator drift: take calibrated or given")
        return
    if settings.hessian_smoothness is None:
        yield FieldError("/optimizer/hessian_smoothness", "is known of no loss here: declare it")
    if settings.mode == "theory" and settings.start_gap is None and facts.start_gap is None:
        yield FieldError("/optimizer/start_gap", "is not known of this loss: declare it, for the theory")
    if (settings.mode, settings.preset, settings.escape_distance) == ("calibrated", "fast", None):
        yield FieldError("/optimizer/escape_distance", "is given by hand in the preset fast")
    for name in (*SIZES, *ESCAPE) if settings.mode == "given" else ():
        if getattr(settings, name) is None:
            yield FieldError(f"/optimizer/{name}", "is given where the mode is given: say it, or take calibrated")


def bent_by(settings: SpiderFigures, facts: Facts) -> float:
    """Return the smoothness of the mean loss, its ridge included."""
    return known(settings.smoothness) + facts.ridge


def _with_periods(settings: F, facts: Facts) -> F:
    """Return DIFF2 with nothing open: by default ten periods of ten steps, whose changes read as much as gradients."""
    settings = fill(settings, period=PLANNED_PERIOD, step_size=0.5 / bent_by(settings, facts))
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


def _calibrated(settings: F, facts: Facts) -> F:
    """Return settings filled by a preset, b1 as large as there is room for."""
    settings = fill(settings, step_size=0.5 / bent_by(settings, facts))
    if all(getattr(settings, name) is not None for name in (*SIZES, *ESCAPE)):
        return settings
    units, dear, unfit = settings.epochs * facts.units, "", ""
    for room in settings.rooms if settings.batch is None else (0.0,):
        for batch in _tried(settings, facts):
            try:
                filled = _with_batch(settings, facts, batch)
            except Unfit as error:
                unfit = unfit or f"with b1 = {batch}, {error.detail}"
                continue
            if room * filled.needed()[0] <= units:
                return filled
            dear = _too_dear(filled, units)
    other = FieldError("/optimizer/kind", "clipped_sgd needs no such claim")
    raise Invalid(
        f"These records and this privacy allow no second-order claim: {'; '.join(filter(None, (dear, unfit)))}.",
        FieldError("/privacy", "raise the target, or bring more units"),
        FieldError(
            "/optimizer/spread", "declare how far gradients are from their mean, where less than the clip is known"
        ),
        FieldError("/optimizer/clip", "lower it: noise is in proportion to it"),
        *([other] if settings.descends else []),
    )


def _tried(settings: EscapeFigures, facts: Facts) -> Iterable[int]:
    """Return the b1 that are tried, the largest first."""
    if settings.batch is not None:
        return (known(settings.batch),)
    sizes, size = dict[int, None](), float(facts.units)
    while size >= 1:
        sizes[floor(size)] = None
        size *= FINER
    return sizes


def _with_batch(settings: F, facts: Facts, batch: int) -> F:
    """Return settings filled for one b1.

    Raises:
        Unfit: it allows no claim.
    """
    sized = settings.model_copy(update={"batch": batch})
    if sized.difference_batch is None:
        rough = _with_escape(sized.model_copy(update={"difference_batch": max(1, batch // ROUND_SHARE)}), facts)
        sized = sized.model_copy(update={"difference_batch": max(1, batch // known(rough.round_steps))})
    return _with_escape(sized, facts)


def _with_escape(settings: F, facts: Facts) -> F:
    """Return settings with both batches given, filled by their preset.

    Raises:
        Unfit: they allow no claim.
    """
    errors = settings.errors(facts)
    if settings.restart_drift is None:
        drift = min(errors.balanced_drift(), errors.even_drift())
        found = _escape(settings, facts, drift)
        if drift < found.escape_distance**2 / found.round_steps:  # that of a round which goes as far in equal steps
            with suppress(Unfit):
                found = _escape(settings, facts, errors.even_drift())
                drift = errors.even_drift()
        settings = fill(settings, restart_drift=drift)
    else:
        found = _escape(settings, facts, settings.restart_drift)
    settings = fill(
        settings,
        error_radius=found.error_radius,
        escape_distance=found.escape_distance,
        round_steps=found.round_steps,
    )
    alpha, steepest = 4 * known(settings.error_radius), settings.clip_at(facts)
    if alpha > steepest:
        raise Unfit(f"alpha = {alpha:.4g} is above {steepest:.4g}, which every gradient satisfies untrained")
    chance = settings.chance(facts)
    if chance <= 0:
        raise Unfit(f"a round of {known(settings.round_steps)} steps never moves by {settings.escape_distance:.4g}")
    return fill(settings, rounds=rounds_for(settings.missed, chance))


def _escape(settings: EscapeFigures, facts: Facts, drift: float) -> Escape:
    """Return the escape phase of the settings' preset, both batches given.

    Raises:
        Unfit: there is none.
    """
    errors, least = settings.errors(facts), settings.error_radius
    if least is None and settings.margin == "explicit":
        restarts = max(1, settings.epochs * facts.units // known(settings.batch))
        least = errors.radius(drift, restarts, settings.failure)
    plan = strict if settings.preset == "strict" else partial(fast, escape_distance=known(settings.escape_distance))
    return plan(
        errors,
        drift,
        step_size=known(settings.step_size),
        smoothness=bent_by(settings, facts),
        hessian_smoothness=known(settings.hessian_smoothness),
        least_radius=least,
    )


def _by_theory(settings: F, facts: Facts) -> F:
    """Return settings filled by the theorem, or refuse with its figures.

    Raises:
        Invalid: nobody can run them.
    """
    if all(getattr(settings, name) is not None for name in (*SIZES, *ESCAPE)):
        return settings
    settings = fill(settings, start_gap=facts.start_gap)
    ground = Ground(
        lipschitz=settings.clip_at(facts),
        smoothness=bent_by(settings, facts),
        hessian_smoothness=known(settings.hessian_smoothness),
        start_gap=known(settings.start_gap),
        dimension=facts.dimension,
        units=facts.units,
        clients=settings.clients or 1,
    )
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
    if settings.sharpest() > bent_by(settings, facts):
        raise _wrong(
            "/optimizer/error_radius",
            f"makes sqrt(rho alpha) = {settings.sharpest():.4g}, above the smoothness {bent_by(settings, facts):.4g}: "
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
