"""Private selection: the first of several released points that passes a noised test of a second-order stationary point.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 4 and remark 5. Corrected: the thresholds of the sound mode have all constants, a union over all
candidates, and the answers' noise. Where no candidate passes, none is returned (printed: not said). A Hessian is asked
for only where the gradient passed: the outcome is the same and what is not asked is not paid.
Sensitivity: those of `Gradient`, `Hessian` and `HessianProduct`, one Gaussian answer each, or of one choice by scores.
Failure: depends on noised values only, so it tells no more than the release.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.inference.parameters import penalised_gradient, penalised_hessian, scale_of
from core.methods.lifecycle import resumed, tensors_of
from core.methods.selection.select_model.spec import SelectModelPlan
from core.methods.selection.select_model.theory import BY_SCORES, CurvatureFigures
from core.oracle import Answer, Oracle, Status

NONE = -1


class _State(NamedTuple):
    """Where a selection stands after a candidate."""

    place: Tensor
    """Number of candidates that were tested."""
    chosen: Tensor
    slope_scale: Tensor
    """Largest deviation of the noise on an entry of a gradient."""
    bend_scale: Tensor
    """The same of a Hessian or its product; 0: none was asked for."""


class Test(NamedTuple):
    """A candidate's noised figures, and what the noise on their entries was."""

    passed: bool
    noises: tuple[float, float]


def iterate(plan: SelectModelPlan, oracle: Oracle, points: Tensor) -> tuple[Estimate, Status]:
    """Select one of the candidates, or none.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records, which the candidates were not made of; no replicates.
        points: the candidates, released before, shape (T, p).

    Returns:
        The candidate itself, or zeros with the status none where no one passes, and what is claimed of it.
    """
    assert len(points) == plan.candidates, "as many points were priced"
    nothing = torch.tensor(0.0, dtype=torch.float64)
    state = resumed(plan.start, oracle, _State(torch.tensor(0), torch.tensor(NONE), nothing, nothing))
    state = (_chosen_by_score if plan.mode in BY_SCORES else _first_that_passes)(plan, oracle, points, state)
    place = int(state.chosen)
    chosen = None if place == NONE else place
    noises = (float(state.slope_scale), float(state.bend_scale))
    estimate = Estimate(
        theta=torch.zeros_like(points[0]) if chosen is None else points[chosen],
        start=torch.zeros_like(points[0]),
        family="gradient",
        left=torch.tensor(False),
        scale=noises[0],
        step=0.0,
        steps=int(state.place),
        # Without a Hessian that was asked, nothing is known of the noise on curvature.
        error_bound=plan.error_bound(oracle.facts, chosen, noises if noises[1] or plan.curvature is None else None),
    )
    return estimate, Status.NONE if chosen is None else Status.FINISHED


def _chosen_by_score(plan: SelectModelPlan, oracle: Oracle, points: Tensor, state: _State) -> _State:
    """Ask one question about all candidates."""
    (question,) = plan.questions()
    received = oracle.ask(question, points)
    return state._replace(place=torch.tensor(len(points)), chosen=received.value[0].long())


def _first_that_passes(plan: SelectModelPlan, oracle: Oracle, points: Tensor, state: _State) -> _State:
    """Test the candidates one after the other until one passes."""
    while int(state.place) < len(points) and int(state.chosen) == NONE:
        place = int(state.place)
        test = _tested(plan, oracle, points[place])
        state = _State(
            place=torch.tensor(place + 1),
            chosen=torch.tensor(place if test.passed else NONE),
            # Each answer reports its own noise; a claim takes the largest.
            slope_scale=state.slope_scale.clamp(min=test.noises[0]),
            bend_scale=state.bend_scale.clamp(min=test.noises[1]),
        )
        oracle.keep(tensors_of(state), place + 1)
    return state


def _tested(plan: SelectModelPlan, oracle: Oracle, theta: Tensor) -> Test:
    """Say whether one candidate passes."""
    facts, curvature = oracle.facts, plan.curvature
    slope = oracle.ask(plan.questions()[0], theta)
    length = float(torch.linalg.vector_norm(penalised_gradient(facts, slope.value, theta)))
    quoted = plan.noises(facts)
    # The Hessian has not been asked yet: its planned noise only fills the argument.
    allowed, _ = plan.tolerances(facts, (slope.scale, quoted[1]))
    if length > plan.alpha + allowed:
        return Test(passed=False, noises=(slope.scale, 0.0))
    if curvature is None:
        return Test(passed=True, noises=(slope.scale, 0.0))
    if plan.mode == "hessian_products":
        least, scale = _least_by_products(plan, oracle, theta, curvature)
    else:
        least, scale = _least(plan, oracle, theta)
    _, allowed = plan.tolerances(facts, (slope.scale, scale))
    return Test(passed=least >= -(curvature.gamma_star + allowed), noises=(slope.scale, scale))


def _least(plan: SelectModelPlan, oracle: Oracle, theta: Tensor) -> tuple[float, float]:
    """Return the least eigenvalue of a noised Hessian, and the noise on its entries."""
    bend = oracle.ask(plan.questions()[1], theta)
    matrix = penalised_hessian(oracle.facts, bend.value, scale_of(oracle.facts, theta))
    return float(torch.linalg.eigvalsh(matrix)[0]), bend.scale


def _least_by_products(
    plan: SelectModelPlan, oracle: Oracle, theta: Tensor, curvature: CurvatureFigures
) -> tuple[float, float]:
    """Return the least quotient v'Hv that a noised power iteration on M I - H meets, and the noise on a product.

    It begins at an even vector, the same for all; noise leads it away from where that is blind.
    """
    question, facts = plan.questions()[1], oracle.facts
    vector = 1 + torch.arange(len(theta), dtype=torch.float64) / len(theta)
    vector /= torch.linalg.vector_norm(vector)
    least, received = float("inf"), Answer(vector, 0.0)
    for _ in range(plan.products):
        received = oracle.ask(question, theta, vector)
        image = received.value + facts.ridge * vector
        least = min(least, float(vector @ image))
        turned = (curvature.smoothness + facts.ridge) * vector - image
        vector = turned / torch.linalg.vector_norm(turned)
    return least, received.scale
