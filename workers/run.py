"""One attempt in the hands of a supervisor: one child, or, of a federated job, one for each site."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.ledger.claims import Claim
from core.planning.job import Resources
from workers.incident import Incident
from workers.slots import Slot
from workers.trainer_pool import Process


@dataclass
class Child:
    """A trainer's process; the supervisor alone writes here."""

    claim: Claim
    """The claim that it spends and publishes through: the run's own, or a site's."""
    process: Process
    orders: int
    """Holds it: it ends when this is closed."""
    status: int | None = None
    """Its exit; None while it runs."""
    ordered: bool = False
    """Killed because it did not stop in time after being asked to."""
    peer_lost: bool = False
    """Killed because another site had gone, and it did not find that out in time."""
    pipe: int | None = None
    """Where it tells of a failure, until it has ended."""
    incident: Incident | None = None
    """Its incident, if it wrote one."""


@dataclass
class Run:
    """Children of one claim and what is known of them; times by `clock_seconds`.

    Fields are written by one thread each and read by both: the lease loop writes `beaten_at`, `cancel`, `part`,
    `outranked` and `lost` (which the supervisor may also set), the supervisor the others. Each is one reference,
    replaced whole.
    """

    claim: Claim
    """The claim of its beats."""
    resources: Resources
    slot: Slot
    children: Sequence[Child]
    started_at: float
    limit_seconds: float
    beaten_at: float
    """When the last beat that was answered well was sent."""
    meeting: Path | None = None
    """The folder where the sites of a federated job meet; None: the job is one child's, or they meet elsewhere."""
    seated: bool = False
    """Other supervisors run some sites of the federated job: this one beats for its own session, and leaves it."""
    asked_at: float = 0.0
    """When the last beat was sent. `beaten_at` is earlier where another session's beats are older than this one's."""
    cancel: bool = False
    """A person asked to cancel."""
    part: bool = False
    """A person asked to cancel one site of several: the others stop, and wait to go on without it."""
    mock: bool = False
    """It trains on made-up rows, and gives way to any job of records."""
    outranked: bool = False
    """A job of records waits for its slot."""
    lost: bool = False
    """The job is not, or may no longer be, ours."""
    over_limit: bool = False
    """Killed for its wall-clock limit."""
    stop_by: float | None = None
    """Asked to stop; killed after this."""
    broken_at: float | None = None
    """When the first child of several ended, and not because it was done."""

    @property
    def federated(self) -> bool:
        """True if each child is a site of a federated job."""
        return self.meeting is not None or self.seated

    @property
    def living(self) -> list[Child]:
        """The children that run."""
        return [child for child in self.children if child.status is None]
