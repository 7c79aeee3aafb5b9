"""Batch sizes of a calibrated run, and its escape phase with them.

The step is half of 1/M. b1 is the largest that leaves units for the planned reads. For methods that descend these are a
phase without an escape, twice, and as much again or a descent, whichever is more. A round is short and seldom asks for
a fresh gradient. The long steps of a descent may take one each, but at most 1 + 2 eta U/kappa of them where U is known.
No theorem gives the number of steps. If gradients shrank at the rate of the least detectable curvature, once on the way
to a saddle and once from it, 2 ln(G/(3 chi))/(eta gamma_star) would suffice. The batch b2 is a round's share of b1, so
that a round's changes take about as many units as its fresh gradient. The limit kappa is the drift at which the noise
of both is equal. [choice]

Where nobody names a preset, strict figures are tried first and curved ones then. With a preset named, a run that leaves
less room is allowed: twice what a certificate takes, and as much as that.

Source: ours; see `presets`. 1 + 2 eta U/kappa is lemma 8 of Tao, Zhang, Yu, Cheng, Dressler and Wang without its
errors: steps with eta <= 1/M along exact gradients lower the loss by (eta/2) |g|^2 each.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from math import floor
from typing import Final, TypeVar

from core.base.errors import FieldError, Invalid
from core.methods.second_order.escape import rounds_for
from core.methods.second_order.figures import EscapeFigures, known
from core.methods.second_order.presets import Escape, Unfit, curved, fast, strict
from core.privacy.arithmetic import fill
from core.privacy.facts import Facts

F = TypeVar("F", bound=EscapeFigures)

FINER: Final = 0.9
"""From one b1 that is tried to the next."""
ROUND_SHARE: Final = 16
"""Changes that a first guess of b2 allows for."""
MOST_BATCH: Final = 1e12
"""Until there are larger ones looked for, to say how many units would do."""
ESCAPE: Final = ("error_radius", "escape_distance", "round_steps", "rounds")
SIZES: Final = ("batch", "difference_batch", "restart_drift", "step_size")
SILENT: Final = 1e9
"""A mu with next to no noise."""


def with_sizes(settings: F, facts: Facts) -> F:
    """Return settings filled by a preset, b1 as large as there is room for.

    Raises:
        Invalid: no batch allows a claim that can be paid; with the figures, and how many units would do.
    """
    settings = fill(settings, step_size=0.5 / settings.bent_by(facts))
    if all(getattr(settings, name) is not None for name in (*SIZES, *ESCAPE)):
        return settings
    tries = settings.tries()
    for preset, room in tries:
        found = _sized(fill(settings, preset=preset), facts, room)
        if found is not None:
            return found
    # The dict keeps each preset once, with its last and least room.
    why = [_why_not(fill(settings, preset=preset), facts, room) for preset, room in dict(tries).items()]
    raise Invalid(
        f"These records and this privacy allow no second-order claim: {'; '.join(why)}.", *_cures(settings, facts)
    )


def _sized(settings: F, facts: Facts, room: float | None) -> F | None:
    """Return settings with the largest b1 for which there is room; None: there is none."""
    units = settings.epochs * facts.units
    for batch in (settings.batch,) if settings.batch is not None else _sizes(facts.units):
        with suppress(Unfit):
            filled = _with_batch(settings, facts, batch)
            # A given batch is taken as it is; a later check refuses it with its own pointer.
            if settings.batch is not None or filled.reserve(facts, room) <= units:
                return filled
    return None


def _sizes(units: int) -> Iterable[int]:
    """Return the b1 that are tried, the largest first."""
    sizes, size = dict[int, None](), float(units)
    while size >= 1:
        sizes[floor(size)] = None
        size *= FINER
    return sizes


def _why_not(settings: EscapeFigures, facts: Facts, room: float | None) -> str:
    """Say what the least b1 that allows a claim would take, and what there is."""
    said, unfit = "", ""
    for batch in (settings.batch,) if settings.batch is not None else _growing():
        try:
            filled = _with_batch(settings, facts, batch)
        except Unfit as error:
            unfit = f"with b1 = {batch}, {error.detail}"
            continue
        needed, words = filled.needed()
        enough = max(needed, filled.reserve(facts, room))
        said = f"{words}, and there are {settings.epochs * facts.units}"
        if enough > needed:  # the b1 that are tried are so far apart
            said += f"; with the way down about {enough / settings.epochs / FINER:.3g} units would do"
        break
    reasons = ", ".join(filter(None, (said, unfit if not said else "")))
    return f"{settings.preset}: {reasons}"


def _growing() -> Iterator[int]:
    """Go through the b1 from the smallest to more than anybody has."""
    size, last = 1.0, 0
    while size <= MOST_BATCH:
        if floor(size) > last:
            last = floor(size)
            yield last
        size /= FINER


def _cures(settings: EscapeFigures, facts: Facts) -> list[FieldError]:
    """Return what may be changed so that a claim is possible."""
    quiet = settings.model_copy(update={"mu": SILENT})
    helps = any(_sized(fill(quiet, preset=preset), facts, room) is not None for preset, room in settings.tries())
    detail = "raise the target, or bring more units" if helps else "no target is enough: bring more units"
    cures = [
        FieldError("/privacy", f"{detail}; an estimate shows alpha at other figures"),
        FieldError(
            "/optimizer/spread", "declare how far gradients are from their mean, where less than the clip is known"
        ),
        FieldError("/optimizer/clip", "lower it: noise is in proportion to it"),
    ]
    if settings.descends:
        cures.append(FieldError("/optimizer/kind", "clipped_sgd needs no such claim"))
    return cures


def _with_batch(settings: F, facts: Facts, batch: int) -> F:
    """Return settings filled for one b1.

    Raises:
        Unfit: it allows no claim.
    """
    sized = settings.model_copy(update={"batch": batch})
    if sized.difference_batch is None:
        # b2 follows from the round's length, which itself needs some b2: hence a guess first.
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
    plan = {"strict": strict, "curved": curved}.get(known(settings.preset))
    if plan is None:
        plan = partial(fast, escape_distance=known(settings.escape_distance))
    found = plan(
        errors,
        drift,
        step_size=known(settings.step_size),
        smoothness=settings.bent_by(facts),
        hessian_smoothness=known(settings.hessian_smoothness),
        least_radius=least,
    )
    if found.sharpest(known(settings.hessian_smoothness)) >= settings.bends_down(facts):
        raise Unfit(
            f"gamma_star = {found.sharpest(known(settings.hessian_smoothness)):.4g} excludes nothing: this loss bends "
            f"down by {settings.bends_down(facts):.4g} at most"
        )
    return found
