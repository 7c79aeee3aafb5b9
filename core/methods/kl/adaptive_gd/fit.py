"""Adaptive noisy gradient descent: at each step a noised norm, then a gradient with noise in proportion to it.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 3, as corrected in the plan's docstring. A draw among
the iterates, as in theorem 14, has a budget of its own here. The one of the least noised norm is Farthing's choice: it
is made of answers, so it costs nothing.
Sensitivity: those of `GradientNorm` and `Gradient`, one Gaussian answer each, and of `LeastGradient` for a choice at a
price. Earlier answers decide the price of an answer. A question beyond the budget is not asked, so the total never
exceeds the budget (a privacy filter; the paper's halves are not needed). A gradient is asked for at the very point of
its norm, so that an oracle may use one sum for both.
Failure: depends on noised values only, so it tells no more than the release. Payments that a lost worker took with it
leave less to afford; the method then ends sooner.
"""

from math import isnan, nan
from typing import Final, NamedTuple

import torch
from torch import Tensor

from core.inference.eigen import inside
from core.inference.error_bound import ErrorBound
from core.inference.estimate import Estimate
from core.inference.parameters import penalised_gradient
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescentPlan
from core.methods.kl.adaptive_gd.theory import MOST_CANDIDATES
from core.methods.lifecycle import ended, resumed, starting_point, tensors_of
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient, GradientNorm

ENDINGS: Final = ("going", "small_gradient", "budget", "step_cap", "budget_too_small")
_GOING, _SMALL_GRADIENT, _BUDGET, _STEP_CAP, _BUDGET_TOO_SMALL = range(len(ENDINGS))


class _State(NamedTuple):
    """Where a run stands after an answer."""

    start: Tensor
    theta: Tensor
    step: Tensor
    norm: Tensor
    """Noised, of the gradient at theta; nan until it is asked for."""
    norm_scale: Tensor
    scale: Tensor
    """Deviation of the last gradient's noise on a coordinate."""
    points: Tensor
    """Iterates held for a choice, shape (K, p)."""
    norms: Tensor
    """Theirs, noised, the least first, shape (K,)."""
    ended: Tensor
    """Place in ENDINGS."""


def iterate(plan: AdaptiveGradientDescentPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Estimate the parameters of an M-estimator.

    Args:
        plan: public, nothing open.
        oracle: the only way to the records; no replicates.

    Returns: The iterate that the plan asks for, shape (features,), with a bound on its gradient norm where one was
        asked; and the way in which the method ended.

    Raises:
        Diverged: the iterate is outside the public radius.
    """
    start = starting_point(plan.start, oracle)
    first = _State(
        start=start,
        theta=start,
        step=torch.tensor(0),
        norm=_number(nan),
        norm_scale=_number(0.0),
        scale=_number(0.0),
        points=start.new_empty(0, len(start)),
        norms=start.new_empty(0),
        ended=torch.tensor(_GOING),
    )
    state = resumed(plan.start, oracle, first)
    while int(state.ended) == _GOING:
        state = (_measured if isnan(state.norm) else _stepped)(plan, oracle, state)
        # After each answer, so that no answer is drawn twice when a worker is lost.
        oracle.keep(tensors_of(state), int(state.step))
    ended_by = int(state.ended)
    chosen, norm = _selected(plan, oracle, state)
    theta, left = inside(chosen, plan.radius)
    estimate = Estimate(
        theta=theta,
        start=state.start,
        family="gradient",
        left=left,
        scale=float(state.scale),
        step=1 / (2 * plan.smoothness),
        steps=state.step,
        error_bound=_error_bound(plan, ended_by, norm, float(state.norm_scale)),
    )
    return ended(estimate, Status.STOPPED if ended_by == _SMALL_GRADIENT else Status.FINISHED)


def _measured(plan: AdaptiveGradientDescentPlan, oracle: Oracle, state: _State) -> _State:
    """Ask for the norm at theta, or end."""
    step, question = int(state.step), plan.norm_question()
    if step == plan.steps:
        return state._replace(ended=torch.tensor(_STEP_CAP))
    if not _affords(plan, oracle, question):
        return state._replace(ended=torch.tensor(_BUDGET if step else _BUDGET_TOO_SMALL))
    received = oracle.ask(question, state.theta)
    norm = received.value[0]
    points, norms = _held(plan, state, norm)
    return state._replace(norm=norm, norm_scale=_number(received.scale), points=points, norms=norms)


def _stepped(plan: AdaptiveGradientDescentPlan, oracle: Oracle, state: _State) -> _State:
    """Ask for the gradient at the point of the last norm, and step; or end."""
    norm = float(state.norm)
    question = plan.gradient_question(norm, oracle.facts)
    if question is None:
        return state._replace(ended=torch.tensor(_SMALL_GRADIENT))
    if not _affords(plan, oracle, question):
        return state._replace(ended=torch.tensor(_BUDGET))
    assert norm > 0, "a gradient is asked for only where its measured norm is positive"
    received = oracle.ask(question, state.theta)
    slope = penalised_gradient(oracle.facts, received.value, state.theta)
    return state._replace(
        theta=state.theta - slope / (2 * plan.smoothness),
        step=state.step + 1,
        # No norm is known at the new point: nan makes the next turn ask for it.
        norm=_number(nan),
        scale=_number(received.scale),
    )


def _held(plan: AdaptiveGradientDescentPlan, state: _State, norm: Tensor) -> tuple[Tensor, Tensor]:
    """Return the candidates with theta, whose noised norm is given: as many as the choice needs, the least norms first.

    Args:
        plan: which choice is made.
        state: the candidates before.
        norm: shape ().
    """
    most = {"last": 0, "least_norm": 1, "exponential": MOST_CANDIDATES}[plan.select]
    together = torch.cat([state.norms, norm.reshape(1)])
    # A resumed attempt must hold the same points, also where norms are equal.
    order = together.argsort(stable=True)[:most]
    return torch.cat([state.points, state.theta.unsqueeze(0)])[order], together[order]


def _selected(plan: AdaptiveGradientDescentPlan, oracle: Oracle, state: _State) -> tuple[Tensor, float]:
    """Return the iterate that the plan asks for, shape (p,), with its noised norm; a draw among several is paid for.

    The steps leave enough for it: its chunk is the last one, also after lost attempts. The norm is nan where none was
    asked.
    """
    if plan.select == "last" or not len(state.norms):
        return state.theta, float(state.norm)
    choice, index = plan.selection_question(), 0
    if choice is not None and len(state.norms) > 1:
        index = int(oracle.ask(choice, state.points).value[0])
    norm = float(state.norms[index])
    assert not isnan(norm), "candidates have norms"
    return state.points[index], norm


def _affords(plan: AdaptiveGradientDescentPlan, oracle: Oracle, question: Gradient | GradientNorm) -> bool:
    """Say whether this question can be paid, and the choice of an iterate after it."""
    return oracle.affords(question, plan.selection_question())


def _error_bound(plan: AdaptiveGradientDescentPlan, ended_by: int, norm: float, scale: float) -> ErrorBound:
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
