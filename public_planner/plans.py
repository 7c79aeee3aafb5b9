"""Plans before there is a dataset: arithmetic on public figures, remembered for a while."""

from functools import lru_cache
from typing import Annotated

from pydantic import Discriminator, Tag, TypeAdapter

from core.base.errors import FieldError, Invalid
from public_planner import second_order as escape
from public_planner.clipped.planner import plan as make_plan
from public_planner.clipped.plans import ClippedPlan
from public_planner.clipped.request import ClippedPlanRequest
from public_planner.second_order import CertifyPlanRequest, EscapePlan, GaussPlanRequest


def _kind(given: object) -> str:
    """Return a request's kind: clipped_sgd, the default, where none is named.

    An unknown one is that branch's to refuse, at its field.
    """
    named = given.get("kind") if isinstance(given, dict) else getattr(given, "kind", None)
    return named if isinstance(named, str) and named in {"gauss_psgd", "certify"} else "clipped_sgd"


PlanRequest = Annotated[
    Annotated[ClippedPlanRequest, Tag("clipped_sgd")]
    | Annotated[GaussPlanRequest, Tag("gauss_psgd")]
    | Annotated[CertifyPlanRequest, Tag("certify")],
    Discriminator(_kind),
]
AnyPlan = ClippedPlan | EscapePlan
REQUEST: TypeAdapter[PlanRequest] = TypeAdapter(PlanRequest)
"""Reads a request of any kind."""


def plan(request: PlanRequest) -> AnyPlan:
    """Return the plan with the least bound, or the smallest alpha; no record is read, nothing reserved, whoever asks.

    Raises:
        Invalid: no plan can be made of these figures.
        AdjacencyMismatch: no price is known of such batches under this relation.
        NotOfferedYet: no theorem is about the wanted output.
    """
    return _remembered(request.model_dump_json(exclude_unset=True))


@lru_cache(maxsize=256)
def _remembered(text: str) -> AnyPlan:
    """Plan once for the same request: it follows from nothing else."""
    request = REQUEST.validate_json(text)
    try:
        return make_plan(request) if isinstance(request, ClippedPlanRequest) else escape.plan(request)
    except (ValueError, ArithmeticError) as error:
        raise Invalid(
            "These figures lead to numbers that are too large or too small to compute with.",
            FieldError("/smoothness", "measure lengths and losses in units in which figures are near 1"),
        ) from error
