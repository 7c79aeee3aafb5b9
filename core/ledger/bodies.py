"""The text of an entry: members of every body, their writing and their reading.

A body is canonical JSON with the version of its form, `v`. New entries have the newest; older ones are read, each by
the rules of its own version.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from core.base.canonical import canonical

if TYPE_CHECKING:
    from core.ledger.tally import Tally

VERSION: Final = 2
"""Of what is written. Before an attempt of version 1 read records, no entry said so."""
SLOTS: Final = 4
_MOST: Final = 2**63 - 1  # the largest number of a signed 64-bit column

Seconds = Annotated[float, Field(ge=0, le=253_402_300_799)]
"""Since the epoch, up to the end of the year 9999."""
Nano = Annotated[int, Field(ge=-_MOST, le=_MOST)]
Slots = tuple[Nano, Nano, Nano, Nano]
"""Nano-nats at the four orders of an account; slots that its terms do not use are 0."""


class Movement(BaseModel):
    """The change of an account by an entry, in nano-nats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spent: Slots
    reserved: Slots


Movements = dict[str, Movement]
"""By the account's identifier."""


class Body(BaseModel):
    """Fields of every entry; each kind adds its own.

    Attributes:
        v: the version of the form, never less than that of the entry before.
        scope: the scope of the chain.
        seq: its number, from 1.
        kind: one of `core.ledger.kinds.KINDS`.
        job: the job it is about, None where there is none.
        attempt: of the job; 0 for what happens once per job, None where there is no job.
        chunk: of the job; as `attempt`.
        at: whole seconds since the epoch by the database's clock, never less than those of the entry before.
        accounts: the accounts that it moves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    KIND: ClassVar[str]

    v: Literal[1, 2]
    scope: str
    seq: Annotated[int, Field(ge=1)]
    kind: str
    job: str | None
    attempt: Annotated[int, Field(ge=0)] | None
    chunk: Annotated[int, Field(ge=0)] | None
    at: Seconds
    accounts: Movements

    @classmethod
    def read(cls, text: str) -> Self:
        """Return a body of this kind from its text.

        Raises:
            ValueError: it does not have the form of this kind, or its text is not the canonical one of its value.
        """
        found = cls.model_validate_json(text, strict=True)
        # `exclude_unset`: a text of version 1 lacks members that this model fills with defaults.
        if canonical(found.model_dump(mode="json", exclude_unset=True)) != text:
            raise ValueError("its text is not canonical JSON, or a number in it is written as of another type")
        return found

    def follow(self, tally: "Tally") -> None:
        """Check that the entry follows from those before it, and change their sum; each kind says how.

        Raises:
            BrokenChain: it does not follow.
        """
        raise NotImplementedError


def slots(values: Sequence[int], fill: int = 0) -> list[int]:
    """Return values padded to four slots."""
    return [*values, *[fill] * (SLOTS - len(values))]
