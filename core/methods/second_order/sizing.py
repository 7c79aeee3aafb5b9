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
from math import floor, log, log1p
from typing import Final, NamedTuple, TypeVar

from core.base.errors import FieldError, Invalid
from core.methods.second_order.claims import EscapePlan
from core.methods.second_order.escape import rounds_for
from core.methods.second_order.estimation import Errors
from core.methods.second_order.figures import MOST_ROUNDS, MOST_STEPS, EscapeSettings, Preset, RoundFigures, bends_down
from core.methods.second_order.presets import (
    ENOUGH,
    Escape,
    Unfit,
    curved,
    fast,
    gamma_star,
    kept_part,
    round_chance,
    strict,
)
from core.privacy.arithmetic import PLANNED_RADIUS
from core.privacy.facts import Facts

P = TypeVar("P", bound=EscapePlan)

FINER: Final = 0.9
"""From one b1 that is tried to the next."""
ROUND_SHARE: Final = 16
"""Changes that a first guess of b2 allows for."""
MOST_BATCH: Final = 1e12
"""Until there are larger ones looked for, to say how many units would do."""
SILENT: Final = 1e9
"""A mu with next to no noise."""


class EscapeConstants(NamedTuple):
    """Constants of a job with rounds of escape that are known before its batches are."""

    facts: Facts
    mu: float
    smoothness: float
    hessian_smoothness: float


def given_figures(settings: EscapeSettings, step_size: float | None) -> RoundFigures | None:
    """Return the figures that the settings give, with a planned step where they give none; None: some are open."""
    values = {name: getattr(settings, name) for name in RoundFigures._fields}
    values["step_size"] = settings.step_size or step_size
    return None if None in values.values() else RoundFigures(**values)


def closed(
    settings: EscapeSettings, plan: type[P], known: EscapeConstants, figures: RoundFigures, preset: Preset = "strict"
) -> P:
    """Return the plan that has these figures, where the settings give no others."""
    most = settings.most_steps(known.facts, figures)
    return settings.closed(
        plan,
        mu=known.mu,
        smoothness=known.smoothness,
        hessian_smoothness=known.hessian_smoothness,
        radius=PLANNED_RADIUS,
        sites=1,
        start="zeros",
        preset=preset,
        steps=max(1, min(MOST_STEPS, most)),
        **figures._asdict(),
    )


def with_sizes(settings: EscapeSettings, plan: type[P], known: EscapeConstants) -> P:
    """Return the plan by a preset, b1 as large as there is room for.

    Raises:
        Invalid: no batch allows a claim that can be paid; with the figures, and how many units would do.
    """
    given = given_figures(settings, _step(settings, known))
    if given is not None:
        return closed(settings, plan, known, given)
    tries = settings.tries()
    for preset, room in tries:
        found = _sized(settings, plan, known, preset, room)
        if found is not None:
            return found
    # The dict keeps each preset once, with its last and least room.
    why = [_why_not(settings, plan, known, preset, room) for preset, room in dict(tries).items()]
    raise Invalid(
        f"These records and this privacy allow no second-order claim: {'; '.join(why)}.",
        *_cures(settings, plan, known),
    )


def _step(settings: EscapeSettings, known: EscapeConstants) -> float:
    """Return eta."""
    return settings.step_size or 0.5 / (known.smoothness + known.facts.ridge)


def _sized(
    settings: EscapeSettings, plan: type[P], known: EscapeConstants, preset: Preset, room: float | None
) -> P | None:
    """Return the plan with the largest b1 for which there is room; None: there is none."""
    units = settings.epochs * known.facts.units
    for batch in (settings.batch,) if settings.batch is not None else _sizes(known.facts.units):
        with suppress(Unfit):
            filled = closed(settings, plan, known, _with_batch(settings, known, preset, batch), preset)
            # A given batch is taken as it is; a later check refuses it with its own pointer.
            if settings.batch is not None or filled.reserve(known.facts, room) <= units:
                return filled
    return None


def _sizes(units: int) -> Iterable[int]:
    """Return the b1 that are tried, the largest first."""
    sizes, size = dict[int, None](), float(units)
    while size >= 1:
        sizes[floor(size)] = None
        size *= FINER
    return sizes


def _why_not(
    settings: EscapeSettings, plan: type[P], known: EscapeConstants, preset: Preset, room: float | None
) -> str:
    """Say what the least b1 that allows a claim would take, and what there is."""
    said, unfit = "", ""
    for batch in (settings.batch,) if settings.batch is not None else _growing():
        try:
            filled = closed(settings, plan, known, _with_batch(settings, known, preset, batch), preset)
        except Unfit as error:
            unfit = f"with b1 = {batch}, {error.detail}"
            continue
        needed, words = filled.needed()
        enough = max(needed, filled.reserve(known.facts, room))
        said = f"{words}, and there are {settings.epochs * known.facts.units}"
        if enough > needed:  # the b1 that are tried are so far apart
            said += f"; with the way down about {enough / settings.epochs / FINER:.3g} units would do"
        break
    reasons = ", ".join(filter(None, (said, unfit if not said else "")))
    return f"{preset}: {reasons}"


def _growing() -> Iterator[int]:
    """Go through the b1 from the smallest to more than anybody has."""
    size, last = 1.0, 0
    while size <= MOST_BATCH:
        if floor(size) > last:
            last = floor(size)
            yield last
        size /= FINER


def _cures(settings: EscapeSettings, plan: type[P], known: EscapeConstants) -> list[FieldError]:
    """Return what may be changed so that a claim is possible."""
    quiet = known._replace(mu=SILENT)
    helps = any(_sized(settings, plan, quiet, preset, room) is not None for preset, room in settings.tries())
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


def _with_batch(settings: EscapeSettings, known: EscapeConstants, preset: Preset, batch: int) -> RoundFigures:
    """Return the figures for one b1.

    Raises:
        Unfit: it allows no claim.
    """
    changes = settings.difference_batch
    if changes is None:
        # b2 follows from the round's length, which itself needs some b2: hence a guess first.
        rough = _with_escape(settings, known, preset, (batch, max(1, batch // ROUND_SHARE)))
        changes = max(1, batch // rough.round_steps)
    return _with_escape(settings, known, preset, (batch, changes))


def _with_escape(
    settings: EscapeSettings, known: EscapeConstants, preset: Preset, batches: tuple[int, int]
) -> RoundFigures:
    """Return the figures for both batches, by a preset.

    Raises:
        Unfit: they allow no claim.
    """
    facts, drift = known.facts, settings.restart_drift
    errors = settings.errors_with(facts, known.mu, known.smoothness, *batches)
    if drift is None:
        drift = min(errors.balanced_drift(), errors.even_drift())
        found = _escape(settings, known, preset, errors, drift)
        if drift < found.escape_distance**2 / found.round_steps:  # that of a round which goes as far in equal steps
            with suppress(Unfit):
                found = _escape(settings, known, preset, errors, errors.even_drift())
                drift = errors.even_drift()
    else:
        found = _escape(settings, known, preset, errors, drift)
    made = settings.with_given(
        RoundFigures(
            *batches,
            restart_drift=drift,
            step_size=_step(settings, known),
            error_radius=found.error_radius,
            escape_distance=found.escape_distance,
            round_steps=found.round_steps,
            rounds=1,
        )
    )
    alpha, steepest = 4 * made.error_radius, settings.clip_at(facts)
    if alpha > steepest:
        raise Unfit(f"alpha = {alpha:.4g} is above {steepest:.4g}, which every gradient satisfies untrained")
    curvature = kept_part(preset) * gamma_star(made.error_radius, known.hessian_smoothness)
    chance = round_chance(errors, made.step_size, made.escape_distance, made.round_steps, curvature)
    # Of a vanishing chance the number of rounds passes what a float holds.
    seldom = settings.rounds is None and log(1 / settings.missed) > -MOST_ROUNDS * log1p(-min(chance, ENOUGH))
    if chance <= 0 or seldom:
        raise Unfit(f"a round of {made.round_steps} steps moves by {made.escape_distance:.4g} too seldom, if ever")
    return settings.with_given(made._replace(rounds=rounds_for(settings.missed, chance)))


def _escape(settings: EscapeSettings, known: EscapeConstants, preset: Preset, errors: Errors, drift: float) -> Escape:
    """Return the escape phase of a preset, both batches given.

    Raises:
        Unfit: there is none.
    """
    least, by_hand = settings.error_radius, settings.escape_distance
    if least is None and settings.margin == "explicit":
        restarts = max(1, settings.epochs * known.facts.units // int(errors.batch))
        least = errors.radius(drift, restarts, settings.failure)
    plans = {"strict": strict, "curved": curved}
    if by_hand is not None:
        plans["fast"] = partial(fast, escape_distance=by_hand)
    found = plans[preset](
        errors,
        drift,
        step_size=_step(settings, known),
        smoothness=known.smoothness + known.facts.ridge,
        hessian_smoothness=known.hessian_smoothness,
        least_radius=least,
    )
    sharpest, bent = found.sharpest(known.hessian_smoothness), bends_down(known.facts, known.smoothness)
    if sharpest >= bent:
        raise Unfit(f"gamma_star = {sharpest:.4g} excludes nothing: this loss bends down by {bent:.4g} at most")
    return found
