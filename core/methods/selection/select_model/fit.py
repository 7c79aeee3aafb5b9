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
from core.methods.selection.select_model.spec import SelectModel
from core.methods.selection.select_model.theory import BY_SCORES
from core.oracle import Answer, Oracle, Status

NONE = -1
State = dict[str, Tensor]


class Test(NamedTuple):
    """A candidate's noised figures, and what the noise on their entries was."""

    passed: bool
    noises: tuple[float, float]


def iterate(plan: SelectModel, oracle: Oracle, points: Tensor) -> tuple[Estimate, Status]:
    """Select one of the candidates, or none.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records, which the candidates were not made of; no replicates.
        points: the candidates, released before, shape (T, p).

    Returns:
        The candidate itself, or zeros with the status none where no one passes, and what is claimed of it.
    """
    assert len(points) == plan.candidates, "as many points were priced"
    if plan.mode in BY_SCORES:
        state = _chosen_by_score(plan, oracle, points)
    else:
        state = _first_that_passes(plan, oracle, points)
    place = int(state["chosen"])
    chosen = None if place == NONE else place
    noises = (float(state["slope_scale"]), float(state["bend_scale"]))
    estimate = Estimate(
        theta=torch.zeros_like(points[0]) if chosen is None else points[chosen],
        start=torch.zeros_like(points[0]),
        family="gradient",
        left=torch.tensor(False),
        scale=noises[0],
        step=0.0,
        steps=int(state["place"]),
        # Without a Hessian that was asked, nothing is known of the noise on curvature.
        certificate=plan.certificate(oracle.facts, chosen, noises if noises[1] or plan.mode == "gradient" else None),
    )
    return estimate, Status.NONE if chosen is None else Status.FINISHED


def _begun(oracle: Oracle) -> State:
    """Return what an earlier attempt kept, or the state before the first candidate."""
    nothing = torch.tensor(0.0, dtype=torch.float64)
    return oracle.resume(
        {"place": torch.tensor(0), "chosen": torch.tensor(NONE), "slope_scale": nothing, "bend_scale": nothing}
    )


def _chosen_by_score(plan: SelectModel, oracle: Oracle, points: Tensor) -> State:
    """Ask one question about all candidates."""
    (question,) = plan.questions()
    received = oracle.ask(question, points)
    return {**_begun(oracle), "place": torch.tensor(len(points)), "chosen": received.value[0].long()}


def _first_that_passes(plan: SelectModel, oracle: Oracle, points: Tensor) -> State:
    """Test the candidates one after the other until one passes."""
    state = _begun(oracle)
    while int(state["place"]) < len(points) and int(state["chosen"]) == NONE:
        place = int(state["place"])
        test = _tested(plan, oracle, points[place])
        scales = zip(("slope_scale", "bend_scale"), test.noises, strict=True)
        state = {
            "place": torch.tensor(place + 1),
            "chosen": torch.tensor(place if test.passed else NONE),
            # Each answer reports its own noise; a claim takes the largest.
            **{name: torch.tensor(max(scale, float(state[name])), dtype=torch.float64) for name, scale in scales},
        }
        oracle.keep(state, place + 1)
    return state


def _tested(plan: SelectModel, oracle: Oracle, theta: Tensor) -> Test:
    """Say whether one candidate passes."""
    facts = oracle.facts
    assert plan.alpha is not None, "plan first"
    slope = oracle.ask(plan.questions()[0], theta)
    length = float(torch.linalg.vector_norm(penalised_gradient(facts, slope.value, theta)))
    quoted = plan.noises(facts)
    # The Hessian has not been asked yet: its planned noise only fills the argument.
    allowed, _ = plan.tolerances(facts, (slope.scale, quoted[1]))
    if length > plan.alpha + allowed:
        return Test(passed=False, noises=(slope.scale, 0.0))
    if plan.mode == "gradient":
        return Test(passed=True, noises=(slope.scale, 0.0))
    assert plan.gamma_star is not None, "plan first"
    least, scale = (_least_by_products if plan.mode == "hessian_products" else _least)(plan, oracle, theta)
    _, allowed = plan.tolerances(facts, (slope.scale, scale))
    return Test(passed=least >= -(plan.gamma_star + allowed), noises=(slope.scale, scale))


def _least(plan: SelectModel, oracle: Oracle, theta: Tensor) -> tuple[float, float]:
    """Return the least eigenvalue of a noised Hessian, and the noise on its entries."""
    bend = oracle.ask(plan.questions()[1], theta)
    matrix = penalised_hessian(oracle.facts, bend.value, scale_of(oracle.facts, theta))
    return float(torch.linalg.eigvalsh(matrix)[0]), bend.scale


def _least_by_products(plan: SelectModel, oracle: Oracle, theta: Tensor) -> tuple[float, float]:
    """Return the least quotient v'Hv that a noised power iteration on M I - H meets, and the noise on a product.

    It begins at an even vector, the same for all; noise leads it away from where that is blind.
    """
    question, facts = plan.questions()[1], oracle.facts
    assert plan.smoothness is not None, "plan first"
    vector = 1 + torch.arange(len(theta), dtype=torch.float64) / len(theta)
    vector /= torch.linalg.vector_norm(vector)
    least, received = float("inf"), Answer(vector, 0.0)
    for _ in range(plan.products):
        received = oracle.ask(question, theta, vector)
        image = received.value + facts.ridge * vector
        least = min(least, float(vector @ image))
        turned = (plan.smoothness + facts.ridge) * vector - image
        vector = turned / torch.linalg.vector_norm(turned)
    return least, received.scale
