"""Plans before there is a dataset: arithmetic on public figures, remembered for a while."""

from functools import lru_cache

from core.catalogue.clipped.planner import plan as make_plan
from core.catalogue.clipped.plans import ClippedPlan
from core.catalogue.clipped.request import ClippedPlanRequest
from core.errors import FieldError, Invalid


def plan(request: ClippedPlanRequest) -> ClippedPlan:
    """Return the plan with the least bound; no record is read and nothing is reserved, whoever asks.

    Raises:
        Invalid: no plan can be made of these figures.
        AdjacencyMismatch: no price is known of such batches under this relation.
        NotOfferedYet: no theorem is about the wanted output.
    """
    return _remembered(request.model_dump_json(exclude_unset=True))


@lru_cache(maxsize=256)
def _remembered(text: str) -> ClippedPlan:
    """Plan once for the same request: it follows from nothing else."""
    try:
        return make_plan(ClippedPlanRequest.model_validate_json(text))
    except (ValueError, ArithmeticError) as error:
        raise Invalid(
            "These figures lead to numbers that are too large or too small to compute with.",
            FieldError("/smoothness", "measure lengths and losses in units in which figures are near 1"),
        ) from error
