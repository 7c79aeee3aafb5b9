"""Every kind of entry: one class says what its body tells, and the rule by which it follows from the entries before it.

A new kind is one class, in `core.ledger.job_entries` or `core.ledger.scope_entries`: its fields, and
`follow`, which compares the body with the state so far, moves what it moves and changes the state. Named in `KINDS`, it
is written, read and verified. The form of a chain from outside is described in `docs/reference/ledger-format.md`.
"""

import json
from typing import Final

from core.ledger.bodies import Body
from core.ledger.job_entries import Charge, Compensate, Decide, Reading, Reserve, Settle, Spend, Withhold
from core.ledger.scope_entries import Accept, Freeze, Grant, Open, Reconcile, Recovery, Unfreeze, Unwitnessed, Upload
from core.ledger.tally import Tally

__all__ = [
    "KINDS",
    "Accept",
    "Charge",
    "Compensate",
    "Decide",
    "Freeze",
    "Grant",
    "Open",
    "Reading",
    "Reconcile",
    "Recovery",
    "Reserve",
    "Settle",
    "Spend",
    "Unfreeze",
    "Unwitnessed",
    "Upload",
    "Withhold",
    "follow",
    "read",
]

KINDS: Final[dict[str, type[Body]]] = {
    one.KIND: one
    for one in (
        Open,
        Upload,
        Grant,
        Reserve,
        Reading,
        Spend,
        Charge,
        Settle,
        Compensate,
        Withhold,
        Decide,
        Freeze,
        Unfreeze,
        Reconcile,
        Unwitnessed,
        Accept,
        Recovery,
    )
}
"""The grammar: every kind of entry by its name."""


def read(text: str) -> Body:
    """Return an entry's body from its text.

    Raises:
        ValueError, KeyError, TypeError: it is no body.
    """
    return KINDS[json.loads(text)["kind"]].read(text)


def follow(tally: Tally, body: Body) -> None:
    """Check that an entry follows from those before it, and count it.

    Raises:
        BrokenChain: it does not.
    """
    tally.enter(body)
    body.follow(tally)
    tally.leave(body)
