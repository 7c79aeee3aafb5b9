"""The witness outside the database: compared at start, and sent every movement before it counts."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from core.base.errors import LedgerBusy, NotReady
from core.ledger.witness import comparing
from core.ledger.witness.trusting import Trust, ask_witness, mark_keys
from core.ledger.witness.witness import Witness
from core.service.context import Context


def start(context: Context) -> list[str]:
    """Compare the ledger with its witness, and freeze it where it is behind; return what is wrong.

    Raises:
        NotReady: the witness does not answer, or its place could lose a head.
    """
    return comparing.guard(context.database, _witness(context))


def keep(context: Context, job_id: str | None = None, *, entries: Mapping[str, int] | None = None) -> None:
    """Write down, durably, every scope that has moved on, or those that pay for one job, before the answer leaves.

    Args:
        context: the service.
        job_id: look at the scopes that pay for this job only.
        entries: look at these scopes only, and only where the witness does not know of these entries yet.

    Raises:
        LedgerFrozen: the witness is gone.
        LedgerBusy: it does not answer.
    """
    _witness(context).keep(context.database, job_id, entries=entries)


def ask(context: Context, entries: Mapping[str, int]) -> Trust:
    """Return the witness's state of some scopes, once it has these entries, and the key of marks.

    Raises:
        LedgerFrozen: the witness is gone.
        LedgerBusy: it does not answer.
    """
    keep(context, entries=entries)
    return ask_witness(_witness(context), entries.keys(), mark_keys(context.settings))


def erased(context: Context) -> set[str]:
    """Return the datasets whose records were destroyed, by the witness.

    Raises:
        LedgerBusy: it does not answer.
    """
    try:
        return _witness(context).erased()
    except NotReady as error:
        raise LedgerBusy(f"The witness: {error.detail}", retry_after_seconds=2) from error


def bury(context: Context, dataset_id: str) -> None:
    """Write down, durably, that a dataset's records are about to be destroyed: no backup shall bring them back.

    Raises:
        NotReady: the witness does not answer.
    """
    _witness(context).bury(dataset_id)


def compare(context: Context) -> list[str]:
    """Return a sentence for each problem with ledger or witness; an empty list: the ledger is not behind its witness.

    Raises:
        NotReady: the witness does not answer.
    """
    return comparing.compare(context.database, _witness(context))


def lag(context: Context, heads: Mapping[str, int], agreed: dict[str, int]) -> int:
    """Return how many entries the witness does not know of yet.

    Args:
        context: the service.
        heads: the number of each scope's last entry.
        agreed: the witness's heads as they were last seen; those scopes are not asked for again, and it is kept up.

    Raises:
        NotReady: the witness does not answer.
    """
    moved = [scope for scope, seq in heads.items() if agreed.get(scope) != seq]
    known = _witness(context).read(moved) if moved else {}
    agreed.update({scope: known[scope].seq for scope in moved if scope in known})
    return sum(max(0, seq - agreed.get(scope, 0)) for scope, seq in heads.items())


def _witness(context: Context) -> Witness:
    return _made(context.settings.witness_path)


@lru_cache(maxsize=8)
def _made(place: Path | str) -> Witness:
    """Return the process's own witness, which remembers what it has read."""
    return Witness(place)
