"""From an uploaded file to canonical columns: in a child process of its own, under limits, batch by batch.

The file is not trusted and the libraries that read it are large. The process that reads it therefore holds no secret
but this file's own keys and that of its owner's row hashes. Memory, processor time and disk are limited, and it is
killed when its time is up. Its parent reads one small JSON answer. Its input and its output are encrypted on the disk.

The canonical file is an uncompressed Arrow IPC file with one column for each declared one and one row for each row of
the upload, in order. Numbers are float64 in the units that enter a model (days since `lower` for dates; NaN: missing).
Categories are int32 codes and binary columns int8 (-1: missing). Arrays are lists of one length
(`core.records.decoding.arrays`; null: missing).
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from core.base.errors import DiskFull, FieldError, Invalid, Refusal
from core.base.files import digest_of
from core.data.columns import Column, numbers_in
from core.data.reading import Reading
from core.privacy.facts import Frozen
from core.records.decoding.child import Child, ChildRefusal, answering, limit, refuse
from core.records.decoding.likeness import Summarized
from core.records.decoding.validation import ValidationReport
from core.records.encryption import SealedFile

_BYTES_PER_CELL = 8
_BATCH_BYTES = 8 * 2**20  # of the canonical file, however wide it is: a trainer holds one batch at a time
DISK_SLACK_BYTES = 64 * 2**20
_MEDIA_TYPES = {
    "text/csv": "csv",
    "application/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/vnd.apache.arrow.file": "arrow-file",
    "application/vnd.apache.arrow.stream": "arrow-stream",
    "application/x-npz": "npz",
}


class Limits(Frozen):
    """Limits of decoding one file."""

    rows: int = Field(default=20_000_000, gt=0)
    columns: int = Field(default=2_000, gt=0)
    cells: int = Field(default=1_000_000_000, gt=0, description="of declared columns, numbers of arrays")
    seconds: float = Field(default=600.0, gt=0)
    memory_bytes: int = Field(default=4 * 2**30, gt=0, description="address space of the child")
    bytes: int | None = Field(default=None, gt=0, description="of disk that the owner has left")
    free_bytes: int = Field(default=0, ge=0, description="of disk that are to stay free, whoever else writes meanwhile")


class Decoded(Frozen):
    """The result of decoding into a canonical file."""

    rows: int
    bytes: int = Field(description="of the encrypted file")
    digest: str = Field(description="sha256:... of the encrypted file, as it is stored")
    report: ValidationReport
    records: Summarized | None = Field(default=None, description="keyed; None where no key was given")


class _Request(Frozen):
    source: SealedFile
    target: SealedFile
    columns: tuple[Column, ...]
    reading: Reading | None
    media: str | None
    limits: Limits
    row_key: str | None


class _Answer(Frozen):
    decoded: Decoded | None = None
    problem: ChildRefusal | None = None


def format_of(content_type: str | None) -> str | None:
    """Return what a Content-Type says of a file, one of `formats.Format`; None: look at the file."""
    return _MEDIA_TYPES.get((content_type or "").split(";")[0].strip().lower())


def decode_upload(
    source: SealedFile,
    target: SealedFile,
    columns: Sequence[Column],
    *,
    limits: Limits,
    reading: Reading | None = None,
    media: str | None = None,
    rows: int | None = None,
    row_key: bytes | None = None,
) -> Decoded:
    """Decode `source` into the canonical file `target`, in a child process under `limits`.

    Args:
        source: the uploaded file; it is left where it is.
        target: where the canonical file goes; it must not exist, and exists afterwards only if it is complete.
        columns: the declaration.
        limits: the child's memory, time and size of output.
        reading: the declared form of a CSV file; None: UTF-8 with commas and points.
        media: the format by the sender's word (`format_of`); None: its first bytes decide.
        rows: the number of rows that the owner declared; None: any number.
        row_key: 32 bytes, the owner's own, under which the records are summarized; None: they are not.

    Raises:
        Invalid: structure or types are wrong, the rows are not as many as declared, or the child crashed or passed a
            limit. Nothing is left behind.
        TooLarge: more rows, columns or cells than are taken.
        DiskFull: it would leave less disk free than is to stay so.
    """
    source, target = _resolved(source), _resolved(target)
    try:
        key = None if row_key is None else row_key.hex()
        request = _Request(
            source=source, target=target, columns=columns, reading=reading, media=media, limits=limits, row_key=key
        )
        decoded = _ask_child(request)
        check_rows(decoded.rows, rows)
    except BaseException:
        target.path.unlink(missing_ok=True)
        raise
    return decoded


def _resolved(file: SealedFile) -> SealedFile:
    """Return the file by a path that also holds in the child's folder."""
    return file.model_copy(update={"path": file.path.resolve()})


def check_rows(found: int, declared: int | None) -> None:
    """Refuse a file with another number of rows than declared.

    Raises:
        Invalid: it has.
    """
    if declared is not None and found != declared:
        raise Invalid(
            f"The file holds {found} rows, not the {declared} that were declared.",
            FieldError("/rows", "send the whole file, or declare the right number"),
        )


def _ask_child(request: _Request) -> Decoded:
    answer = Child("core.records.decoding.decode").ask(request.model_dump_json(), request.limits.seconds)
    try:
        parsed = _Answer.model_validate_json(answer)
    except ValidationError:
        parsed = _Answer()
    if parsed.decoded is None:
        refuse(parsed.problem)
    return parsed.decoded


def decode(
    source: SealedFile,
    target: SealedFile,
    columns: Sequence[Column],
    *,
    limits: Limits,
    media: str | None,
    reading: Reading | None = None,
    row_key: bytes | None = None,
) -> Decoded:
    """Decode in this process; `decode_upload` is for files that are not trusted.

    Raises:
        Invalid: structure or types are wrong.
        TooLarge: more rows, columns or cells than are taken.
    """
    import pyarrow as pa  # noqa: PLC0415 - the parent, which is the API, needs neither numpy nor Arrow

    from core.records.decoding.arrays import kept_bytes  # noqa: PLC0415 - as above
    from core.records.decoding.checks import Caps  # noqa: PLC0415 - as above
    from core.records.decoding.conversion import Conversion  # noqa: PLC0415 - as above
    from core.records.decoding.summary import RowSummary  # noqa: PLC0415 - as above

    caps = Caps(limits.rows, limits.columns, limits.cells)
    file = Conversion(source, columns, caps, media=media, reading=reading)
    summary = None if row_key is None else RowSummary(file.columns, row_key)
    length = max(1, _BATCH_BYTES // sum(kept_bytes(column) for column in columns))
    with target.writing() as sink, pa.ipc.new_file(pa.PythonFile(sink, "w"), file.schema) as writer:
        for batch in file.batches(None if summary is None else summary.columns):
            if summary is not None:
                summary.add()
            for start in range(0, batch.num_rows, length):
                leave_free(target.path.parent, limits.free_bytes)
                writer.write_batch(batch.slice(start, length))
    report = file.report
    with target.path.open("rb") as written:
        size, digest = target.path.stat().st_size, digest_of(written)
    records = None if summary is None else summary.finish()
    return Decoded(rows=report.rows, bytes=size, digest=digest, report=report, records=records)


def leave_free(folder: Path, least_bytes: int) -> None:
    """Refuse to write on where little disk is free: by what was promised, others may be writing as well."""
    if least_bytes and shutil.disk_usage(folder).free < least_bytes:
        raise DiskFull("The service has too little free disk to take this upload.")


def _answer(line: bytes) -> str:
    request = _Request.model_validate_json(line)
    limits = request.limits
    cells = min(limits.cells, limits.rows * sum(map(numbers_in, request.columns)))
    limit(
        memory_bytes=limits.memory_bytes,
        seconds=limits.seconds,
        file_bytes=DISK_SLACK_BYTES + min(cells * _BYTES_PER_CELL, limits.bytes or sys.maxsize),
    )
    try:
        answer = _Answer(
            decoded=decode(
                request.source,
                request.target,
                request.columns,
                limits=limits,
                media=request.media,
                reading=request.reading,
                row_key=None if request.row_key is None else bytes.fromhex(request.row_key),
            )
        )
    except Refusal as refusal:
        answer = _Answer(problem=ChildRefusal.of(refusal))
    return answer.model_dump_json()


if __name__ == "__main__":
    answering(_answer)
