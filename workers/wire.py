"""Orders to a trainer and to its followers: one line of JSON over a pipe."""

from typing import Self

from pydantic import Field, model_validator

from core.base.errors import ensure
from core.base.settings import ServiceSettings
from core.jobs import mocks
from core.ledger.claims import Claim
from core.privacy.facts import Frozen
from core.training.mock_order import MockOrder, is_keyless
from core.training.seat import SiteConnection


class TrainerMessage(Frozen):
    """An attempt to carry out."""

    claim: Claim
    settings: ServiceSettings
    memory_bytes: int
    """Limit of the trainer's memory."""
    gpu: str | None = None
    """The GPU, by its UUID, that the trainer is pinned to; None: it computes on the CPU and sees no GPU."""
    mock: MockOrder | None = None
    """Order of a mock job; None: the job is one of records."""
    seat: SiteConnection | None = None
    """A site's among those of a federated job; None: the job is one."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """Refuse a mock job with a key or without its declaration, and a job of records with one."""
        is_mock = mocks.is_mock(self.claim.job_id)
        ensure(is_mock == (self.mock is not None), "a mock job, and no other, trains on drawn rows")
        ensure(not is_mock or (self.seat is None and is_keyless(self.settings)), "a mock job's trainer holds no key")
        return self


class RankMessage(Frozen):
    """A place in a job's group."""

    rank: int
    size: int
    place: str
    """Where the group's processes find each other."""
    key: str = Field(repr=False)
    """By which they know one another, in hexadecimal digits."""
    settings: ServiceSettings
    memory_bytes: int
    """Limit of the follower's memory."""
    patience_seconds: float
    """Seconds to wait for the others."""
    gpu: str | None = None
    """The GPU that the follower is pinned to."""
