"""Claims of a supervisor, and offers that it stays free for."""

from dataclasses import dataclass, field

from core.ledger.claims import Claim
from core.planning.job import Resources
from core.records.sealing import Reader
from core.training.mock_order import MockOrder


@dataclass(frozen=True)
class ClaimedSite:
    """A client of a federated job, to be given to its own trainer alone."""

    claim: Claim
    number: int
    """Of those that take part in this attempt, from 0."""
    dataset_key: str | None = field(repr=False)
    """Opens its records, in hexadecimal digits; None: there is none, or none that could be unwrapped."""
    location: str | None
    """Of the file that this key opens: by the time that a trainer looks, the dataset may have another one."""


@dataclass(frozen=True)
class ClaimedJob:
    """A job that was claimed, and, where it is a federated one, its clients that are this supervisor's to run."""

    claim: Claim
    resources: Resources
    clients: tuple[ClaimedSite, ...] = ()
    size: int = 0
    """The number of sites that take part, on any supervisor."""
    asked: int = 0
    """The number of sites that the job began with."""
    meeting_key: bytes | None = field(default=None, repr=False)
    """By which the clients know one another where other supervisors run some; None: this one runs all."""
    mock: MockOrder | None = None
    """Order of a mock job; None of a job of records."""


@dataclass(frozen=True)
class Offer:
    """A session that is offered in a federated job of several sites."""

    job_id: str
    reader: Reader
    """The reader of the meeting's key."""
