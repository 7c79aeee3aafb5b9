"""Orders to a trainer and to its followers: one line of JSON over a pipe."""

from pydantic import Field

from core.base.settings import ServiceSettings
from core.ledger.claims import Claim
from core.privacy.facts import Frozen
from core.training.seat import SiteConnection


class TrainerMessage(Frozen):
    """An attempt to carry out."""

    claim: Claim
    settings: ServiceSettings
    memory_bytes: int
    """Limit of the trainer's memory."""
    gpu: str | None = None
    """The GPU, by its UUID, that the trainer is pinned to; None: it computes on the CPU and sees no GPU."""
    seat: SiteConnection | None = None
    """A site's among those of a federated job; None: the job is one."""


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
