"""The page on which an owner removes one record of a dataset."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from api.deps import Caller, Db
from api.errors import status_of
from api.pages.rendering import render
from api.pages.routes import FormFields, PageRoute, page, value_of
from api.routes import datasets as dataset_api
from api.routes import removals as api
from core.base.errors import Invalid
from core.service import datasets, removals

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
_PATH = "/datasets/{dataset_id}/remove-record"


@page(router, _PATH, api=dataset_api.get_dataset)
def ask_removal(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Ask for the row of a record."""
    facts = {"dataset": datasets.get(db, caller, dataset_id), "error": "", "done": None}
    return render(request, "remove_record.html", facts, at="datasets")


@page(router, _PATH, api=api.remove_record, method="POST")
def remove_record(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Remove the record, and say whether the earlier file is gone."""
    facts: dict[str, Any] = {"dataset": datasets.get(db, caller, dataset_id), "error": "", "done": None}
    text, most = value_of(form, "row"), facts["dataset"].rows or 0
    # `int` takes other digits and signs as well, and any length.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        request.state.code = Invalid.code
        facts["error"] = f"Write a whole number from 1 to {most}."
        return render(request, "remove_record.html", facts, at="datasets", status=status_of(Invalid))
    facts["done"] = removals.remove(db, caller, dataset_id, int(text))
    return render(request, "remove_record.html", facts, at="datasets")
