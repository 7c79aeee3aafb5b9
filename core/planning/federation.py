"""A federated job as data: which datasets take part, each a site of its own, and how many of them must stay."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from core.base.patterns import identifier
from core.privacy.facts import Frozen

DatasetId = Annotated[str, identifier("ds")]
MOST_CLIENTS: Final = 32


class Federation(Frozen):
    """The sites of a federated job, in the order of their places."""

    datasets: Annotated[tuple[DatasetId, ...], Field(min_length=2, max_length=MOST_CLIENTS)] = Field(
        description="one a site, possibly of several owners; each site's scope is charged for its own answers"
    )
    quorum: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="sites that must be left for the job to go on when one is lost; null: all"
    )

    @property
    def needed(self) -> int:
        """Number of sites that must be left."""
        return len(self.datasets) if self.quorum is None else self.quorum

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(set(self.datasets)) < len(self.datasets):
            raise ValueError("each dataset takes part once")
        if self.needed > len(self.datasets):
            raise ValueError(f"a quorum of {self.needed} is more than the {len(self.datasets)} sites there are")
        return self
