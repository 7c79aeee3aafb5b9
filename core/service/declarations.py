"""Declarations of datasets: refused where no file could make them good, and held against the scope that they join."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from sqlalchemy.orm import Session

from core.base.errors import FieldError, Forbidden, Invalid, KeyNotOwn, NotFound
from core.data.columns import Column
from core.data.datasets import Metadata, refuse_unkept
from core.db.tables import Account, Scope
from core.privacy.acceptance import refuse_large_delta
from core.service import scopes
from core.service.context import Caller, Context

_DEFAULTS: Final = {"seal": True, "accept_excluded": False}


def parse(context: Context, caller: Caller, metadata: Metadata) -> None:
    """Refuse a declaration that no file could make good, before any of the file is read.

    Raises:
        Forbidden: the key's role owns no data.
        KeyNotOwn: somebody else made the key.
        NotOfferedYet: user-level units.
        NotFound: the scope to join does not exist for the caller.
        Forbidden: it is somebody else's.
        Invalid: a budget that cannot be kept, or a unit or adjacency other than the scope's.
    """
    caller.require("owner", "admin")
    if caller.key_seen_by_others:
        raise KeyNotOwn(
            "Another principal made this key and has seen it. Rotate it first (farthing rotate, or POST "
            f"/v1/keys/{caller.key_id}/rotate), and send records by the fresh one, which nobody else has."
        )
    refuse_unkept(metadata, context.settings.max_rows)
    refuse_many_columns(context, metadata.columns, "/columns")
    if metadata.scope is not None:
        with context.database.read() as session:
            joined(session, caller, metadata, metadata.rows)


def refuse_many_columns(context: Context, columns: Sequence[Column], pointer: str) -> None:
    """Refuse more columns than a dataset may have here.

    Raises:
        Invalid: `pointer` names them.
    """
    most = context.settings.max_columns
    if len(columns) > most:
        raise Invalid(f"A dataset has at most {most} columns.", FieldError(pointer, "declare fewer"))


def joined(session: Session, caller: Caller, metadata: Metadata, units: int | None) -> Scope:
    """Return the scope that a dataset of so many records joins, None where their number is not known yet.

    The scope's delta is held against this number too: more records have a smaller 1/n.
    """
    assert metadata.scope is not None, "it names one"
    try:
        scope = scopes.find_own(session, caller, metadata.scope)
    except NotFound as refusal:
        raise NotFound(refusal.detail, FieldError("/scope", "name a scope of yours")) from refusal
    if scope.owner_id != caller.id:  # an admin's own dataset in it would spend the owner's budget
        raise Forbidden("Only the owner of a scope adds datasets to it.")
    told = metadata.model_fields_set
    wrong = [
        FieldError(f"/{name}", f"is {here!r} in this scope; leave it out")
        for name, given, here in (
            ("unit", metadata.unit, scope.unit),
            ("adjacency", metadata.adjacency.value, scope.adjacency),
            ("approval", metadata.approval, scope.approval),
        )
        if name in told and given != here
    ]
    if wrong:
        raise Invalid("The scope has its own unit, adjacency and rule of approval.", *wrong)
    if units is not None:
        budget = session.get_one(Account, scope.id)
        refuse_large_delta(
            Decimal(budget.delta),
            units,
            accepted=metadata.accept_delta or bool(budget.declared.get("accept_delta")),
            pointer="/accept_delta",
            fixed="/scope",
            fix="join a scope whose delta is at most {safe}, or open one with a budget of its own",
        )
    return scope


def asked(metadata: Metadata) -> dict[str, Any]:
    """Return a declaration to compare requests by, JSON-ready: `seal` and `accept_excluded` where they matter."""
    dumped = metadata.model_dump(mode="json")
    return {name: value for name, value in dumped.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}
