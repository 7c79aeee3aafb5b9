"""Length of Newton's steps before they are pure: by fixed damping, a rule, a warm start or a line search.

Source: Avella-Medina, Bradshaw and Loh (2023), sections 4.2 to 4.4 (tests, ridge, adaptive steps, the last after Sun
and Tran-Dinh, 2019) and appendix G (backtracking). All are functions of noised answers and public constants; the tests
are made of answers that have been paid for, and each comparison of the line search is an answer of its own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from core.inference.eigen import floor_eigenvalues, solve
from core.inference.parameters import (
    above_floor,
    penalised_gradient,
    penalised_hessian,
    penalty,
    scale_of,
)
from core.methods.m_estimation.noisy_newton.options import LineSearch, RidgeStartPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.oracle import Oracle
from core.privacy.arithmetic import required_curvature_bound
from core.privacy.facts import Facts
from core.queries.gradients import Secant

SHORTEST = 1e-8
"""Below it log(1 + b)/b is 1 to all digits."""
START_FACTOR = 16.0
"""Of Theorem 4's condition on the start."""


@dataclass(frozen=True)
class LocalAnswers:
    """Noised answers about the loss at theta: shapes (..., p), (..., p) and (..., p, p)."""

    theta: Tensor
    gradient: Tensor
    matrix: Tensor
    """The pooled noised Hessian times the scale, as the oracle answers it."""
    floor: float
    """Of its eigenvalues."""


@dataclass(frozen=True)
class Local:
    """The model of the penalised loss that a step is made with."""

    gradient: Tensor
    hessian: Tensor
    """Floored, times the scale."""
    floored: Tensor
    """Eigenvalues moved, shape (...)."""
    direction: Tensor
    """Hessian^-1 gradient: where the step goes, backwards."""
    scale: Tensor


def local(facts: Facts, received: LocalAnswers, ridge: Tensor | float = 0.0) -> Local:
    """Return the floored model with the job's ridge and `ridge`, shape (...), more."""
    scale = scale_of(facts, received.theta)
    gradient = penalised_gradient(facts, received.gradient, received.theta, ridge)
    hessian, floored = floor_eigenvalues(penalised_hessian(facts, received.matrix, scale, ridge), received.floor)
    return Local(gradient, hessian, floored, scale.unsqueeze(-1) * solve(hessian, gradient), scale)


def damped(
    plan: NoisyNewtonPlan, facts: Facts, received: LocalAnswers, number: int, early: Tensor, lipschitz: Tensor
) -> tuple[Local, Tensor, Tensor]:
    """Return the model of a step, its damping, shape (...), and where the early phase goes on, shape (...).

    Args:
        plan: public, nothing open.
        facts: public facts.
        received: about the current iterate.
        number: of the step, from 1, among those with a Hessian.
        early: where no test has passed yet.
        lipschitz: private bound on how fast Hessians change; NaN where none was asked.
    """
    usual = torch.tensor(plan.damping, dtype=torch.float64)
    warm = plan.warm_start
    if isinstance(warm, RidgeStartPlan):
        if number > warm.steps:
            early = torch.zeros_like(early)
        else:
            early = early & ~near(facts, local(facts, received, warm.ridge), lipschitz, warm.ridge)
        model = local(facts, received, torch.where(early, warm.ridge, 0.0))
        return model, torch.where(early, warm.damping, _ruled(plan, facts, model, usual)), early
    model = local(facts, received)
    if plan.damped_steps is not None:
        over = near(facts, model, lipschitz) if number <= plan.damped_steps else torch.tensor(data=True)
        early = early & ~over
        return model, torch.where(early, usual, 1.0), early
    return model, _ruled(plan, facts, model, usual), early


def near(facts: Facts, model: Local, lipschitz: Tensor, ridge: float | None = None) -> Tensor:
    """Say where noised values pass the test of a start from which pure steps converge, shape (...).

    With a bound L on how fast Hessians change, that of Theorem 3: |G| <= tau^2/L, 2 tau the smallest eigenvalue. For a
    self-concordant loss that of Theorem 4: lambda_min^(-1/2) (G'H^-1 G)^(1/2) <= 1/(16 gamma). Without either, for a
    loss with a ridge, that of section 4.4: |G| <= ridge/(ridge + Bbar). Nowhere where an eigenvalue was floored: the
    smallest one is not known to be as large as the floor.
    """
    return (model.floored == 0) & _near(facts, model, lipschitz, ridge)


def _near(facts: Facts, model: Local, lipschitz: Tensor, ridge: float | None) -> Tensor:
    """Say where the inequality holds, shape (...)."""
    length: Tensor = torch.linalg.vector_norm(model.gradient, dim=-1)
    smallest: Tensor = torch.linalg.eigvalsh(model.hessian)[..., 0] / model.scale
    if not bool(lipschitz.isnan().any()):
        # A noised bound may be zero or negative, and it divides.
        return length <= (smallest / 2).square() / lipschitz.clamp(min=SHORTEST)
    if facts.concordance is not None:
        decrement = (model.gradient * model.direction).sum(-1).clamp(min=0.0)
        return (decrement / smallest).sqrt() <= 1 / (START_FACTOR * facts.concordance)
    assert ridge is not None, "the planner refuses a test that nothing is known for"
    return length <= ridge / (ridge + required_curvature_bound(facts) / model.scale)


def _ruled(plan: NoisyNewtonPlan, facts: Facts, model: Local, usual: Tensor) -> Tensor:
    """Return the damping outside early phases: as set, or log(1 + b)/b, b = gamma |H^-1 G|, shape (...)."""
    if plan.step_rule != "adaptive":
        return usual
    assert facts.concordance is not None, "the planner refuses adaptive steps without it"
    length = facts.concordance * torch.linalg.vector_norm(model.direction, dim=-1)
    # torch.where computes both sides: the clamp avoids 0/0 in the unused one.
    return torch.where(length < SHORTEST, 1.0, length.log1p() / length.clamp(min=SHORTEST))


@dataclass(frozen=True)
class Searched:
    """Where the line search stands, shapes (...)."""

    size: Tensor
    """Of the last step."""
    evaluations: Tensor
    """Used so far, of all that are budgeted."""
    searching: Tensor
    """Whether no step of size 1 has been accepted yet."""


def search(
    rule: LineSearch, question: Secant, oracle: Oracle, theta: Tensor, model: Local, so_far: Searched
) -> Searched:
    """Shorten a step until a noised comparison accepts it or all evaluations are used.

    Each comparison is one answer, the accepting one too: the mean slope between both points, whose noise times their
    distance is the paper's noise on the change of the loss. In a simulation a comparison is drawn for all replicates
    and counts for those that still search.
    """
    falls = (model.gradient * model.direction).sum(-1)
    searching, evaluations = so_far.searching, so_far.evaluations
    going = searching & (evaluations < rule.evaluations)
    size = torch.where(going, 1.0, so_far.size)
    while bool(going.any()):
        other, _ = above_floor(oracle.facts, theta - size.unsqueeze(-1) * model.direction)
        at = theta.expand_as(other)
        distance = torch.linalg.vector_norm(other - at, dim=-1)
        change = oracle.ask(question, at, other).value[..., 0] * distance
        # The answer is without the ridge, which needs no record and hence no noise.
        change = change + penalty(oracle.facts, other) - penalty(oracle.facts, at)
        evaluations = evaluations + going.long()
        rises = change > -rule.alpha * size * falls
        searching = searching & ~(going & ~rises & (size == 1))
        size = torch.where(going & rises, size * rule.shrink, size)
        going = going & rises & (evaluations < rule.evaluations)
    return Searched(size, evaluations, searching)
