"""Predictions of a released model: of one row by a form, of many as CSV. They read no record and cost nothing."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import ValidationError

from api.deps import Caller, Db
from api.errors import status_of
from api.pages.models import as_file, head
from api.pages.rendering import render
from api.pages.routes import Form, FormFields, PageRoute, page, value_of
from api.routes import models as api
from api.routes.predicting import sent
from api.schemas import PredictRows
from core.base import spreadsheets
from core.base.errors import FieldError, Invalid, Refusal, TooLarge
from core.base.validation_errors import field_errors
from core.inference.hypotheses import escape
from core.service import predicting as files
from core.service import readings
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import level_words, number, statistic

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
TAB: Final = "Predictions"
FILE_BYTES: Final = 4_000_000
MOST_ERRORS: Final = 10


@dataclass(frozen=True)
class Asked:
    """A column of the form, with the value that it begins with."""

    name: str
    hint: str
    options: tuple[str, ...]
    kind: str
    value: str


@page(router, "/models/{model_id}/predictions", api=api.get_model)
def show_predictions(model_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Show the form of one row, and the place for a file."""
    return _show(request, caller, db, model_id, readings.inputs(db, caller, model_id), {})


@page(router, "/models/{model_id}/predict", api=api.predict, method="POST", form_bytes=FILE_BYTES)
def predict(model_id: ModelId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Show the prediction of one row, or send those of a file's rows as CSV."""
    inputs = readings.inputs(db, caller, model_id)
    table = value_of(form, "csv")
    try:
        if table:
            answer = files.predict(db, caller, model_id, [table.encode()], media="csv", kind="csv", level=inputs.level)
            return as_file(sent(answer, "csv"), f"{model_id}-predictions.csv")
        rows = [_row(form, inputs)]
        asked = PredictRows.model_validate({"rows": rows, "level": inputs.level})
        told = readings.predict(db, caller, model_id, asked.rows, asked.level)
    except ValidationError as error:
        fields = field_errors(error.errors(), {"rows": rows})
        return _show(request, caller, db, model_id, inputs, form, Invalid("The rows cannot be read.", *fields))
    except (Invalid, TooLarge) as refused:
        return _show(request, caller, db, model_id, inputs, form, refused)
    found = told.rows[0] | {"flags": [*told.flags, *told.rows[0].get("flags", ())]}
    return _show(request, caller, db, model_id, inputs, form, found=found)


def _show(
    request: Request,
    caller: Principal,
    context: Context,
    model_id: str,
    inputs: readings.Inputs,
    form: Form,
    refusal: Refusal | None = None,
    found: dict[str, Any] | None = None,
) -> Response:
    """Return the page with a prediction, or with what is wrong with the rows, and the form as it was."""
    if refusal is not None:
        request.state.code = refusal.code
    asked = [_asked(column, value_of(form, f"c{place}")) for place, column in enumerate(inputs.columns)]
    errors = {} if refusal is None else _errors(refusal, inputs)
    facts = head(context, caller, model_id, TAB) | {
        "asked": asked,
        "inputs": inputs,
        "csv": value_of(form, "csv"),
        "first_line": spreadsheets.lines([[column.name for column in inputs.columns]]),
        "found": None if found is None else _said(found, inputs),
        "flags": [] if found is None else found["flags"],
        "refused": None if refusal is None else _title(refusal),
        "errors": errors,
        "named": [(at, inputs.columns[int(at[1:])].name, text) for at, text in errors.items()],
        "in_file": [] if refusal is None else _in_file(refusal),
    }
    return render(
        request, "predictions.html", facts, at="models", status=200 if refusal is None else status_of(type(refusal))
    )


def _asked(column: Any, typed: str) -> Asked:  # noqa: ANN401 - of any type but arrays
    if column.type in {"category", "binary"}:
        return Asked(column.name, "", tuple(column.values), "choice", typed or column.values[0])
    if column.type == "date":
        first = column.centre or column.lower
        return Asked(column.name, f"{column.lower} to {column.upper}", (), "date", typed or str(first))
    middle = column.centre if column.centre is not None else (column.lower + column.upper) / 2
    hint = f"{number(column.lower)} to {number(column.upper)}; others are cut to it"
    first = f"{round(middle) if column.type == 'integer' else middle:.6g}"
    return Asked(column.name, hint, (), "number", typed or first)


def _row(form: Form, inputs: readings.Inputs) -> dict[str, str]:
    if inputs.array is not None:
        raise Invalid("Give the rows of this model by the API.", FieldError("/rows/0", "arrays have no form"))
    return {column.name: value_of(form, f"c{place}") for place, column in enumerate(inputs.columns)}


def _said(found: dict[str, Any], inputs: readings.Inputs) -> list[tuple[str, str, str]]:
    """Return each figure of a prediction with what it is, and its interval in words."""
    level = "" if inputs.level is None else level_words(inputs.level)
    if "probabilities" in found:
        intervals = found.get("intervals", {})
        return [
            (statistic(chance), f"probability of {inputs.target} = {name}", _between(intervals.get(name), level))
            for name, chance in found["probabilities"].items()
        ]
    name, value = next(iter(found.items()))
    what = {
        "probability": f"probability of {inputs.target} = {inputs.success}",
        "mean": f"mean of {inputs.target}",
        "value": f"mean of {inputs.target}",
    }[name]
    return [(statistic(value), what, _between(found.get("interval"), level))]


def _between(ends: list[float] | None, level: str) -> str:
    return "" if ends is None else f"{level} interval {statistic(ends[0])} to {statistic(ends[1])}"


def _title(refusal: Refusal) -> str:
    """Return what is wrong in short; the lines below it name the fields as the form does, and never as pointers."""
    points = any(one.pointer in refusal.detail for one in refusal.fields)
    return "There is no prediction yet." if points else refusal.detail


def _errors(refusal: Refusal, inputs: readings.Inputs) -> dict[str, str]:
    """Return what is wrong by field of the form of one row."""
    fields = {f"/rows/0/{escape(column.name)}": f"c{place}" for place, column in enumerate(inputs.columns)}
    return {fields[one.pointer]: one.detail for one in reversed(refusal.fields) if one.pointer in fields}


def _in_file(refusal: Refusal) -> list[str]:
    """Return the first mistakes in a file, each with its row and column."""
    lines = []
    for one in refusal.fields[:MOST_ERRORS]:
        _, what, place, *column = (*one.pointer.split("/", 3), "", "")[:4]
        if what != "rows":
            lines.append(f"The file: {one.detail}.")
            continue
        where = f"Row {int(place) + 1}"
        # RFC 6901: "~1" comes first, or "~01" would become a slash.
        name = column[0].replace("~1", "/").replace("~0", "~") if column else ""
        lines.append(f"{where}{f', column {name}' if name else ''}: {one.detail}.")
    return lines
