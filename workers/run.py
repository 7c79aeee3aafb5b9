"""One attempt in the hands of a supervisor."""

import subprocess
from dataclasses import dataclass

from core.catalogue.jobs import Resources
from core.store.claims import Claim
from workers.slots import Slot


@dataclass
class Run:
    """A child and what is known of it; times by `clock_seconds`.

    Fields are written by one thread each and read by both: the keeper writes `beaten_at`, `cancel` and `lost` (which
    the supervisor may also set), the supervisor the others. Each is one reference, replaced whole.
    """

    claim: Claim
    resources: Resources
    slot: Slot
    child: subprocess.Popen[bytes]
    started_at: float
    limit_seconds: float
    beaten_at: float
    """When the last beat that was answered well was sent."""
    cancel: bool = False
    """A person asked to cancel."""
    lost: bool = False
    """The job is not, or may no longer be, ours."""
    over_limit: bool = False
    """Killed for its wall-clock limit."""
    ordered: bool = False
    """Killed because it did not stop in time after being asked to."""
    stop_by: float | None = None
    """Asked to stop; killed after this."""
