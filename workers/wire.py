"""What a supervisor tells its trainer: one line of JSON over a pipe."""

from core.privacy.facts import Frozen
from core.settings import ServiceSettings
from core.store.claims import Claim


class Order(Frozen):
    """An attempt to carry out."""

    claim: Claim
    settings: ServiceSettings
    memory_bytes: int
    """Limit of the trainer's memory."""
    gpu: str | None = None
    """The GPU, by its UUID, that the trainer is pinned to; None: it computes on the CPU and sees no GPU."""
