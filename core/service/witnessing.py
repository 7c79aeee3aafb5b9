"""The witness outside the database: compared at start, told of every movement before anybody relies on it."""

from core.service.context import Context
from core.store import witness
from core.store.witness import Witness


def start(context: Context) -> list[str]:
    """Compare the ledger with its witness, and freeze it where it is behind; return what is wrong."""
    return witness.guard(context.database, Witness(context.settings.witness_path))


def keep(context: Context) -> None:
    """Write down every scope that has moved on, and sync, before the answer leaves.

    Raises:
        LedgerFrozen: the witness is gone.
    """
    Witness(context.settings.witness_path).keep(context.database)


def bury(context: Context, dataset_id: str) -> None:
    """Write down, and sync, that a dataset's records are about to be destroyed: no backup shall bring them back."""
    Witness(context.settings.witness_path).bury(dataset_id)


def compare(context: Context) -> list[str]:
    """Return in what the ledger is behind its witness; empty where it is not."""
    return witness.compare(context.database, Witness(context.settings.witness_path))
