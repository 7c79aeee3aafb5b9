"""New job: a form, and beside it what the job would cost and how wide its intervals would be, as one types."""

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from pprint import pformat
from typing import Annotated, Any, Final
from uuid import uuid4

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import Caller, Db
from api.errors import status_of
from api.pages import charts, line_charts
from api.pages.datasets import waits_for_yes
from api.pages.rendering import as_page, fragment, render
from api.pages.routes import Form, FormFields, PageRoute, page, see_other, value_of
from api.routes import datasets as dataset_api
from api.routes import estimates as estimate_api
from api.routes import jobs as job_api
from api.routes import mock_jobs as mock_api
from core.base.errors import FieldError, Invalid, Refusal
from core.base.validation_errors import field_errors
from core.privacy.attacks import right_of_100
from core.service import curves, datasets, estimates, mock_intake
from core.service import jobs as service
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.estimates import EstimateSpec
from core.service.views import DatasetView
from farthing.schemas.figures import NO_BREAK, number

router = APIRouter(route_class=PageRoute)
MOST_DATASETS: Final = 100
KINDS: Final = (
    ("logistic", "Logistic: yes or no"),
    ("linear", "Linear: a number"),
    ("poisson", "Poisson: a count"),
    ("multinomial", "Multinomial: one of several"),
    ("description", "Description, no model"),
)
METHODS: Final = (
    ("", "The default"),
    ("noisy_newton", "Noisy Newton: no intervals"),
    ("noisy_newton unchecked", "Noisy Newton: unchecked intervals"),
    ("noisy_gd", "Noisy gradient descent: no intervals"),
    ("noisy_gd unchecked", "Noisy gradient descent: unchecked intervals"),
    ("clipped_sgd", "Clipped SGD: no intervals"),
)
FIELDS: Final = (
    ("/privacy", "amount"),
    ("/model/target", "target"),
    ("/model/features", "features"),
    ("/assume/deviations", "deviations"),
    ("/assume/base_rate", "base_rate"),
    ("/optimizer", "method"),
    ("/inference", "method"),
    ("/labels", "name"),
)
"""Where a refusal's pointer lies in the form, the first that fits."""
_FIGURES: Final = (("/privacy", "How much"), ("/assume/base_rate", "Share or mean count"))
_TYPED: Final = ("name", "kind", "target", "method", "by", "amount", "base_rate", "deviations")
_FIRST: Final = {"kind": "logistic", "by": "epsilon", "amount": "0.5"}


@dataclass(frozen=True)
class Trouble:
    """A mistake in a form, and the field that it is about."""

    text: str
    field: str


@page(router, "/jobs/new", api=dataset_api.list_datasets)
def show_new_job(
    request: Request, caller: Caller, db: Db, dataset: Annotated[str | None, Query(max_length=60)] = None
) -> Response:
    """Show the form."""
    return _form(request, caller, db, dataset, {})


def _form(
    request: Request,
    caller: Principal,
    context: Context,
    dataset_id: str | None,
    form: Form,
    refusal: Refusal | None = None,
    forecast: dict[str, Any] | None = None,
) -> Response:
    """Return the page of the form, with what was typed, what is wrong with it, and the forecast where one was made."""
    seen = [one for one in datasets.page(context, caller, None, MOST_DATASETS) if one.state == "ready"]
    if dataset_id is None and len(seen) == 1:
        dataset_id = seen[0].id
    dataset = datasets.get(context, caller, dataset_id) if dataset_id else None
    problems = [] if refusal is None else problems_of(refusal)
    facts: dict[str, Any] = {
        "datasets": seen,
        "dataset": dataset,
        "columns": [] if dataset is None else _columns(dataset),
        "kinds": KINDS,
        "methods": METHODS,
        "values": _values(form, dataset),
        # Reversed, so that a field keeps the first of its mistakes.
        "errors": {one.field: one.text for one in reversed(problems) if one.field},
        "problems": problems,
        # The form carries its idempotency key, so a second click queues no second job.
        "key": value_of(form, "key") or str(uuid4()),
        "forecast": forecast is not None,
        "reserving": None,
        "oob": False,
        "refused": None,
    }
    status = 200 if refusal is None else status_of(type(refusal))
    return render(request, "new_job.html", facts | (forecast or {}) | {"oob": False}, at="jobs", status=status)


def _columns(dataset: DatasetView) -> list[dict[str, str]]:
    """Return the columns with a few words on what each may hold."""
    shown = []
    for column in dataset.model_dump(mode="json")["columns"]:
        values = column.get("values")
        if values:
            said = ", ".join(map(str, values)) if len(values) <= 2 else f"{len(values)} values"  # noqa: PLR2004 - short ones
        elif column.get("lower") is not None:
            said = f"{_bound(column['lower'])} to {_bound(column['upper'])}"
        else:
            said = str(column["type"])
        shown.append({"name": column["name"], "words": said})
    return shown


def _bound(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _values(form: Form, dataset: DatasetView | None) -> dict[str, Any]:
    """Return the content of the fields: the typed text, else a question to begin with."""
    if form:
        return {name: value_of(form, name) for name in _TYPED} | {"features": form.get("features", [])}
    columns = [] if dataset is None else dataset.model_dump(mode="json")["columns"]
    two_valued = [one["name"] for one in columns if one["type"] == "binary"]
    target = two_valued[-1] if two_valued else ""
    features = [one["name"] for one in columns if one["type"] in {"number", "integer", "binary"}]
    chosen = [one for one in features if one != target]
    return dict.fromkeys(_TYPED, "") | _FIRST | {"target": target, "features": chosen}


def problems_of(refusal: Refusal) -> list[Trouble]:
    """Return what is wrong, each with the field of the form that its pointer means."""
    found = [Trouble(_about(one.pointer) + one.detail, _field(one.pointer)) for one in refusal.fields]
    if not found or not isinstance(refusal, Invalid):
        found.insert(0, Trouble(refusal.detail, ""))
    return found


def _about(pointer: str) -> str:
    """Return the words before what is wrong: a figure's, or the column of a line of deviations."""
    _, found, column = pointer.partition("/assume/deviations/")
    words = column if found else next((said for start, said in _FIGURES if pointer.startswith(start)), "")
    return f"{words}: " if words else ""


def _field(pointer: str) -> str:
    return next((field for start, field in FIELDS if pointer.startswith(start)), "")


def request_of(form: Form) -> dict[str, Any]:
    """Return the request that a form asks for, as one would POST it.

    Raises:
        Invalid: a figure is no number.
    """
    kind, target = value_of(form, "kind") or "logistic", value_of(form, "target")
    features = [one for one in form.get("features", []) if one != target or kind == "description"]
    asked: dict[str, Any] = {"dataset": value_of(form, "dataset"), "model": {"kind": kind}}
    if kind == "description":
        asked["optimizer"] = {"kind": "describe"}
    else:
        asked["model"] |= {"target": target, "features": features}
    if value_of(form, "method") and kind != "description":
        method, _, unchecked = value_of(form, "method").partition(" ")
        asked["optimizer"] = {"kind": method}
        # All methods of the form but the default, which is not named, check no intervals.
        asked["inference"] = {"accept_unchecked": True} if unchecked else {"intervals": False}
    asked["privacy"] = _privacy(value_of(form, "by"), value_of(form, "amount"))
    if assumed := _assumed(form):
        asked["assume"] = assumed
    if value_of(form, "name"):
        asked["labels"] = {"name": value_of(form, "name")}
    return asked


def _privacy(by: str, amount: str) -> dict[str, str]:
    value = _number(amount.removesuffix("%").strip(), "/privacy")
    by = by or "epsilon"
    return {by: format(value.scaleb(-2) if by == "budget_share" else value, "f")}


def _number(text: str, pointer: str) -> Decimal:
    try:
        value = Decimal(text.replace(",", ""))
    except InvalidOperation:
        # Decimal also reads "nan" and "inf"; one test below refuses them all.
        value = Decimal("NaN")
    if not value.is_finite():
        raise Invalid("A figure is no number.", FieldError(pointer, "Write a number, such as 0.5."))
    return value


def _assumed(form: Form) -> dict[str, Any]:
    """Return what an analyst takes to be so."""
    assumed: dict[str, Any] = {}
    if value_of(form, "base_rate"):
        assumed["base_rate"] = float(_number(value_of(form, "base_rate"), "/assume/base_rate"))
    lines = [line for line in value_of(form, "deviations").splitlines() if line.strip()]
    deviations = {}
    for line in lines:
        column, equals, value = line.rpartition("=")
        if not equals:
            raise Invalid("A line is no deviation.", FieldError("/assume/deviations", "Write one a line, as age = 10."))
        deviations[column.strip()] = float(_number(value.strip(), "/assume/deviations"))
    return assumed | ({"deviations": deviations} if deviations else {})


def spec_of(asked: dict[str, Any]) -> EstimateSpec:
    """Return a request as the planner takes it.

    Raises:
        Invalid: with the wrong fields.
    """
    try:
        return EstimateSpec.model_validate(asked)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise Invalid("The job is not valid.", *field_errors(found, asked)) from None


@page(router, "/jobs/new/estimate", api=estimate_api.estimate, method="POST")
def estimate(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Return the part of the page that says what the job would cost and give."""
    facts = _forecast(request, caller, db, form)
    return as_page(fragment(request, "forecast.html", facts | {"oob": True}))


@page(router, "/jobs/new/price", api=estimate_api.estimate, method="POST")
def price(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Return the whole page with the forecast, for browsers without scripts."""
    return _form(request, caller, db, value_of(form, "dataset"), form, forecast=_forecast(request, caller, db, form))


def _forecast(request: Request, caller: Principal, context: Context, form: Form) -> dict[str, Any]:
    """Return the job's cost and predictions, or the problem where it cannot be priced."""
    try:
        asked = request_of(form)
        view = estimates.estimate(context, caller, spec_of(asked))
        budget = datasets.budget(context, caller, asked["dataset"])
        points = [] if view.prediction is None else curves.get(context, caller, spec_of(asked).job()).points
    except Refusal as refusal:
        found = problems_of(refusal)
        title = "It has no price yet" if any(one.field for one in found) else refusal.detail
        return {"refused": {"title": title, "problems": found}, "reserving": None}
    assert view.cost is not None, "it is a job on one dataset"
    cost, held = Decimal(view.cost.budget_share), Decimal(view.cost.retry_allowance.budget_share)
    shares = charts.Standing(budget.budget_share.spent, budget.budget_share.reserved)
    paid = {name: format(one, "f") for name, one in (("price", cost), ("held", held))}
    epsilon, delta = float(view.cost.epsilon_alone), float(view.cost.delta)
    shown = json.dumps(asked, indent=1, ensure_ascii=False)
    return {
        "refused": None,
        "reserving": format(cost + held, "f"),
        "view": view,
        "approval": waits_for_yes(context, caller, datasets.get(context, caller, asked["dataset"])),
        "cost": paid,
        "shares": shares,
        "bar": charts.price_bar(shares, paid["price"], paid["held"]),
        "right": right_of_100(epsilon, delta, None if view.cost.mu is None else float(view.cost.mu)),
        "widths": [] if view.prediction is None else [charts.width_row(one) for one in view.prediction.coefficients],
        "level": "" if view.prediction is None else f"{100 * view.prediction.level:g}{NO_BREAK}%",
        "ticks": charts.WIDTH_TICKS,
        "points": points,
        "curve": line_charts.curve(points, budget.budget_share.remaining),
        "rules": (charts.width_place(1.0), charts.width_place(2.0)),
        "request_json": shown,
        "request_python": _python(asked, str(request.base_url)),
        "request_curl": _curl(str(request.base_url)),
    }


def _python(asked: dict[str, Any], address: str) -> str:
    job = pformat(asked, width=76, sort_dicts=False)
    return (
        f'from farthing import Client\n\njob = {job}\nwith Client("{address.rstrip("/")}", key="...") as client:\n'
        "    print(client.estimate(job))\n    model = client.train(job)\n    print(model.summary())"
    )


def _curl(address: str) -> str:
    return (
        f'curl {address}v1/jobs \\\n  --header "Authorization: Bearer $FARTHING_KEY" \\\n'
        '  --header "Idempotency-Key: $(uuidgen)" \\\n  --header "Content-Type: application/json" --data @job.json'
    )


@page(router, "/jobs/new", api=job_api.submit_job, method="POST")
async def submit(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Queue the job, and go to its page; where it is refused, show the form as it was with what is wrong."""
    try:
        spec = await to_thread.run_sync(lambda: spec_of(request_of(form)).job())
        key = value_of(form, "key") or str(uuid4())
        answer = await job_api.accept(request, caller, spec, key, service.ROUTE)
    except Refusal as refusal:
        request.state.code = refusal.code
        again = partial(_form, request, caller, db, value_of(form, "dataset"), form, refusal)
        return await to_thread.run_sync(again)
    return see_other(f"/jobs/{answer.body['id']}?sent={value_of(form, 'dataset')}")


@page(router, "/jobs/new/rehearse", api=mock_api.submit_mock_job, method="POST")
async def rehearse(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Queue the mock of the job, and go to its page; where it is refused, show the form as it was."""

    def queue() -> str:
        asked = mock_intake.MockSpec.model_validate(spec_of(request_of(form)).job().model_dump(exclude_unset=True))
        body, _ = mock_intake.submit(db, caller, asked, str(uuid4()))
        return str(body["id"])

    try:
        async with request.app.state.limits.planning(request):
            made = await to_thread.run_sync(queue)
    except Refusal as refusal:
        request.state.code = refusal.code
        again = partial(_form, request, caller, db, value_of(form, "dataset"), form, refusal)
        return await to_thread.run_sync(again)
    return see_other(f"/jobs/{made}")
