"""The validation report: the treatment of the cells of each column, for the owner alone: its counts are private.

A report is therefore stored sealed, under a key derived from the dataset's own. Readers of the database and operators
of other sites learn nothing of it, and it goes with the records' key.
"""

import base64
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field

from core.base.errors import FieldError, ManyExcluded
from core.data.reading import FileReading
from core.privacy.facts import Frozen
from core.records.encryption import Tampered
from farthing.schemas.drafts import DoubtView, SniffedView

SEALED: Final = "sealed"
_MANY: Final = 20
"""One row in so many is the most that an upload may leave out without the owner's word."""
_NONCE_BYTES: Final = 12
_MOST: Final = 10**18
"""No count passes it: more cells than disks hold."""
_SNIFFED_BYTES: Final = 4_000
_FORMS_BYTES: Final = 2_000
"""Of a column: eight forms, and a doubt of each."""


class ColumnReport(Frozen):
    """Counts of cells of one declared column; of an array column, of arrays in which some number is such."""

    name: str
    clamped_low: int = Field(default=0, description="below the lower bound, now the lower bound")
    clamped_high: int = Field(default=0, description="above the upper bound, now the upper bound")
    rounded: int = Field(default=0, description="not whole in an integer column, now the nearest whole number")
    unknown: int = Field(default=0, description="categories that are not declared, now `other`")
    unreadable: int = Field(default=0, description="neither empty nor a missing code, but not of this type: missing")
    missing: int = Field(default=0, description="empty, a missing code or unreadable, before `fill`")
    filled: int = Field(default=0, description="missing cells that took `fill`")

    def plus(self, other: "ColumnReport") -> "ColumnReport":
        """Return the counts of both."""
        counts = {key: value + getattr(other, key) for key, value in self if key != "name"}
        return ColumnReport(name=self.name, **counts)


class Doubt(Frozen):
    """A part of a file that could be read in another way as well."""

    pointer: str
    """Of the field of the metadata that decides it."""
    taken: str
    other: str
    cells: int | None
    """Cells that would have another value; None: it is about letters."""


class Sniffed(Frozen):
    """The reading that a draft's file was given, since its owner declared none."""

    reading: FileReading
    formats: tuple[tuple[str, ...], ...]
    """Forms of dates, of each column."""
    doubts: tuple[Doubt, ...]

    def view(self, names: Sequence[str]) -> SniffedView:
        """Return the answer for the owner; the columns have these names."""
        return SniffedView(
            reading=self.reading.model_dump(mode="json"),
            formats={name: list(forms) for name, forms in zip(names, self.formats, strict=True) if forms},
            doubts=[DoubtView.model_validate(dict(doubt)) for doubt in self.doubts],
        )


class ValidationReport(Frozen):
    """The owner's report on an upload."""

    rows: int
    incomplete_rows: int = Field(
        description="rows with a value still missing in some declared column; excluded from models that use it"
    )
    columns: tuple[ColumnReport, ...]
    sniffed: Sniffed | None = Field(default=None, exclude_if=lambda found: found is None)

    @property
    def many_excluded(self) -> bool:
        """Whether more than one row in twenty is excluded."""
        return self.incomplete_rows * _MANY > self.rows


def refuse_many_excluded(report: ValidationReport, *, accepted: bool) -> None:
    """Refuse a file of which more than one row in twenty would be excluded, unless its owner accepts that.

    Raises:
        ManyExcluded: with the counts of each column that has such cells.
    """
    if accepted or not report.many_excluded:
        return
    counted = ("unreadable", "missing", "filled", "unknown")
    columns = [
        {"name": one.name, **{name: getattr(one, name) for name in counted}}
        for one in report.columns
        if one.missing > one.filled or one.unknown
    ]
    raise ManyExcluded(
        f"{report.incomplete_rows} of {report.rows} rows have a missing or unreadable cell and would be excluded. "
        "Nothing was stored. Mend the file or the declaration, or look at it as a draft first.",
        FieldError("/accept_excluded", "give true to upload it all the same"),
        FieldError("/seal", "or give false to make a draft, which you alone see"),
        rows=report.rows,
        excluded=report.incomplete_rows,
        columns=columns,
    )


def seal_report(report: ValidationReport, key: bytes, dataset_id: str) -> dict[str, str]:
    """Return a report, JSON-ready, as only who has the dataset's key can read it; its length tells no count."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    # AES-GCM keeps lengths, and the number of a count's digits is private.
    padded = report.model_dump_json().ljust(len(_widest(report).model_dump_json()) + _sniffed_bytes(report))
    sealed = _cipher(key).encrypt(nonce, padded.encode(), dataset_id.encode())
    return {SEALED: base64.b64encode(nonce + sealed).decode()}


def open_report(stored: Mapping[str, Any], key: bytes, dataset_id: str) -> dict[str, Any]:
    """Return what `seal_report` was given, JSON-ready.

    Raises:
        Tampered: it was changed, or is another dataset's.
    """
    content = base64.b64decode(stored[SEALED])
    try:
        plain = _cipher(key).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], dataset_id.encode())
    except InvalidTag:
        raise Tampered from None
    return dict(json.loads(plain))


def _sniffed_bytes(report: ValidationReport) -> int:
    """Return room for all that could be sniffed of these columns."""
    return 0 if report.sniffed is None else _SNIFFED_BYTES + _FORMS_BYTES * len(report.columns)


def _widest(report: ValidationReport) -> ValidationReport:
    """Return the longest report there could be on the same columns."""
    most = dict.fromkeys(ColumnReport.model_fields, _MOST)
    columns = tuple(ColumnReport.model_validate(most | {"name": column.name}) for column in report.columns)
    return ValidationReport(rows=_MOST, incomplete_rows=_MOST, columns=columns)


def _cipher(key: bytes) -> AESGCM:
    """Return a cipher of its own, for the dataset's key encrypts the records' frames and nothing else."""
    return AESGCM(hmac.digest(key, b"farthing validation report", sha256))
