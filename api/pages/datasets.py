"""A dataset's pages: declaration, budget, validation, mock rows, freezing and erasing."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from api.deps import After, Caller, Db
from api.errors import status_of
from api.pages import charts, line_charts
from api.pages.rendering import render
from api.pages.routes import Form, FormFields, PageRoute, page, see_other, value_of
from api.routes import datasets as api
from api.routes import scopes as scope_api
from core.base.errors import Conflict, Invalid
from core.methods.registry import source_of
from core.privacy.attacks import attack
from core.service import activity, datasets, history, jobs, naming, offers, overview, scopes
from core.service.context import Caller as Principal
from core.service.context import Context
from core.service.views import DatasetView
from farthing.schemas.budgets import BudgetView, CapView
from farthing.schemas.datasets import ValidationView
from farthing.schemas.drafts import CellCounts
from farthing.schemas.figures import number, per_cent
from farthing.schemas.offers import OfferView

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
SHOWN_VALUES: Final = 6
MOST_JOBS: Final = 30
A_PAGE: Final = 50
MOCK_ROWS: Final = 10
MOCK_FILE_ROWS: Final = 1000
LOUD: Final = Decimal("0.05")


@dataclass(frozen=True)
class Declared:
    """A column as the table of the declaration writes it."""

    name: str
    kind: str
    lowest: str
    highest: str
    values: str
    other: str


@page(router, "/datasets/{dataset_id}", api=api.get_dataset)
def show_dataset(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show what is declared, and the budget in short."""
    facts = head(db, caller, dataset_id, None)
    dataset: DatasetView = facts["dataset"]
    columns = [_declared(one) for one in dataset.model_dump(mode="json")["columns"]]
    facts |= {"columns": columns, "draft": None, "approval": waits_for_yes(db, caller, dataset)}
    return render(request, "dataset.html", facts, at="datasets")


def waits_for_yes(context: Context, caller: Principal, dataset: DatasetView) -> bool:
    """Say whether a release from a dataset waits for its owner's approval."""
    return dataset.scope is not None and scopes.get(context, caller, dataset.scope).approval


def head(context: Context, caller: Principal, dataset_id: str, tab: str | None) -> dict[str, Any]:
    """Return what stands at the top of each page of a dataset."""
    dataset = datasets.get(context, caller, dataset_id)
    budget = datasets.budget(context, caller, dataset_id) if dataset.scope else None
    is_owner = dataset.owner == caller.id
    base = f"/datasets/{dataset.id}"
    return {
        "dataset": dataset,
        "budget": budget,
        "shares": budget and _shares(budget),
        "tab": tab,
        "tabs": (
            ("Declaration", base, True),
            ("Draft", f"{base}/draft", dataset.state == "draft"),
            ("Budget", f"{base}/budget", budget is not None),
            ("Access", f"{base}/access", dataset.state != "draft"),
            ("Validation", f"{base}/validation", is_owner and dataset.state == "ready"),
            ("Mock rows", f"{base}/mock", True),
            ("Jobs", f"/jobs?dataset={dataset.id}", dataset.state != "draft"),
            ("Ledger", f"{base}/ledger", budget is not None),
            ("Activity", f"{base}/activity", is_owner or caller.role in {"auditor", "admin"}),
        ),
        "is_owner": is_owner,
        "may_ask": caller.role in {"owner", "analyst", "admin"},
        "names": naming.names(context, caller, [dataset.owner]),
        "cap_words": cap_words,
    }


def _shares(budget: BudgetView) -> overview.BudgetShares:
    found = budget.budget_share
    return overview.BudgetShares(found.spent, found.reserved, found.remaining)


def _declared(column: dict[str, Any]) -> Declared:
    values = [str(one) for one in column.get("values") or []]
    more = len(values) - SHOWN_VALUES
    shown = ", ".join(values[:SHOWN_VALUES]) + (f" and {more} more" if more > 0 else "")
    kind = str(column["type"])
    if column.get("shape"):
        kind = f"array of {' by '.join(map(str, column['shape']))}"
    return Declared(
        column["name"], kind, _bound(column.get("lower")), _bound(column.get("upper")), shown, column.get("other") or ""
    )


def _bound(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value or "")


def cap_words(cap: CapView) -> str:
    """Return a cap in words."""
    declared = cap.budget_cap
    if isinstance(declared, str):
        return "all of it"
    if "budget_share" in declared:
        return f"{per_cent(declared['budget_share'])} of it"
    return " ".join(f"{name} {value}" for name, value in declared.items() if name in {"epsilon", "rho"})


@page(router, "/datasets/{dataset_id}/budget", api=api.get_budget)
def show_budget(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show what is left, what it means, and where it went."""
    facts = head(db, caller, dataset_id, "Budget")
    if facts["budget"] is None:
        raise Conflict("This dataset has no budget before it has records and is sealed.")
    budget: BudgetView = facts["budget"]
    seen = history.latest(db, caller, budget.scope, MOST_JOBS)
    ids = [one.job for one in seen.points]
    free, reserved = budget.budget_share.remaining, budget.budget_share.reserved
    epsilon, delta = float(budget.epsilon.total), float(budget.delta)
    methods = {one.method: source_of(one.method).title for one in seen.points if one.method}
    facts |= {
        "history": seen,
        "burn": line_charts.burndown(seen.points, seen.before, free, reserved, facts["dataset"].created_at),
        "names": facts["names"] | naming.names(db, caller, [*ids, *seen.by_principal]),
        "mine": jobs.visible(db, caller, ids),
        "methods": methods | {one: source_of(one).title for one in seen.by_method},
        "offers": _offers(db, caller, dataset_id),
        "attack": attack(epsilon, delta),
        "roc": charts.roc(epsilon, delta),
    }
    return render(request, "budget.html", facts, at="datasets")


def _offers(context: Context, caller: Principal, dataset_id: str) -> list[OfferView]:
    """Return typical jobs with how many fit; none while no job can read the dataset."""
    try:
        return offers.get(context, caller, dataset_id).offers
    except Conflict:
        return []


@page(router, "/datasets/{dataset_id}/activity", api=api.list_activity)
def show_activity(dataset_id: DatasetId, request: Request, caller: Caller, db: Db, after: After = None) -> Response:
    """Show the owner everything that was done with a dataset."""
    facts = head(db, caller, dataset_id, "Activity")
    found = activity.page(db, caller, dataset_id, after, A_PAGE + 1)
    lines = found[:A_PAGE]
    facts["lines"] = lines
    facts["older"] = f"/datasets/{dataset_id}/activity?after={lines[-1].id}" if len(found) > A_PAGE else None
    facts["names"] |= naming.names(db, caller, [one.job for one in lines])
    return render(request, "activity.html", facts, at="datasets")


@page(router, "/datasets/{dataset_id}/validation", api=api.get_validation)
def show_validation(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show the owner how cells were read."""
    report = datasets.validation(db, caller, dataset_id)
    facts = head(db, caller, dataset_id, "Validation") | {"report": report, "loud": _loud(report)}
    facts["read"] = [read_cells(one) for one in report.columns]
    return render(request, "validation.html", facts, at="datasets")


@dataclass(frozen=True)
class ReadCells:
    """The cells of a column as they were read, each cell in one count."""

    name: str
    counts: tuple[int, ...]
    """Below the lowest, above the highest, unknown, unreadable, empty."""
    words: str


def read_cells(one: CellCounts) -> ReadCells:
    """Return a column's counts for the table; the API's `missing` holds the unreadable cells too, `empty` does not."""
    empty = one.missing - one.unreadable
    counts = (one.clamped_low, one.clamped_high, one.unknown, one.unreadable, empty)
    return ReadCells(one.name, counts, _cell_words(one))


def _cell_words(one: CellCounts) -> str:
    """Return what became of the cells of a column that were not read as they are."""
    left_out = one.missing - one.filled
    said = (
        (one.clamped_low + one.clamped_high, "moved to the bound"),
        (one.rounded, "rounded to a whole number"),
        (one.unknown, "taken as the value declared for unknown ones"),
        (one.filled, "filled with the declared value"),
        (left_out, "without a value: their rows are left out of models that use the column"),
    )
    found = [f"{number(count)} {words}" for count, words in said if count]
    return "; ".join(found) if found else "all as declared"


def _loud(report: ValidationView) -> dict[str, str] | None:
    """Return what the warning says where more than a twentieth of the rows is left out."""
    if not report.rows or Decimal(report.incomplete_rows) / report.rows <= LOUD:
        return None
    worst = max(report.columns, key=lambda one: one.missing - one.filled)
    return {"part": per_cent(f"{report.incomplete_rows / report.rows:.4f}"), "column": worst.name}


@page(router, "/datasets/{dataset_id}/mock", api=api.get_mock)
def show_mock(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show rows that were made from the declaration alone."""
    facts = head(db, caller, dataset_id, "Mock rows")
    rows = datasets.mock(db, caller, dataset_id, MOCK_ROWS)
    heads = list(rows[0]) if rows else []
    facts |= {
        "heads": heads,
        "numeric": [isinstance(rows[0][head], int | float) for head in heads],
        "rows": [[_bound(row[head]) if not isinstance(row[head], list) else "…" for head in heads] for row in rows],
    }
    return render(request, "mock_rows.html", facts, at="datasets")


@page(router, "/datasets/{dataset_id}/mock.csv", api=api.get_mock)
def download_mock(dataset_id: DatasetId, caller: Caller, db: Db) -> Response:
    """Send mock rows as a file."""
    rows = datasets.mock(db, caller, dataset_id, MOCK_FILE_ROWS)
    headers = {"Content-Disposition": f'attachment; filename="mock-{dataset_id}.csv"'}
    return Response("".join(_csv(rows)), media_type="text/csv", headers=headers)


def _csv(rows: list[dict[str, Any]]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows[0] if rows else [])
    writer.writerows(row.values() for row in rows)
    yield text.getvalue()


@page(router, "/datasets/{dataset_id}/freeze", api=scope_api.freeze_scope, method="POST")
def freeze(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Freeze the budget of a dataset."""
    scope = _scope_of(db, caller, dataset_id, request)
    scopes.freeze(db, caller, scope, _reason(form))
    return see_other(f"/datasets/{dataset_id}")


@page(router, "/datasets/{dataset_id}/unfreeze", api=scope_api.unfreeze_scope, method="POST")
def unfreeze(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Let a frozen budget admit jobs again."""
    scope = _scope_of(db, caller, dataset_id, request)
    scopes.unfreeze(db, caller, scope, _reason(form))
    return see_other(f"/datasets/{dataset_id}")


def _scope_of(context: Context, caller: Principal, dataset_id: str, request: Request) -> str:
    scope = datasets.get(context, caller, dataset_id).scope
    if scope is None:
        raise Conflict("This dataset has no budget before it has records and is sealed.")
    # The operation's path has the scope, and the page's path only the dataset.
    request.state.target = f"{request.state.deed.route.removeprefix('/v1/').format(scope_id=scope)}"
    return scope


def _reason(form: Form) -> str:
    reason = value_of(form, "reason")
    if not 3 <= len(reason) <= 500:  # noqa: PLR2004 - the API's own limits
        raise Invalid("Write a reason of 3 to 500 letters.")
    return reason


@page(router, "/datasets/{dataset_id}/erase", api=api.get_dataset)
def ask_erase(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Ask for the dataset's name before its records are erased."""
    dataset = datasets.get(db, caller, dataset_id)
    return render(request, "erase.html", {"dataset": dataset, "error": ""}, at="datasets")


@page(router, "/datasets/{dataset_id}/erase", api=api.erase_dataset, method="POST")
def erase(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Erase the records, once the dataset's name was written."""
    dataset = datasets.get(db, caller, dataset_id)
    # `value_of` strips what was typed, so the name is compared without spaces, too.
    if value_of(form, "name") != dataset.name.strip():
        request.state.code = Invalid.code
        facts = {"dataset": dataset, "error": "This is not the name of the dataset."}
        return render(request, "erase.html", facts, at="datasets", status=status_of(Invalid))
    datasets.erase(db, caller, dataset_id)
    return see_other(f"/datasets/{dataset_id}")
