"""Tables of budgets and ledgers on the command line: the amounts that are left, and those that each entry moved."""

import json
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from farthing.console import figure, of_100, plain_table
from farthing.schemas.budgets import BudgetView
from farthing.schemas.ledger import EntryView, VerificationView

_STEP = Decimal("0.0001")
SHOWN = len("sha256:") + 12
"""Letters of a hash that a line has room for; `--json` has all."""


def entries(found: Sequence[EntryView]) -> RenderableType:
    """Show a whole ledger, one entry a line, with the amount that each moved, in per cent of the budget.

    The per cent are those of `budget`: the least over the orders of the ledger. They therefore add up, from the first
    line to the last, to the figure that `budget` shows.
    """
    rows = [
        (
            str(one.seq),
            _kind(one),
            one.job or "-",
            "-" if one.chunk is None else str(one.chunk),
            one.created_at,
            one.hash[:SHOWN],
            *moved,
        )
        for one, moved in zip(found, _movements(found), strict=True)
    ]
    left = ("entry", "kind", "job", "chunk", "at", "hash")
    return plain_table("", rows, left=left, right=("spent %", "reserved %", "taken %"))


def _kind(entry: EntryView) -> str:
    """Return an entry's kind, and whether it pays again for a chunk that was lost."""
    body = json.loads(entry.body)
    return f"{entry.kind} again" if body.get("again", "repeats" in body) else entry.kind


def _movements(found: Sequence[EntryView]) -> Iterator[tuple[str, str, str]]:
    """Return what each entry spent and reserved, and what is taken after it; dashes where the first says no caps."""
    bodies: list[dict[str, Any]] = [json.loads(one.body) for one in found]
    if not bodies or "terms" not in bodies[0]:
        yield from [("-", "-", "-")] * len(bodies)
        return
    spent_before = reserved_before = Decimal(0)
    for spent, taken in _standing(bodies):
        reserved = taken - spent
        yield _signed(spent - spent_before), _signed(reserved - reserved_before), f"{taken:.4f}"
        spent_before, reserved_before = spent, reserved


def _standing(bodies: Sequence[dict[str, Any]]) -> Iterator[tuple[Decimal, Decimal]]:
    """Yield what is spent, and what is taken with reservations, after each of a ledger's entries, in per cent."""
    scope, caps = bodies[0]["scope"], bodies[0]["terms"]["caps_nano"]
    spent, reserved = [0] * len(caps), [0] * len(caps)
    for body in bodies:
        # An entry may move nothing of the scope's own account.
        moved = body["accounts"].get(scope, {"spent": [0] * 4, "reserved": [0] * 4})
        # An entry has four amounts, and a scope with fewer orders fewer caps.
        spent = [one + more for one, more in zip(spent, moved["spent"], strict=False)]
        reserved = [one + more for one, more in zip(reserved, moved["reserved"], strict=False)]
        yield _percent(spent, caps), _percent([one + two for one, two in zip(spent, reserved, strict=True)], caps)


def _percent(amounts: Sequence[int], caps: Sequence[int]) -> Decimal:
    """Return the least share of a cap, in per cent, rounded up."""
    least = min(Decimal(amount) / cap for amount, cap in zip(amounts, caps, strict=True))
    # Up, so that no line shows less than was spent.
    return (100 * least).quantize(_STEP, rounding=ROUND_CEILING)


def _signed(percent: Decimal) -> str:
    return f"{percent:+.4f}" if percent else "-"


def budget(found: BudgetView) -> RenderableType:
    """Show what is left."""
    columns = ("total", "spent", "reserved", "remaining")
    shares = found.budget_share
    rows = [("per cent", "100", *map(of_100, (shares.spent, shares.reserved, shares.remaining)))]
    for name, figures in (("epsilon", found.epsilon), ("rho", found.rho)):
        total, spent, reserved, remaining = (getattr(figures, column, None) or "-" for column in columns)
        rows.append((name, total, spent, reserved, remaining))
    table = plain_table(f"budget of scope {found.scope}", rows, left=("",), right=columns)
    said = f"delta {found.delta}, {found.adjacency}, {found.entries} entries, head {found.head}"
    if found.frozen is not None:
        said += f"\nfrozen: {found.frozen}"
    for gap in found.unwitnessed:
        accepted = "not accepted yet" if gap.accepted is None else f"accepted by entry {gap.accepted}"
        said += f"\nentries may be missing: {gap.since} to {gap.until} (entry {gap.entry}; {accepted})"
    return Group(table, "", Text(said))


def verification(found: VerificationView) -> RenderableType:
    """Show the outcome of the last pass over a scope's ledger."""
    state = "no pass has ended yet" if found.ok is None else "whole" if found.ok else "NOT WHOLE"
    rows = [
        ("ledger", state + ("; another pass goes on" if found.running else "")),
        ("entries", "-" if found.entries is None else f"{found.entries:,}"),
        ("head", figure(found.head)),
        ("verified", figure(found.verified_at)),
        *([("first bad entry", f"{found.first_bad}: {figure(found.reason)}")] if found.first_bad is not None else []),
        *(("may be missing", f"entries from {gap.since} to {gap.until}") for gap in found.unwitnessed),
    ]
    return plain_table(f"ledger of {found.scope}", rows)
