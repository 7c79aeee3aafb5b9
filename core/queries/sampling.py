"""Which units a method's questions read: the oracle draws them, and prices what it drew."""

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
    """Every unit is read by one question at most in each pass, in public orders fixed by the job, one a pass.

    The schedule has as many chunks for each pass: the first of a pass pays for all of it, the others for nothing.
    """

    kind: Literal["stream"] = "stream"
    batches: Annotated[tuple[Annotated[int, Field(gt=0)], ...], Field(min_length=1)]
    """The units that a question may read: one of these numbers."""
    chunk: Annotated[int, Field(gt=0)] = 1
    """Units, by their places in a pass, that one chunk of the schedule stands for."""
    passes: Annotated[int, Field(gt=0)] = 1

    def skips(self, chunks: int) -> bool:
        """Say whether what is lost with a worker is skipped, of a schedule of so many chunks.

        It is skipped where a pass has several chunks: later questions continue with the rest. A pass of a single chunk
        is paid for and read again, out of the retry allowance.
        """
        return chunks > self.passes

    def told(self) -> dict[str, Any]:
        """Return what a plan says of it."""
        sizes = {"batch": self.batches[0]} if len(self.batches) == 1 else {"batches": list(self.batches)}
        return {"kind": self.kind, **sizes, **({"passes": self.passes} if self.passes > 1 else {})}


Sampling = Annotated[FullSampling | PoissonSampling | StreamSampling, Field(discriminator="kind")]
