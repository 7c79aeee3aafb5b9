"""Adaptive noisy gradient descent: at each step a noised norm, then a gradient with noise in proportion to it.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 3, as corrected in the plan' docstring.
Sensitivity: those of `GradientNorm` and `Gradient`, one Gaussian answer each, and of `LeastGradient` for a choice at a
price. Earlier answers decide the price of an answer. A question beyond the budget is not asked, so the total never
exceeds the budget (a privacy filter; the paper's halves are not needed). A gradient is asked for at the very point of
its norm, so that an oracle may use one sum for both.
Failure: depends on noised values only, so it tells no more than the release. Payments that a lost worker took with it
leave less to afford; the method then ends sooner.
"""

from math import isnan, nan
from typing import Final

import torch
from torch import Tensor

from core.inference.eigen import inside
from core.inference.error_bound import ErrorBound
from core.inference.estimate import Estimate
from core.inference.parameters import penalised_gradient
from core.methods.iterates import Candidate, hold, select
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.lifecycle import begun, ended, starting_point
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient, GradientNorm

ENDINGS: Final = ("going", "small_gradient", "budget", "step_cap", "budget_too_small")
_GOING, _SMALL_GRADIENT, _BUDGET, _STEP_CAP, _BUDGET_TOO_SMALL = range(len(ENDINGS))

State = dict[str, Tensor]


def iterate(plan: AdaptiveGradientDescent, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; no replicates.

    Returns: The iterate that the plan select, shape (features,), with a bound on its gradient norm where one was
        asked; and the way in which the method ended.

    Raises:
        Diverged: the iterate is outside the public radius.
    """
    assert plan.radius is not None, "plan first"
    assert plan.smoothness is not None, "plan first"
    state = begun(plan.start, oracle, _start(plan, oracle))
    while int(state["ended"]) == _GOING:
        state = state | (_measured if isnan(state["norm"]) else _stepped)(plan, oracle, state)
        oracle.keep(state, int(state["step"]))  # after each answer: what is told is told once, whatever a worker loses
    ended_by = int(state["ended"])
    chosen = select(plan, oracle, state, Candidate(state["theta"], float(state["norm"])))
    theta, left = inside(chosen.theta, plan.radius)
    estimate = Estimate(
        theta=theta,
        start=state["start"],
        family="gradient",
        left=left,
        scale=float(state["scale"]),
        step=1 / (2 * plan.smoothness),
        steps=state["step"],
        certificate=_error_bound(plan, ended_by, chosen.norm, float(state["norm_scale"])),
    )
    return ended(estimate, Status.STOPPED if ended_by == _SMALL_GRADIENT else Status.FINISHED)


def _start(plan: AdaptiveGradientDescent, oracle: Oracle) -> State:
    """Return the state before the first step."""
    start = starting_point(plan.start, oracle)
    return {
        "start": start,
        "theta": start,
        "step": torch.tensor(0),
        "norm": torch.tensor(nan, dtype=torch.float64),  # of the gradient at theta, once it is told
        "norm_scale": torch.tensor(0.0, dtype=torch.float64),
        "scale": torch.tensor(0.0, dtype=torch.float64),
        "points": start.new_empty(0, len(start)),
        "norms": start.new_empty(0),
        "ended": torch.tensor(_GOING),
    }


def _measured(plan: AdaptiveGradientDescent, oracle: Oracle, state: State) -> State:
    """Ask for the norm at theta, or end."""
    step, question = int(state["step"]), plan.norm_question()
    if step == plan.steps:
        return {"ended": torch.tensor(_STEP_CAP)}
    if not _affords(plan, oracle, question):
        return {"ended": torch.tensor(_BUDGET if step else _BUDGET_TOO_SMALL)}
    received = oracle.ask(question, state["theta"])
    norm = received.value[0]
    points, norms = hold(plan, state["points"], state["norms"], state["theta"], norm)
    return {"norm": norm, "norm_scale": _number(received.scale), "points": points, "norms": norms}


def _stepped(plan: AdaptiveGradientDescent, oracle: Oracle, state: State) -> State:
    """Ask for the gradient at the point of the last norm, and step; or end."""
    assert plan.smoothness is not None, "plan first"
    norm = float(state["norm"])
    question = plan.gradient_question(norm, oracle.facts)
    if question is None:
        return {"ended": torch.tensor(_SMALL_GRADIENT)}
    if not _affords(plan, oracle, question):
        return {"ended": torch.tensor(_BUDGET)}
    assert norm > 0, "a gradient is asked for only where its measured norm is positive"
    received = oracle.ask(question, state["theta"])
    return {
        "theta": state["theta"]
        - penalised_gradient(oracle.facts, received.value, state["theta"]) / (2 * plan.smoothness),
        "step": state["step"] + 1,
        # No norm is known at the new point: nan makes the next turn ask for it.
        "norm": torch.full_like(state["norm"], nan),
        "scale": _number(received.scale),
    }


def _affords(plan: AdaptiveGradientDescent, oracle: Oracle, question: Gradient | GradientNorm) -> bool:
    """Say whether this question can be paid, and the choice of an iterate after it."""
    return oracle.affords(question, plan.selection_question())


def _error_bound(plan: AdaptiveGradientDescent, ended_by: int, norm: float, scale: float) -> ErrorBound:
    """Return the bound that the last noised norm gives at its point; nothing where none was asked."""
    is_known = not isnan(norm)
    exact = "paper" if (plan.multiple, plan.radius_rule) == (1, "paper") else "corrected"
    extensions = ("" if plan.step_cap is None else "+step_cap") + ("+least_norm" * (plan.select == "least_norm"))
    return ErrorBound(
        ended_by=ENDINGS[ended_by],
        quantity="gradient_norm",
        # Noise may make the sum negative, and no norm is.
        value=max(0.0, norm + plan.norm_slack() * scale) if is_known else None,
        # The other half of beta is for noise on gradients, of which this bound says nothing.
        confidence=1 - plan.beta / 2 if is_known else None,
        conditions=("no unit's gradient is shortened there",) if is_known else (),
        variant=exact + extensions,
    )


def _number(value: float) -> Tensor:
    """Return it as an entry of the state."""
    return torch.tensor(value, dtype=torch.float64)
