"""Rounds of escape at a given point: the same controller as Gauss-PSGD's, which ends where that would descend.

Or the norm of the gradient there, answered once; a claim about the gradient alone takes no more.

Source: [derived] ours; rounds as in Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private
stochastic non-convex optimization, algorithm 1.
Sensitivity: that of the estimator's questions, or of `GradientNorm` and `Gradient`; the point was released before, and
is public here.
Failure: depends on noised values only, so it tells no more than the release.
"""

import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.inference.parameters import penalised_gradient
from core.methods.lifecycle import resumed
from core.methods.second_order.check_bound.spec import CheckBoundPlan, NormPlan
from core.methods.second_order.gauss_psgd.fit import first_state, search
from core.oracle import Oracle, Status
from core.queries.gradients import Gradient


def iterate(plan: CheckBoundPlan | NormPlan, oracle: Oracle, points: Tensor) -> tuple[Estimate, Status]:
    """Look whether a point is an approximate second-order stationary one.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; each question reads the next units of a stream.
        points: of the released model, shape (K, p); the last of them is its estimate.

    Returns:
        That very point, shape (p,), with what is claimed of it.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    point = points[-1]
    if isinstance(plan, NormPlan):
        return _received(plan, oracle, point)
    return search(plan, oracle, resumed(plan.start, oracle, first_state(point)))


def _received(plan: NormPlan, oracle: Oracle, point: Tensor) -> tuple[Estimate, Status]:
    """Ask for the norm of the gradient at a point, shape (p,), or for all of it, and claim what follows from it."""
    facts, question = oracle.facts, plan.length_question()
    answer = oracle.ask(question, point)
    penalty = torch.linalg.vector_norm(penalised_gradient(facts, torch.zeros_like(point), point))
    length = answer.value
    # GradientNorm adds the ridge behind the oracle; a whole gradient comes without it.
    if isinstance(question, Gradient):
        length = torch.linalg.vector_norm(penalised_gradient(facts, answer.value, point))
    estimate = Estimate(
        theta=point,
        start=point,
        family="gradient",
        left=torch.tensor(data=False),
        scale=answer.scale,
        step=0.0,
        steps=1,
        error_bound=plan.claim_of_norm(facts, float(length), answer.scale, float(penalty)),
    )
    return estimate, Status.FINISHED
