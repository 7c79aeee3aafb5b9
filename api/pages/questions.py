"""Questions about a released model: combinations of its coefficients, and joint tests; asking costs nothing."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ValidationError

from api.deps import Caller, Db
from api.errors import status_of
from api.pages.models import head
from api.pages.rendering import render
from api.pages.routes import Form, FormFields, PageRoute, page, value_of
from api.routes import models as api
from api.schemas import ContrastRequest, WaldRequest
from core.base.errors import FieldError, Invalid, Refusal
from core.base.validation_errors import field_errors
from core.inference.hypotheses import escape
from core.service import readings
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.figures import MINUS, interval_words, level_words, number, p_words, statistic

router = APIRouter(route_class=PageRoute)
ModelId = Annotated[str, Path(max_length=60)]
TAB: Final = "Contrasts and tests"
SIDES: Final = {"two_sided": "differs from", "greater": "is greater than", "less": "is less than"}
Asked = TypeVar("Asked", bound=BaseModel)
_LEAST_LEVEL: Final = 50
_ALL: Final = 100
_OPTIONS: Final = ("level", "value", "margin")


@page(router, "/models/{model_id}/questions", api=api.get_intervals)
def show_questions(model_id: ModelId, request: Request, caller: Caller, db: Db) -> Response:
    """Show the form of both questions."""
    return _show(request, caller, db, model_id, {})


@page(router, "/models/{model_id}/contrasts", api=api.compute_contrast, method="POST")
def compute_contrast(model_id: ModelId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Show a combination of coefficients with its interval and test."""

    def answer(names: list[str]) -> dict[str, Any]:
        asked = _read(ContrastRequest, _contrast(form, names))
        found = readings.contrast(
            db,
            caller,
            model_id,
            asked.weights,
            [] if asked.level is None else [asked.level],
            value=asked.value,
            alternative=asked.alternative,
            margin=asked.margin,
            scheffe=asked.method == "scheffe",
        )
        return {"contrast": found, "combined": _combined(asked.weights), "tested_words": SIDES[asked.alternative]}

    return _show(request, caller, db, model_id, form, answer)


@page(router, "/models/{model_id}/tests", api=api.compute_test, method="POST")
def compute_test(model_id: ModelId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Show a joint test that the ticked coefficients are 0."""

    def answer(names: list[str]) -> dict[str, Any]:
        ticked = [name for place, name in enumerate(names) if value_of(form, f"tick{place}")]
        if not ticked:
            raise Invalid("There is nothing to test.", FieldError("/coefficients", "tick the coefficients to test"))
        asked = _read(WaldRequest, {"coefficients": ticked})
        found = readings.wald_test(db, caller, model_id, [{name: 1.0} for name in asked.coefficients or ()], None)
        return {"test": found, "tested": ticked, "redundant": [ticked[place] for place in found["redundant"]]}

    return _show(request, caller, db, model_id, form, answer)


def _show(
    request: Request,
    caller: Principal,
    context: Context,
    model_id: str,
    form: Form,
    answer: Callable[[list[str]], dict[str, Any]] | None = None,
) -> Response:
    """Return the page with the answer, or with what is wrong with the question, and the form as it was."""
    facts = head(context, caller, model_id, TAB)
    lines = readings.summary(context, caller, model_id, ()).get("coefficients")
    if lines is None:
        raise Invalid("Contrasts and tests are of models with coefficients.")
    names = [line["name"] for line in lines]
    facts |= {
        "lines": lines,
        "values": {name: value_of(form, name) for name in form},
        "sides": SIDES.items(),
        "words": {"interval": interval_words, "p": p_words, "level": level_words, "statistic": statistic},
        "number": number,
        "contrast": None,
        "test": None,
        "refusal": None,
        "errors": {},
    }
    refusal: Refusal | None = None
    try:
        facts |= answer(names) if answer else {}
    except Invalid as refused:
        refusal = refused
        request.state.code = refused.code
        facts |= {"refusal": refused, "errors": _errors(refused, names)}
    return render(request, "questions.html", facts, at="models", status=200 if refusal is None else status_of(Invalid))


def _contrast(form: Form, names: list[str]) -> dict[str, Any]:
    """Return the request that a form stands for; empty fields are left out."""
    weights = {name: value_of(form, f"weight{place}") for place, name in enumerate(names)}
    if not any(weights.values()):
        raise Invalid("There is nothing to combine.", FieldError("/weights", "give a coefficient a weight"))
    asked: dict[str, Any] = {"weights": {name: _number(text) for name, text in weights.items() if text}}
    asked |= {name: _number(text) for name in _OPTIONS if (text := value_of(form, name))}
    if "level" in asked:
        level = asked["level"]
        if isinstance(level, str) or not _LEAST_LEVEL < level < _ALL:
            raise Invalid("There is no such interval.", FieldError("/level", "must be a number above 50 and below 100"))
        asked["level"] = level / 100
    if value_of(form, "alternative"):
        asked["alternative"] = value_of(form, "alternative")
    if value_of(form, "scheffe"):
        asked["method"] = "scheffe"
    return asked


def _number(text: str) -> float | str:
    """Return the typed number; other text stays as it is, and validation refuses it."""
    try:
        return float(text.replace(MINUS, "-").replace(",", ""))
    except ValueError:
        return text


def _read(kind: type[Asked], asked: dict[str, Any]) -> Asked:
    """Return a request of the API.

    Raises:
        Invalid: it is none, at the fields that are wrong.
    """
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        fields = field_errors(error.errors(), asked)
        raise Invalid("The question cannot be asked like this.", *fields) from None


def _errors(refusal: Refusal, names: list[str]) -> dict[str, str]:
    """Return what is wrong by field of the form; empty name: the question itself."""
    fields = {f"/weights/{escape(name)}": f"weight{place}" for place, name in enumerate(names)}
    fields |= {f"/{name}": name for name in _OPTIONS}
    return {fields.get(one.pointer, ""): one.detail for one in reversed(refusal.fields)}


def _combined(weights: dict[str, float]) -> str:
    """Return a combination as people write it."""
    parts = []
    for name, weight in weights.items():
        if weight:
            size = "" if abs(weight) == 1 else f"{number(f'{abs(weight):.10g}')} \N{MULTIPLICATION SIGN} "
            parts.append((MINUS if weight < 0 else "+") + f" {size}{name}")
    text = " ".join(parts)
    return text.removeprefix("+ ")
