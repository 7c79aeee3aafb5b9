"""The source of each thing that leaves the house, as a property of its type; habit does not decide what is public.

Every field of every view says one of four things, here and in the OpenAPI document (`x-provenance`):

* `declared`: its owner, or whoever asked, wrote it down, or it follows from what they wrote;
* `paid`: it comes from noised answers that were paid for, or from the ledger's account of them;
* `owner-only`: it may be a function of records, and nobody but their owner is shown it;
* `operational`: it comes from the service's own doings: identifiers, times, states, settings.

A function of the records is therefore `paid` or `owner-only`, or it does not leave. A field whose type is a view may
leave it to its fields; one that says something itself says it for all below it. An operational value that differs each
time is marked (`x-varies`): drawn at random, or a time. `tests/laws/test_provenance.py` compares all that is neither
paid nor its owner's between two services whose records differ in nothing but their values.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

KEYWORD: Final = "x-provenance"
VARIES: Final = "x-varies"


class Provenance(StrEnum):
    """Where something comes from."""

    DECLARED = "declared"
    PAID = "paid"
    OWNER_ONLY = "owner-only"
    OPERATIONAL = "operational"


@dataclass(frozen=True)
class Mark:
    """The statement of a field about itself."""

    provenance: Provenance
    varies: Literal["random", "time"] | None = None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the field's JSON Schema with what it says."""
        return handler(schema) | self.keywords

    @property
    def keywords(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        return {KEYWORD: self.provenance.value} | ({} if self.varies is None else {VARIES: self.varies})


T = TypeVar("T")
Declared = Annotated[T, Mark(Provenance.DECLARED)]
Paid = Annotated[T, Mark(Provenance.PAID)]
OwnerOnly = Annotated[T, Mark(Provenance.OWNER_ONLY)]
Operational = Annotated[T, Mark(Provenance.OPERATIONAL)]
Drawn = Annotated[T, Mark(Provenance.OPERATIONAL, "random")]
"""Operational, and drawn at random: identifiers, secrets, hashes over them."""
Timed = Annotated[T, Mark(Provenance.OPERATIONAL, "time")]
"""Operational, and a time, or a text with one."""
