"""Released models: coefficients, intervals, tests, predictions, exports. Reading them costs no budget."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import PlainTextResponse

from api.body import StrictRoute
from api.deps import Caller, Db
from api.errors import problems
from api.schemas import ContrastRequest, Paragraph, Predictions, PredictRows, WaldRequest
from core.errors import Conflict, FieldError, Forbidden, Invalid, ModelRetired, NotFound, Unauthenticated
from core.service import models as service
from core.service.views import ModelView

router = APIRouter(
    prefix="/v1/models",
    tags=["models"],
    route_class=StrictRoute,
    responses=problems(Unauthenticated, NotFound, ModelRetired),
)
ModelId = Annotated[str, Path(max_length=60)]
Level = Annotated[float | None, Query(gt=0.5, lt=1, description="of the intervals; default: the job's own")]


@router.get("/{model_id}")
def get_model(model_id: ModelId, caller: Caller, db: Db) -> ModelView:
    """Show a model as it was released."""
    return service.get(db, caller, model_id)


@router.get(
    "/{model_id}/summary",
    response_model=dict[str, Any],
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_summary(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    level: Level = None,
    kind: Annotated[Literal["json", "text"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON, or a plain text answer
    """Show the coefficient table, in the units of the declared columns; `format=text` prints it."""
    if kind == "text":
        return PlainTextResponse(service.summary_text(db, caller, model_id, level))
    return service.summary(db, caller, model_id, level)


@router.get("/{model_id}/intervals", responses=problems(Invalid))
def get_intervals(model_id: ModelId, caller: Caller, db: Db, level: Level = None) -> dict[str, Any]:
    """Show each coefficient's interval at a level of one's choice."""
    return service.intervals(db, caller, model_id, level)


@router.get("/{model_id}/odds-ratios", responses=problems(Invalid))
def get_odds_ratios(model_id: ModelId, caller: Caller, db: Db, level: Level = None) -> dict[str, Any]:
    """Show odds ratios of a logistic model, with their intervals."""
    return service.odds_ratios(db, caller, model_id, level)


@router.post("/{model_id}/contrasts", responses=problems(Invalid))
def compute_contrast(model_id: ModelId, body: ContrastRequest, caller: Caller, db: Db) -> dict[str, Any]:
    """Compute a linear combination of coefficients with its interval."""
    return service.contrast(db, caller, model_id, body.weights, body.level)


@router.post("/{model_id}/tests", responses=problems(Invalid))
def compute_test(model_id: ModelId, body: WaldRequest, caller: Caller, db: Db) -> dict[str, Any]:
    """Test jointly that coefficients, or combinations of them, equal given values (Wald)."""
    if (body.coefficients is None) == (body.hypotheses is None):
        raise Invalid(
            "Give exactly one of coefficients and hypotheses.",
            FieldError("/coefficients", "name coefficients to test against 0, or give hypotheses instead"),
        )
    hypotheses = body.hypotheses or [{name: 1.0} for name in body.coefficients or ()]
    return service.wald_test(db, caller, model_id, hypotheses, body.values)


@router.get("/{model_id}/methods")
def get_methods(model_id: ModelId, caller: Caller, db: Db) -> Paragraph:
    """Show a paragraph to paste into the methods section of a paper."""
    return Paragraph(text=service.methods(db, caller, model_id))


@router.post("/{model_id}/predict", responses=problems(Invalid))
def predict(model_id: ModelId, body: PredictRows, caller: Caller, db: Db) -> Predictions:
    """Predict rows given in the units of the declared columns."""
    return Predictions.model_validate({"predictions": service.predict(db, caller, model_id, body.rows)})


@router.get(
    "/{model_id}/export",
    response_model=dict[str, Any],
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def export_model(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    kind: Annotated[Literal["json", "safetensors"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON, or the bytes of a safetensors file
    """Download a model: JSON with everything, or safetensors with coefficients and covariance."""
    name = f'attachment; filename="{model_id}.{kind}"'
    if kind == "json":
        return service.export_json(db, caller, model_id)
    content = service.export_safetensors(db, caller, model_id)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": name})


@router.post("/{model_id}/approve", responses=problems(Forbidden, Conflict))
def approve_model(model_id: ModelId, caller: Caller, db: Db) -> ModelView:
    """Let a release be seen, where its scope asks for the owner's approval."""
    return service.judge(db, caller, model_id, "approved")


@router.post("/{model_id}/reject", responses=problems(Forbidden, Conflict))
def reject_model(model_id: ModelId, caller: Caller, db: Db) -> ModelView:
    """Keep a release from being seen; what it cost stays spent."""
    return service.judge(db, caller, model_id, "rejected")
