"""People: the holders of keys, for admins; and one's own page, with one's id and keys."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request, Response

from api.authenticator import SESSION_COOKIE
from api.cost import Cost, by
from api.deps import After, Caller, Db
from api.errors import status_of
from api.pages.rendering import ROLES, render
from api.pages.routes import FormFields, PageRoute, page, see_other, value_of
from api.pages.sign_in import with_session
from api.routes import keys as api
from api.routes import principals as principal_api
from core.base.errors import Invalid
from core.service import keys, principals, quotas, sign_ins
from core.service.context import Caller as Principal
from core.service.context import Context, Role
from farthing.schemas.keys import NewKeyView

router = APIRouter(route_class=PageRoute)
PrincipalId = Annotated[str, Path(max_length=60)]
KeyId = Annotated[str, Path(max_length=60)]
A_PAGE: Final = 50
LEAST: Final = 3
"""Letters of a reason, as the API has it."""
ADMINS: Final = Cost(by("admin"))


@page(router, "/people", api=principal_api.list_principals, cost=ADMINS)
def show_people(request: Request, caller: Caller, db: Db, after: After = None) -> Response:
    """Show who holds keys, newest first."""
    return _people(request, caller, db, after)


def _people(
    request: Request,
    caller: Principal,
    context: Context,
    after: str | None = None,
    made: NewKeyView | None = None,
    error: str = "",
) -> Response:
    found = principals.page(context, caller, after, A_PAGE + 1)
    older = f"/people?after={found[A_PAGE - 1].id}" if len(found) > A_PAGE else None
    facts = {"people": found[:A_PAGE], "older": older, "roles": ROLES, "made": made, "error": error}
    return render(request, "people.html", facts, at="people", status=status_of(Invalid) if error else 200)


@page(router, "/people", api=api.create_key, cost=ADMINS, method="POST")
def make_key(request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Make a key for somebody new, and show it once."""
    name, role = value_of(form, "name"), value_of(form, "role")
    if not 1 <= len(name) <= 200 or role not in ROLES:  # noqa: PLR2004 - the API's own limit
        request.state.code = Invalid.code
        return _people(request, caller, db, error="Write a name of at most 200 letters, and choose a role.")
    chosen: Role = role  # type: ignore[assignment] # it is one of ROLES
    made, _ = keys.create(
        db, caller, name=name, role=chosen, principal_id=None, lasts_seconds=None, idempotency_key=None
    )
    request.state.target = f"keys/{made.id}"
    return _people(request, caller, db, made=made)


@page(router, "/people/{principal_id}", api=principal_api.get_principal, cost=ADMINS)
def show_person(principal_id: PrincipalId, request: Request, caller: Caller, db: Db) -> Response:
    """Show somebody's keys, and the way to shut them out."""
    return _person(request, caller, db, principal_id)


def _person(request: Request, caller: Principal, context: Context, principal_id: str, error: str = "") -> Response:
    facts = {
        "person": principals.get(context, caller, principal_id),
        "keys": keys.page(context, caller, None, A_PAGE, principal_id),
        "roles": ROLES,
        "error": error,
    }
    return render(request, "person.html", facts, at="people", status=status_of(Invalid) if error else 200)


@page(router, "/people/{principal_id}/disable", api=principal_api.disable_principal, method="POST")
def disable(principal_id: PrincipalId, request: Request, form: FormFields, caller: Caller, db: Db) -> Response:
    """Shut somebody out, with a reason."""
    reason = value_of(form, "reason")[:500]
    if len(reason) < LEAST:
        request.state.code = Invalid.code
        return _person(request, caller, db, principal_id, "Write why. It stays in the audit log.")
    principals.disable(db, caller, principal_id, reason)
    return see_other(f"/people/{principal_id}")


@page(router, "/people/{principal_id}/enable", api=principal_api.enable_principal, method="POST")
def enable(principal_id: PrincipalId, caller: Caller, db: Db) -> Response:
    """Let somebody in again."""
    principals.enable(db, caller, principal_id)
    return see_other(f"/people/{principal_id}")


@page(router, "/people/{principal_id}/keys/{key_id}/revoke", api=api.revoke_key, cost=ADMINS, method="POST")
def revoke_key(principal_id: PrincipalId, key_id: KeyId, caller: Caller, db: Db) -> Response:
    """Stop one of somebody's keys for good."""
    keys.revoke(db, caller, key_id)
    return see_other(f"/people/{principal_id}")


@page(router, "/you", api=api.list_keys)
def show_you(request: Request, caller: Caller, db: Db) -> Response:
    """Show one's own id and keys."""
    return render(request, "you.html", _you(db, caller, caller.key_id, None), at="you")


def _you(context: Context, caller: Principal, key_id: str, made: NewKeyView | None) -> dict[str, Any]:
    mine = keys.page(context, caller, None, A_PAGE, caller.id)
    used = quotas.usage(context, caller) if caller.role == "owner" else None
    return {"keys": mine, "here": key_id, "made": made, "theirs": caller.key_seen_by_others, "used": used}


@page(router, "/you/replace", api=api.rotate_key, method="POST")
def replace_key(request: Request, caller: Caller, db: Db) -> Response:
    """Replace the key that one is signed in with, show the new one once, and go on with it."""
    made = keys.rotate(db, caller, caller.key_id)
    request.state.target = f"keys/{caller.key_id}/rotate/{made.id}"
    assert made.key is not None, "it was made just now"
    token, signed_in = sign_ins.by_key(db, made.key)
    request.state.caller = signed_in
    request.cookies[SESSION_COOKIE] = token  # forms of this page belong to the new session
    answer = render(request, "you.html", _you(db, signed_in, made.id, made), at="you")
    return with_session(request, answer, token)
