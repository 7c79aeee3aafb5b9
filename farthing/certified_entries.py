"""The comparison of a job's certificate with the ledger's entries of that job."""

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from farthing.certificate_forms import Certificate, Dataset, Place, Reconciled, Scope
from farthing.schemas.ledger import EntryView

MOVES: Final = {
    "reserve": ("reserved", "reserved", 1),
    "spend": ("spent", "spent", 1),
    "charge": ("spent", "spent", 1),
    "settle": ("returned", "reserved", -1),
    "compensate": ("corrected", "spent", -1),
}
"""Which amount of a certificate a kind of entry adds to, by which of its movements, and with which sign."""
RECONCILED: Final = ("reconcile", "unwitnessed", "accept")


def canonical(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def entries_of(told: Certificate) -> list[Place]:
    """Return the entries that a certificate names, and the place before the job's first."""
    named = [told.ledger.before, told.ledger.first, told.ledger.last, *told.ledger.reconciled]
    return named if told.dataset.entry is None else [*named, told.dataset.entry]


def differs(told: Certificate, payload: Mapping[str, Any], entries: Sequence[EntryView]) -> str | None:
    """Return of what a ledger says something else than a job's certificate; None where it says the same.

    Args:
        told: the certificate.
        payload: the same as JSON.
        entries: the ledger's, whose hashes follow from each other, with those that the certificate names among them.

    Raises:
        ArithmeticError, LookupError, TypeError, ValueError: an entry says less than its kind does.
    """
    bodies = [json.loads(entry.body) for entry in entries]
    job, last = told.job.id, told.ledger.last.seq
    # Entry n is at place n - 1, so the slice ends with the job's last entry; corrections come later.
    mine = [body for body in bodies[:last] if body["job"] == job]
    told_before = {one for one in told.ledger.reconciled if one.seq <= last}
    agrees = {
        "the owner of the budget, and its terms": _is_of_scope(told.scope, bodies[0]),
        "the records that came into the scope": _uploaded(told.dataset.id, entries) == told.dataset,
        "times in which payments may be missing": _reconciled(entries[:last]) == told_before,
        f"the records that {job} reads": mine[0]["dataset"] == told.dataset.id,
        f"the entries about {job}": _spans(told, mine),
        f"the request and release of {job}": _named(told, mine),
        f"whether {job} was released": _approved(told, mine),
        f"the reading of {job}": _may_read(mine),
        f"the draws and cost of {job}": _sums(mine, payload) == _sums_told(payload),
    }
    return next((what for what, same in agrees.items() if not same), None)


def _is_of_scope(scope: Scope, opened: Mapping[str, Any]) -> bool:
    """Say whether a scope's first entry says the same of it."""
    terms = opened["terms"]
    figures = [(scope.epsilon, terms["epsilon"]), (scope.delta, terms["delta"])]
    told = scope.adjacency, scope.units, scope.unit, scope.orders, scope.weights, scope.caps_nano
    kept = opened["adjacency"], opened["units"], opened["unit"]
    # As decimals, since one figure has several texts, such as 1 and 1.0.
    return all(Decimal(one) == Decimal(other) for one, other in figures) and told == (
        *kept,
        *(terms[name] for name in ("orders", "weights", "caps_nano")),
    )


def _uploaded(dataset: str, entries: Iterable[EntryView]) -> Dataset:
    """Return what a ledger says of a dataset: nothing of one that came before it noted uploads."""
    for entry in entries:
        body = json.loads(entry.body)
        if entry.kind == "upload" and body["dataset"] == dataset:
            place = Place(seq=entry.seq, hash=entry.hash)
            return Dataset(id=dataset, fingerprint=body["fingerprint"], rows=body["rows"], entry=place)
    return Dataset(id=dataset, fingerprint=None, rows=None, entry=None)


def _reconciled(entries: Iterable[EntryView]) -> set[Reconciled]:
    """Return a ledger's reconciliations, and its owner's words on them."""
    found = [(entry, json.loads(entry.body)) for entry in entries if entry.kind in RECONCILED]
    return {
        Reconciled(seq=one.seq, hash=one.hash, kind=one.kind, since=body.get("since"), until=body.get("until"))
        for one, body in found
    }


def _spans(told: Certificate, mine: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a job's entries begin and end where its certificate says, and end it: charged or settled."""
    ends = told.ledger.before.seq + 1, told.ledger.first.seq, told.ledger.last.seq
    return ends == (mine[0]["seq"], mine[0]["seq"], mine[-1]["seq"]) and any(
        body["kind"] in ("settle", "charge") for body in mine
    )


def _named(told: Certificate, mine: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a job's entries name the digests that its certificate does, and end it as that says."""
    ends = [body for body in mine if body["kind"] in ("settle", "charge")]
    succeeded = any(body["kind"] == "settle" and body["reason"] == "succeeded" for body in ends)
    release = next((body["release"] for body in ends if body.get("release") is not None), None)
    same = told.entries is None or (told.entries.spec, told.entries.release) == (mine[0].get("spec"), release)
    return same and succeeded == (told.job.state == "succeeded")


def _approved(told: Certificate, mine: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a release waited for the owner, and was judged, as its certificate says.

    Version 1 has no such entries, and a model that is kept no more, or was retracted, has no word of its own.
    """
    if told.result is None or told.result.approval in ("retired", "retracted"):
        return True
    waited = any(body["kind"] == "withhold" for body in mine)
    said = next((body["outcome"] for body in mine if body["kind"] == "decide"), "pending")
    return mine[-1]["v"] == 1 or told.result.approval == (said if waited else "not-needed")


def _may_read(mine: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether an entry allows each attempt to read before it pays, and nothing that was read is given back.

    Version 1 has no such entries.
    """
    readers = [body["attempt"] for body in mine if body["kind"] == "read"]
    paying = [body["attempt"] for body in mine if body["kind"] == "spend" and body["v"] > 1]
    given_back = any(body["kind"] == "compensate" and body["v"] > 1 for body in mine)
    return set(paying) <= set(readers) and not (given_back and readers)


def _sums(mine: Sequence[Mapping[str, Any]], payload: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a job's amounts, the events that it reserved and those that it was charged for, by its entries."""
    account, orders = payload["scope"]["id"], len(payload["scope"]["orders"])
    sums = {name: [0] * orders for name, _, _ in MOVES.values()}
    runs: list[Any] = []
    for body in (one for one in mine if one["kind"] in MOVES):
        told, name, sign = MOVES[body["kind"]]
        # An entry has an amount for each of four orders, and a scope may have fewer.
        moved = body["accounts"][account][name][:orders]
        sums[told] = [one + sign * more for one, more in zip(sums[told], moved, strict=True)]
        runs += body["event"] if told == "spent" else []
    return sums, mine[0]["schedule"], _flat(runs)


def _sums_told(payload: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the same by a certificate."""
    return payload["nano_nats"], payload["events"]["reserved"], _flat(payload["events"]["charged"])


def _flat(runs: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return runs of events with no two neighbours alike."""
    flat: list[list[Any]] = []
    for times, event in runs:
        # Entries and certificate may cut equal events into runs at other places.
        if flat and flat[-1][1] == event:
            flat[-1][0] += times
        else:
            flat.append([times, event])
    return flat
