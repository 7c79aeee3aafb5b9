"""Outcomes of a trainer, as exit statuses: a closed list, because an outcome is an output.

Nothing else leaves a trainer but what it writes to the database through its fence: no text, no traceback. The failing
phases differ in the operator's log only; an analyst sees one code for all of them.
"""

from enum import IntEnum


class Outcome(IntEnum):
    """Exit status of a trainer process."""

    PUBLISHED = 0
    """The model is stored and the job has ended."""
    DRAINED = 10
    """Asked to stop; every answer that it received is in a kept state."""
    STALE = 11
    """The job is no longer ours; nothing more was written."""
    FROZEN = 12
    """The ledger was frozen under us; an operator must reconcile."""
    DIVERGED = 13
    """Decided from noised values only."""
    OUT_OF_MEMORY = 14
    NO_GPU = 15
    """The GPU it was pinned to cannot be used; no record was opened."""
    PEER_LOST = 16
    """Another site of the federated job has gone, or did not come in time."""
    FAILED_OPENING = 20
    FAILED_TRAINING = 21
    FAILED_PUBLISHING = 22
    ORPHANED = 30
    """The supervisor is gone."""


def describe(status: int) -> str:
    """Return a word for an exit status: one of the closed list, or the signal that killed the child."""
    if status in set(Outcome):
        return Outcome(status).name.lower().replace("_", "-")
    return f"signal-{-status}" if status < 0 else f"status-{status}"
