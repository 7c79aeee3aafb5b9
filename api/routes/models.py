"""Released models: coefficients, intervals, tests, predictions, exports. Reading them costs no budget."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import Field

from api.body import StrictRoute
from api.cost import ANYBODY, CHANGE, HEAVY_READ, MANY_VALUES, POST, QUESTION, READ, Cost, Work, costs
from api.deps import After, Caller, Db, LabelFilter, Limit, capped, page, pair_of
from api.errors import problems
from api.pages.standalone import summary_page
from api.pages.typesetting import MEDIA_TYPE, pdf_answer
from api.routes import predicting
from api.schemas import ContrastRequest, MaybeReason, PredictRows, RegionRequest, WaldRequest, WithReason
from core.base.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Invalid,
    ModelRetired,
    ModelRetracted,
    NotFound,
    TooLarge,
    Unauthenticated,
)
from core.db.model_reads import ApprovalState, ModelFilter
from core.inference.description_figures import About
from core.inference.regions import Joint
from core.service import models as service
from core.service import readings, trained
from farthing.schemas.descriptions import DescriptionView
from farthing.schemas.models import CovarianceView, ModelView, Paragraph, Predictions, TrainedModel
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/models",
    tags=["models"],
    route_class=StrictRoute,
    responses=problems(Unauthenticated, NotFound, ModelRetired, ModelRetracted),
)
ModelId = Annotated[str, Path(max_length=60)]
Level = Annotated[float | None, Query(gt=0.5, lt=1, description="of the intervals; default: the job's own")]
Levels = Annotated[
    list[Annotated[float, Field(gt=0.5, lt=1)]],
    Query(
        alias="level",
        default_factory=list,
        max_length=10,
        description="of the intervals, several if repeated; default: the job's own",
    ),
]
TEXT = {"text/plain": {"schema": {"type": "string"}}}
PAGE = {"text/html": {"schema": {"type": "string"}}}
PDF = {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get("")
@costs(READ)
def list_models(
    caller: Caller,
    db: Db,
    *,
    dataset: Annotated[str | None, Query(max_length=60, description="a dataset that the job read")] = None,
    job: Annotated[str | None, Query(max_length=60, description="the job that released the model")] = None,
    optimizer: Annotated[str | None, Query(max_length=60, description="the kind of the method")] = None,
    label: LabelFilter = None,
    approval: Annotated[
        ApprovalState | None, Query(description="retired and retracted models are listed by this filter alone")
    ] = None,
    after: After = None,
    limit: Limit = 20,
) -> Page[TrainedModel]:
    """List trained models, newest first, without their figures.

    A release that waits for approval is in the list of the owners who judge it, and of nobody else. The versions of a
    named model are the models with the same label, such as `label=name:readmission`.
    """
    wanted = ModelFilter(dataset=dataset, job=job, optimizer=optimizer, label=pair_of(label), approval=approval)
    return page(trained.page(db, caller, wanted, after, capped(limit) + 1), capped(limit))


@router.get("/{model_id}")
@costs(READ)
def get_model(model_id: ModelId, caller: Caller, db: Db) -> ModelView:
    """Show a model as it was released."""
    return service.get(db, caller, model_id)


@router.get(
    "/{model_id}/summary",
    response_model=dict[str, Any],
    responses={200: {"content": TEXT | PAGE | PDF}},
)
@costs(HEAVY_READ)
def get_summary(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    request: Request,
    levels: Levels,
    kind: Annotated[Literal["json", "text", "html", "pdf"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON, plain text, HTML or PDF
    """Show the coefficient table, in the units of the declared columns.

    `format=text` prints it as statistics packages do, `format=html` is a page with a plot that needs nothing else, and
    `format=pdf` has the tables of the text.
    """
    if kind == "json":
        return readings.summary(db, caller, model_id, levels)
    if kind == "text":
        return PlainTextResponse(readings.summary_text(db, caller, model_id, levels))
    whole = readings.whole(db, caller, model_id, levels)
    if kind == "html":
        return HTMLResponse(summary_page(whole))
    return pdf_answer(whole.document, request.url.netloc, f"{model_id}.pdf")


@router.get(
    "/{model_id}/description",
    response_model=DescriptionView,
    responses={200: {"content": TEXT}, **problems(Invalid)},
)
@costs(HEAVY_READ)
def get_description(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    level: Level = None,
    about: Annotated[
        About, Query(description="population: intervals count sampling and noise; records: noise alone")
    ] = "population",
    kind: Annotated[Literal["json", "text"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON or plain text
    """Show what a job that describes columns released: each figure with its interval, in the columns' own units."""
    if kind == "text":
        return PlainTextResponse(readings.description_text(db, caller, model_id, level, about))
    return readings.description(db, caller, model_id, level, about)


@router.get("/{model_id}/intervals", responses=problems(Invalid))
@costs(HEAVY_READ)
def get_intervals(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    levels: Levels,
    method: Annotated[
        Joint, Query(description="bonferroni, sidak and scheffe intervals hold all at once, pointwise ones one by one")
    ] = "pointwise",
    coefficient: Annotated[
        list[str] | None, Query(max_length=500, description="those to compare; default: all")
    ] = None,
) -> dict[str, Any]:
    """Show each coefficient's interval at levels of one's choice."""
    return readings.intervals(db, caller, model_id, levels, method, coefficient)


@router.get("/{model_id}/covariance", responses=problems(Invalid))
@costs(HEAVY_READ)
def get_covariance(model_id: ModelId, caller: Caller, db: Db) -> CovarianceView:
    """Show the covariance of the coefficients, in declared units: sampling and privacy noise together."""
    return CovarianceView.model_validate(readings.covariance(db, caller, model_id))


@router.get("/{model_id}/odds-ratios", responses=problems(Invalid))
@costs(HEAVY_READ)
def get_odds_ratios(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    levels: Levels,
) -> dict[str, Any]:
    """Show odds ratios of a logistic model, or of a multinomial one against its baseline, with their intervals."""
    return readings.ratios(db, caller, model_id, levels, "odds_ratio")


@router.get("/{model_id}/rate-ratios", responses=problems(Invalid))
@costs(HEAVY_READ)
def get_rate_ratios(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    levels: Levels,
) -> dict[str, Any]:
    """Show rate ratios of a Poisson model, with their intervals."""
    return readings.ratios(db, caller, model_id, levels, "rate_ratio")


@router.post("/{model_id}/contrasts", responses=problems(Invalid))
@costs(QUESTION)
def compute_contrast(model_id: ModelId, body: ContrastRequest, caller: Caller, db: Db) -> dict[str, Any]:
    """Compute a linear combination of coefficients with its interval, and test it: two-sided, one-sided, for size."""
    return readings.contrast(
        db,
        caller,
        model_id,
        body.weights,
        [] if body.level is None else [body.level],
        value=body.value,
        alternative=body.alternative,
        margin=body.margin,
        scheffe=body.method == "scheffe",
    )


@router.post("/{model_id}/tests", responses=problems(Invalid))
@costs(QUESTION)
def compute_test(model_id: ModelId, body: WaldRequest, caller: Caller, db: Db) -> dict[str, Any]:
    """Test jointly that coefficients, or combinations of them, equal given values (Wald)."""
    if (body.coefficients is None) == (body.hypotheses is None):
        raise Invalid(
            "Give exactly one of coefficients and hypotheses.",
            FieldError("/coefficients", "name coefficients to test against 0, or give hypotheses instead"),
        )
    restrictions = body.hypotheses or [{name: 1.0} for name in body.coefficients or ()]
    return readings.wald_test(db, caller, model_id, restrictions, body.values)


@router.post("/{model_id}/regions", responses=problems(Invalid))
@costs(QUESTION)
def compute_region(model_id: ModelId, body: RegionRequest, caller: Caller, db: Db) -> dict[str, Any]:
    """Compute the ellipsoid that holds some coefficients together, with an outline where they are two."""
    return readings.ellipsoid(db, caller, model_id, body.coefficients, body.levels, body.point)


@router.get(
    "/{model_id}/compare/{other_id}",
    response_model=dict[str, Any],
    responses={200: {"content": TEXT}, **problems(Invalid)},
)
@costs(HEAVY_READ)
def compare_models(
    model_id: ModelId,
    other_id: ModelId,
    caller: Caller,
    db: Db,
    level: Level = None,
    kind: Annotated[Literal["json", "text"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON, or a plain text answer
    """Show two models of one target side by side: estimates, bounds on their differences, widths, and costs."""
    if kind == "text":
        return PlainTextResponse(readings.compare_text(db, caller, model_id, other_id, level))
    return readings.compare(db, caller, model_id, other_id, level)


@router.get("/{model_id}/methods")
@costs(READ)
def get_methods(model_id: ModelId, caller: Caller, db: Db) -> Paragraph:
    """Show a paragraph to paste into the methods section of a paper."""
    return Paragraph(text=readings.methods(db, caller, model_id))


@router.post(
    "/{model_id}/predict",
    responses={200: {"content": predicting.ANSWERS}, **problems(Invalid, TooLarge)},
    openapi_extra=predicting.BODIES,
)
@costs(Cost(ANYBODY, Work.HEAVY, body_bytes=None, values=MANY_VALUES, cells=MANY_VALUES))
def predict(model_id: ModelId, body: PredictRows, caller: Caller, db: Db) -> Predictions:
    """Predict rows given in the units of the declared columns; with a level, say how well each mean is known.

    Where the method checks itself, predictions go towards the base rate as far as noise hides the coefficients, and
    each row has the flags that concern it. Its interval is that of the coefficients as they are.

    A file of CSV, Arrow (a stream) or Parquet is answered with its rows and the predictions beside them, in the format
    that `Accept` names.
    """
    found = readings.predict(db, caller, model_id, body.rows, body.level)
    told = {"mock": service.is_mock(model_id), "flags": found.flags, "predictions": found.rows}
    return Predictions.model_validate(told)


@router.get(
    "/{model_id}/export",
    response_model=dict[str, Any],
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(Invalid),
    },
)
@costs(HEAVY_READ)
def export_model(
    model_id: ModelId,
    caller: Caller,
    db: Db,
    kind: Annotated[Literal["json", "safetensors", "onnx"], Query(alias="format")] = "json",
) -> Any:  # noqa: ANN401 - JSON, or the bytes of a file
    """Download a model: JSON with everything, safetensors with its numbers, or a network as ONNX."""
    name = f'attachment; filename="{model_id}.{kind}"'
    if kind == "json":
        return service.export_json(db, caller, model_id)
    export = service.export_onnx if kind == "onnx" else service.export_safetensors
    content = export(db, caller, model_id)
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": name})


@router.post("/{model_id}/approve", responses=problems(Forbidden, Conflict))
@costs(POST)
def approve_model(model_id: ModelId, caller: Caller, db: Db, body: MaybeReason | None = None) -> ModelView:
    """Let a release be seen, where its scope asks for the owner's approval; a reason stays in the ledger."""
    reason = None if body is None else body.reason
    return service.judge(db, caller, model_id, "approved", reason or "")


@router.post("/{model_id}/reject", responses=problems(Forbidden, Conflict))
@costs(POST)
def reject_model(model_id: ModelId, body: WithReason, caller: Caller, db: Db) -> ModelView:
    """Withdraw a release: nobody sees it any more; its cost stays spent. The reason stays in the ledger."""
    return service.judge(db, caller, model_id, "rejected", body.reason)


@router.delete("/{model_id}", responses=problems(Forbidden, Conflict))
@costs(CHANGE)
def retract_model(model_id: ModelId, caller: Caller, db: Db) -> TrainedModel:
    """Take a model back, as the submitter of its job or an owner of the data: its figures are deleted for good.

    Ledger, job, report and charge stay, and so does what was downloaded or certified before.
    """
    return trained.retract(db, caller, model_id)
