"""The list of trained models with its filters, and the page on which one is taken back."""

from typing import Annotated, Final, Literal, get_args

from fastapi import APIRouter, Path, Query, Request, Response

from api.deps import After, Caller, Db
from api.pages import words
from api.pages.models import head
from api.pages.rendering import render
from api.pages.routes import PageRoute, page, see_other
from api.pages.sorting import Sort, sorting
from api.routes import models as api
from core.db.model_reads import GONE, ApprovalState, ModelFilter
from core.db.sorting import MODEL_COLUMNS
from core.methods.registry import source_of
from core.service import datasets, trained
from farthing.schemas.models import TrainedModel

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
A_PAGE: Final = 30
MOST_DATASETS: Final = 200
STATES: Final = {
    "": "every kept model",
    "pending": "waits for approval",
    "approved": "approved",
    "rejected": "rejected",
    "not-needed": "needs no approval",
    "retracted": "retracted",
    "retired": "kept no more",
}
"""States of approval, as the filter and the badges write them."""
_SENT: Final[dict[str, ApprovalState]] = {one: one for one in get_args(ApprovalState)}


@page(router, "/models", api=api.list_models)
def list_models(
    request: Request,
    caller: Caller,
    db: Db,
    *,
    name: Annotated[str, Query(max_length=256)] = "",
    dataset: Annotated[str, Query(max_length=60)] = "",
    approval: Annotated[Literal[""] | ApprovalState, Query()] = "",
    sort: Sort = "",
    after: After = None,
) -> Response:
    """Show trained models without their figures; of a name, dataset and approval where that is asked."""
    label = (trained.NAME, name.strip()) if name.strip() else None
    wanted = ModelFilter(dataset=dataset or None, label=label, approval=_SENT.get(approval))
    asked = {"name": name.strip(), "dataset": dataset, "approval": approval}
    given = {one: text for one, text in asked.items() if text}
    order = sorting("/models", given, sort, MODEL_COLUMNS)
    found = trained.page(db, caller, wanted, after, A_PAGE + 1, order.order)
    shown = found[:A_PAGE]
    facts = {
        "models": shown,
        "asked": asked,
        "filtered": bool(given),
        "states": STATES,
        "datasets": [(one.id, one.name) for one in datasets.page(db, caller, None, MOST_DATASETS)],
        "kind_words": words.KINDS,
        "method_words": {one.method: source_of(one.method).title for one in shown},
        "opens": opens,
        "sorting": order,
        "first": order.after() if after else None,
        "following": order.after(shown[-1].id) if len(found) > A_PAGE else None,
    }
    return render(request, "models.html", facts, at="models")


def opens(model: TrainedModel) -> bool:
    """Tell whether a model has a page: its figures are there, and the caller may read them."""
    return model.approval not in GONE


@page(router, "/models/{model_id}/retract", api=api.get_model)
def ask_retract(model_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Say what goes and what stays before a model is taken back."""
    return render(request, "retract.html", head(db, caller, model_id, "Retraction"), at="models")


@page(router, "/models/{model_id}/retract", api=api.retract_model, method="POST")
def retract(model_id: ModelId, caller: Caller, db: Db) -> Response:
    """Take a model back."""
    trained.retract(db, caller, model_id)
    return see_other("/models?approval=retracted")
