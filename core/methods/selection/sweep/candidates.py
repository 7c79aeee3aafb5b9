"""The candidates of a sweep: their settings, what each asks, and the groups that they are run in."""

from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from core.base.errors import Invalid
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, NoisyGradientDescentPlan
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton, NoisyNewtonPlan
from core.privacy.facts import Facts, Frozen

OPEN: Final[dict[str, frozenset[str]]] = {
    "noisy_gd": frozenset({"steps", "step_size"}),
    "noisy_newton": frozenset(
        {"steps", "hessians", "memory", "growth", "averaged", "damping", "curvature_share", "last_gradient_share"}
    ),
}
"""Settings that candidates may have: with others a run may end early, fail, or take longer for what it is answered."""
DIVIDED: Final = ("growth", "curvature_share", "last_gradient_share")
"""Settings of `noisy_newton` that say how much noise each question has: laws of noise take long to make ready."""

AnyOptimizer = Annotated[NoisyGradientDescent | NoisyNewton, Field(discriminator="kind")]
AnyOptimizerPlan = Annotated[NoisyGradientDescentPlan | NoisyNewtonPlan, Field(discriminator="kind")]
Ridge = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Candidate(Frozen):
    """One setting of a sweep."""

    optimizer: AnyOptimizer
    ridge: Ridge | None = Field(default=None, description="null: the model's")


class CandidatePlan(Frozen):
    """One setting of a sweep, nothing open."""

    optimizer: AnyOptimizerPlan
    ridge: Ridge


def groups_of(candidates: Iterable[Candidate | CandidatePlan]) -> tuple[tuple[int, ...], ...]:
    """Return the places of candidates that ask the same questions, in the order of the first of each."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, one in enumerate(candidates):
        method = one.optimizer
        divided = [getattr(method, name) for name in DIVIDED] if isinstance(method, NoisyNewton) else []
        found.setdefault((method.kind, *asked_of(one), *divided), []).append(place)
    return tuple(map(tuple, found.values()))


def asked_of(candidate: Candidate | CandidatePlan) -> tuple[int, int]:
    """Return how many gradients and Hessians a run of a candidate asks for, whose numbers are filled."""
    method = candidate.optimizer
    hessians = method.hessians if isinstance(method, NoisyNewton) else 0
    assert method.steps is not None and hessians is not None, "filled before"  # noqa: PT018 - one reason
    return method.steps, hessians


def plan_of(candidate: Candidate, facts: Facts, mu: float) -> NoisyGradientDescentPlan | NoisyNewtonPlan:
    """Return a candidate's plan, its method worth `mu`, as if settings that a sweep plans were left open."""
    fields = type(candidate.optimizer).model_fields
    closed = fields.keys() - OPEN[candidate.optimizer.kind]
    opened = candidate.optimizer.model_copy(update={name: fields[name].default for name in closed})
    return opened.plan(with_ridge(facts, candidate), mu)


def has_plan(candidate: Candidate, facts: Facts) -> bool:
    """Say whether a candidate's figures can be computed with at an ordinary mu."""
    try:
        plan_of(candidate, facts, 1.0)
    except Invalid:
        return True
    except (ValueError, ArithmeticError):
        return False
    return True


def with_ridge(facts: Facts, candidate: Candidate) -> Facts:
    """Return the facts of a candidate's own ridge."""
    return facts.model_copy(update={"ridge": facts.ridge if candidate.ridge is None else candidate.ridge})
