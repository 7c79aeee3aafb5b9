"""Entries of a ledger in sentences: one for each kind, with the names that the caller may read."""

from collections.abc import Mapping
from typing import Any, Final

from farthing.schemas.figures import number, per_cent

_PLAIN: Final[Mapping[str, str]] = {
    "reserve": "The price of the job was reserved, with an allowance for retries.",
    "read": "An attempt may read records from here on.",
    "charge": "The rest of the job's reservation was spent.",
    "settle": "The job is over, and the rest of its reservation came back.",
    "withhold": "The release waits for approval by the owner.",
    "unwitnessed": "Entries before this one may be missing, since the witness was away.",
    "accept": "The owner accepted that entries may be missing.",
}
_REASONED: Final[Mapping[str, str]] = {
    "compensate": "A part of the charge came back",
    "freeze": "The budget was frozen",
    "unfreeze": "The budget was unfrozen",
    "reconcile": "Amounts that the witness had seen beyond this ledger were charged",
    "recovery": "The operator made a key for the owner",
}
"""Kinds with a reason, which people wrote."""


def sentence(kind: str, body: Mapping[str, Any], chunk: int | None, names: Mapping[str, str]) -> str:
    """Return what an entry says.

    Args:
        kind: one of `core.ledger.kinds.KINDS`.
        body: as it is hashed.
        chunk: that a payment is for, from 0.
        names: of principals, by id, as far as the caller may read them.
    """
    if kind == "open":
        terms = body.get("terms", {})
        return f"The budget was opened: epsilon {terms.get('epsilon')} at delta {terms.get('delta')}."
    if kind == "upload":
        return f"A dataset of {number(body.get('rows'))} rows came in."
    if kind == "grant":
        return _grant(body, names)
    if kind == "spend":
        how = "paid again, by the allowance for retries" if body.get("again") else "paid, before it read records"
        return f"Chunk {(chunk or 0) + 1} was {how}."
    if kind == "decide":
        return _because(f"The owner {body.get('outcome')} the release", body)
    return _because(_REASONED[kind], body) if kind in _REASONED else _PLAIN[kind]


def _because(said: str, body: Mapping[str, Any]) -> str:
    """Return a sentence with the reason that somebody wrote, as it was written."""
    reason = body.get("reason")
    return f"{said}: {reason}" if reason else f"{said}."


def _grant(body: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return what a cap is; the name comes last, so that one with marks of direction moves no other word."""
    person = str(body.get("principal"))
    person = names.get(person, person)
    if body.get("closed"):
        return f"No more of the budget is open to {person}."
    declared = body.get("terms", {}).get("declared", {})
    if declared.get("cap") == "all":
        return f"All of the budget is open to {person}."
    if "share" in declared:
        return f"At most {per_cent(declared['share'])} of the budget is open to {person}."
    amount = next((f"{word} {declared[word]}" for word in ("epsilon", "rho") if word in declared), "a part")
    return f"At most {amount} of the budget is open to {person}."
