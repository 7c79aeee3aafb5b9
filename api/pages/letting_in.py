"""Access to a dataset: its analysts with their caps, and the owner's forms that grant and withdraw access."""

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response
from pydantic import TypeAdapter, ValidationError

from api.deps import Caller, Db
from api.pages.datasets import cap_words, head
from api.pages.rendering import render
from api.pages.routes import Form, FormFields, PageRoute, page, see_other, value_of
from api.routes import access as api
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, PreconditionFailed, Refusal
from core.privacy.amounts import BudgetCap
from core.service import access, naming, overview
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.budgets import AccessView

router = APIRouter(route_class=PageRoute)
DatasetId = Annotated[str, Path(max_length=60)]
PrincipalId = Annotated[str, Path(max_length=60)]
_CAP: Final[TypeAdapter[BudgetCap]] = TypeAdapter(BudgetCap)


@dataclass(frozen=True)
class Given:
    """Somebody's access as the table writes it."""

    view: AccessView
    cap: str
    shares: overview.BudgetShares
    used: str


@page(router, "/datasets/{dataset_id}/access", api=api.list_access)
def show_access(dataset_id: DatasetId, request: Request, caller: Caller, db: Db) -> Response:
    """Show who may ask, under which cap."""
    return _access(request, caller, db, dataset_id)


def _access(
    request: Request,
    caller: Principal,
    context: Context,
    dataset_id: str,
    values: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
) -> Response:
    facts = head(context, caller, dataset_id, "Access")
    given = [_given(one) for one in access.page(context, caller, dataset_id)]
    facts |= {"accesses": given, "values": values or {}, "errors": errors or {}, "people": []}
    if facts["is_owner"]:
        facts["people"] = _choices(naming.acquaintances(context, caller))
    status = 422 if errors else 200
    return render(request, "access.html", facts, at="datasets", status=status)


def _given(view: AccessView) -> Given:
    used = view.used
    shares = overview.BudgetShares(used.spent, used.reserved, used.remaining)
    return Given(view, cap_words(view), shares, format(Decimal(shares.spent) + Decimal(shares.reserved), "f"))


@page(router, "/datasets/{dataset_id}/access", api=api.give_access, method="POST")
def give_access(dataset_id: DatasetId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Let somebody in up to a cap, or change the cap of who is in."""
    try:
        principal = _person(db, caller, value_of(form, "principal"))
        request.state.target = f"datasets/{dataset_id}/access/{principal}"[:200]
        cap = budget_cap(form)
        known = {one.principal: one.version for one in access.page(db, caller, dataset_id)}
        # A form carries no ETag, so the present version stands for it: the last form wins.
        versions = frozenset({known[principal]}) if principal in known else None
        access.give(db, caller, dataset_id, principal, cap, versions)
    except (Invalid, NotFound, Conflict, Forbidden, PreconditionFailed) as refusal:
        request.state.code = refusal.code
        field = "amount" if isinstance(refusal, Invalid) else "principal"
        kept = {name: value_of(form, name) for name in ("principal", "kind", "amount")}
        return _access(request, caller, db, dataset_id, kept, {field: _said(refusal)})
    return see_other(f"/datasets/{dataset_id}/access")


def _choices(known: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the choices of people, each as the value to type and words beside it.

    A name is its own value where one person alone has it, else the id is.
    """
    count = Counter(named for _, named in known)
    return [(named, "") if count[named] == 1 else (person, named) for person, named in known]


def _person(context: Context, caller: Principal, typed: str) -> str:
    """Return the id of the person that a form names, by id or by name.

    Raises:
        NotFound: nobody whom the caller knows has this name, or several have it.
    """
    if typed.startswith("pr_"):
        return typed
    found = [person for person, named in naming.acquaintances(context, caller) if named == typed]
    if len(found) > 1:
        raise NotFound("Several people have this name. Choose one of them from the list, by id.")
    if not found:
        raise NotFound("Nobody on your list has this name. Ask the person for the id, or send an invitation.")
    return found[0]


def budget_cap(form: Form) -> BudgetCap:
    """Return the cap that a form asks for.

    Raises:
        Invalid: it is no number of that kind.
    """
    kind, amount = value_of(form, "kind"), value_of(form, "amount").removesuffix("%").strip()
    if kind == "all":
        return "all"
    try:
        value = Decimal(amount)
        if kind == "budget_share":
            value = value.scaleb(-2)
        return _CAP.validate_python({kind: format(value, "f")})
    except (InvalidOperation, ValidationError):
        raise Invalid(
            "Write a number above 0, and at most 100 for a part of the budget."
            if kind == "budget_share"
            else "Write a number above 0, such as 0.5."
        ) from None


def _said(refusal: Refusal) -> str:
    return " ".join([refusal.detail, *(field.detail for field in refusal.fields)])


@page(router, "/datasets/{dataset_id}/access/{principal_id}/take", api=api.take_access, method="POST")
def take_access(dataset_id: DatasetId, principal_id: PrincipalId, caller: Caller, db: Db) -> Response:
    """Take a person's access away."""
    access.take(db, caller, dataset_id, principal_id)
    return see_other(f"/datasets/{dataset_id}/access")
