"""Which units a method's questions read: the door draws them, and prices what it drew."""

from typing import Annotated, Any, Literal

from pydantic import Field

from core.privacy.facts import Frozen


class FullSampling(Frozen):
    """Every question reads every unit."""

    kind: Literal["full"] = "full"

    def told(self) -> dict[str, Any]:
        """Return what a plan says of it: nothing."""
        return {}


class PoissonSampling(Frozen):
    """Every question reads a sample of its own, each unit with probability exactly parts / 2^64."""

    kind: Literal["poisson"] = "poisson"
    parts: Annotated[int, Field(gt=0, le=2**64)]

    @property
    def rate(self) -> float:
        """q, the probability that a unit is in a sample."""
        return self.parts / 2**64

    def told(self) -> dict[str, Any]:
        """Return what a plan says of it."""
        return {"kind": self.kind, "rate": self.rate}


class StreamSampling(Frozen):
    """Every unit is read by one question at most: `batch` of them a question, in a public order fixed by the job."""

    kind: Literal["stream"] = "stream"
    batch: Annotated[int, Field(gt=0)]
    chunk: Annotated[int, Field(gt=0)] = 1
    """Questions that one chunk of the schedule stands for; the first chunk pays for all of them."""

    def told(self) -> dict[str, Any]:
        """Return what a plan says of it."""
        return {"kind": self.kind, "batch": self.batch}


Sampling = Annotated[FullSampling | PoissonSampling | StreamSampling, Field(discriminator="kind")]
