"""Assumptions of a proximal-point plan, its refusals, and the unchecked facts behind its claims."""

from math import exp

from core.base.errors import FieldError, Invalid
from core.methods.kl.condition import KlCondition, known_gap
from core.methods.kl.proximal_point.schedule import LARGEST_EXPONENT, ProximalConstants, ProximalSchedule
from core.privacy.facts import Facts


def known_convexity(given: float | None, facts: Facts) -> float:
    """Return a unit's weak convexity, as given or the loss's own.

    Raises:
        Invalid: neither is there, or the loss has an unknown scale.
    """
    if facts.scale is not None:
        raise Invalid(
            "The proximal-point method is for losses whose scale is known.",
            FieldError("/model/loss", "has an unknown scale, which the condition is not about: give one"),
        )
    if given is not None:
        return given
    if facts.weak_convexity is None:
        raise Invalid(
            "The proximal-point method needs to know how far from convex a unit's loss is.",
            FieldError("/optimizer/weak_convexity", "give it; 0 for a convex loss"),
        )
    return facts.weak_convexity


def known_condition(given: KlCondition | None, modulus: float) -> KlCondition:
    """Return the condition, as given or that of a mean loss which its ridge makes strongly convex.

    Args:
        given: None: nothing is declared.
        modulus: the ridge less a unit's weak convexity.

    Raises:
        Invalid: nothing is declared and nothing follows, or kappa is below 2.
    """
    if given is None and modulus <= 0:
        raise Invalid(
            "Nothing implies a KL condition here: no ridge makes the mean loss strongly convex.",
            FieldError("/optimizer/condition", "declare gamma and kappa, or take adaptive_gd, which needs neither"),
            FieldError("/model/ridge", "or ask for one that is larger than the loss's weak convexity"),
        )
    condition = given or KlCondition.strongly_convex(modulus)
    if condition.flatness > 0:
        raise Invalid(
            f"The proximal-point method is for kappa from 2 on, and {condition.kappa:g} is less.",
            FieldError("/optimizer/condition/kappa", "give 2 or more, or take kl_spider or adaptive_gd"),
        )
    return condition


def refusal(schedule: ProximalSchedule, ground: ProximalConstants, rho: float) -> Invalid:
    """Return the refusal of a plan without rounds, with the figure at fault and the ways out."""
    more = FieldError("/privacy", "raise the target, or bring more units")
    condition = FieldError("/optimizer/condition", "is too weak for so many units: a smaller gamma, or adaptive_gd")
    practical = FieldError(
        "/optimizer/round_schedule", "practical is an extension that asks for less and certifies nothing"
    )
    gap = f"{ground.start_gap:.4g}, what is known of the start's excess"
    match schedule.regime:
        case "budget_too_small":
            return Invalid(f"budget_too_small: rho = {rho:.3g} pays for no step of any round.", more)
        case "too_many_rounds":
            return Invalid(
                "too_many_rounds: gamma^2 weak_convexity is large, and rounds grow with it.", condition, practical
            )
        case "target_above_F0":
            # F0 exp(-halvings) is the target x^kappa; the cut keeps exp finite.
            best = ground.start_gap * exp(min(-ground.halvings(rho), LARGEST_EXPONENT))
            return Invalid(f"target_above_F0: the target, {best:.4g}, is not below {gap}.", more, condition)
        case _:
            assert schedule.floor is not None, "there would be rounds"
            return Invalid(
                f"trivial_regime: the smallest target, {schedule.floor:.4g}, is not below {gap}.",
                more,
                practical,
                FieldError("/optimizer/constant", "a smaller a, if one is known, promises more"),
                FieldError("/optimizer/kind", "adaptive_gd needs no condition"),
            )


def declared(
    ground: ProximalConstants, course: ProximalSchedule, weak_convexity: float, constant: float, facts: Facts
) -> tuple[str, ...]:
    """Return the unchecked assumptions of a claim; facts that the loss implies are not among them.

    Args:
        ground: the assumed facts.
        course: the rounds.
        weak_convexity: a unit's, as taken.
        constant: a.
        facts: facts that the loss implies.
    """
    condition, within = ground.condition, f"within {course.reach:.6g} of the start"
    modulus = 0.0 if facts.weak_convexity is None else facts.ridge - facts.weak_convexity
    pair = f"({condition.gamma:.6g}, {condition.kappa:.6g})"
    claims = {
        f"the mean loss is {pair}-KL {within}, with respect to its least value": (
            modulus <= 0 or condition != KlCondition.strongly_convex(modulus)
        ),
        f"each unit's loss is {weak_convexity:.6g}-weakly convex {within}": (
            facts.weak_convexity is None or weak_convexity < facts.weak_convexity
        ),
        f"no unit's gradient is longer than {ground.lipschitz:.6g} {within}: nothing is clipped": (
            facts.clips_alone or ground.lipschitz < facts.gradient_bound
        ),
        f"the mean loss at the start is at most {ground.start_gap:.6g} above its least value": (
            ground.start_gap < known_gap(None, condition, ground.lipschitz, ground.start_norm, facts)
        ),
        f"the inner solver's lemma holds with a = {constant:g}, for which no paper gives a figure": (
            course.regime is None
        ),
    }
    return tuple(text for text, needed in claims.items() if needed)
