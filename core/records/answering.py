"""A request for the predictions of a file, and its answer, between parent and child."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from core.privacy.facts import Frozen
from core.records.decoding.child import ChildRefusal
from core.records.decoding.decode import Limits
from core.records.encryption import SealedFile

Media = Literal["csv", "parquet", "arrow-file", "arrow-stream"]
"""Formats of rows to predict."""
Kind = Literal["csv", "parquet", "arrow-stream"]
"""Formats of an answer."""


class RowsToPredict(Frozen):
    """A file of rows to predict, and the place of the answer."""

    source: SealedFile
    target: SealedFile
    media: Media
    kind: Kind
    model: str
    released: dict[str, Any]
    level: float | None
    limits: Limits
    answer_bytes: int = Field(gt=0, description="of the answer at most")


class FilePredicted(Frozen):
    """The answer of the child."""

    rows: int = 0
    problem: ChildRefusal | None = None


def read_answer(content: bytes) -> FilePredicted | None:
    """Return the answer of a child; None: it crashed, or passed a limit."""
    try:
        return FilePredicted.model_validate_json(content)
    except ValidationError:
        return None
