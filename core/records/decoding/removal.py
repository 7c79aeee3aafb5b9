"""The removal of a row: a canonical file written anew under another key, with one row that is missing in every column.

The row stays in its place, so that the number of records and the places of all others stay, too. Its cells are missing
as unreadable ones are, also in columns with a `fill`, which is applied to an upload only. A child process does it,
since the service's own processes load neither NumPy nor Arrow.
"""

from typing import Any

from pydantic import Field, ValidationError

from core.base.errors import Refusal, ensure
from core.base.files import digest_of
from core.privacy.facts import Frozen
from core.records.decoding.child import Child, ChildRefusal, answering, limit, refuse
from core.records.decoding.decode import DISK_SLACK_BYTES, Limits, leave_free
from core.records.encryption import SealedFile


class Rewritten(Frozen):
    """A canonical file that was written anew."""

    bytes: int = Field(description="of the encrypted file")
    digest: str = Field(description="sha256:... of the encrypted file, as it is stored")


class _Request(Frozen):
    source: SealedFile
    target: SealedFile
    row: int
    limits: Limits


class _Answer(Frozen):
    is_missing: bool = False
    rewritten: Rewritten | None = None
    problem: ChildRefusal | None = None


def remove_row(source: SealedFile, target: SealedFile, row: int, *, limits: Limits) -> Rewritten | None:
    """Write a canonical file anew without the cells of one row, in a child process under limits.

    Args:
        source: the canonical file; it stays as it is.
        target: where the other one goes, under a key of its own; it must not exist.
        row: from 1.
        limits: the child's memory and time, and the disk that stays free.

    Returns:
        None: the row has no cell already, and nothing was written.

    Raises:
        DiskFull: it would leave less disk free than is to stay so.
        Invalid: the child crashed or passed a limit.
    """
    paths = {"source": source, "target": target}
    files = {name: file.model_copy(update={"path": file.path.resolve()}) for name, file in paths.items()}
    request = _Request(**files, row=row, limits=limits)
    found = Child("core.records.decoding.removal").ask(request.model_dump_json(), limits.seconds)
    try:
        answer = _Answer.model_validate_json(found)
    except ValidationError:
        answer = _Answer()
    if not answer.is_missing and answer.rewritten is None:
        target.path.unlink(missing_ok=True)
        refuse(answer.problem)
    return answer.rewritten


def rewrite(source: SealedFile, target: SealedFile, row: int, *, free_bytes: int = 0) -> Rewritten | None:
    """As `remove_row`, in this process."""
    import pyarrow as pa  # noqa: PLC0415 - the parent, which is the API, needs no Arrow

    with source.open() as stored:
        reader = pa.ipc.open_file(pa.PythonFile(stored, "r"))
        first = 0
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            if first < row <= first + batch.num_rows:
                break
            first += batch.num_rows
        else:
            raise AssertionError("the service has compared the row with the number of rows")
        found = batch.slice(row - 1 - first, 1)
        blank = pa.record_batch([_missing(field.type) for field in reader.schema], schema=reader.schema)
        if all(_is_missing(column) for column in found.columns):
            return None
        with target.writing() as sink, pa.ipc.new_file(pa.PythonFile(sink, "w"), reader.schema) as writer:
            for place in range(reader.num_record_batches):
                leave_free(target.path.parent, free_bytes)
                whole = reader.get_batch(place)
                # One batch as before: another cut would round the sums of each part otherwise.
                writer.write_batch(whole if place != number else _with(whole, row - 1 - first, blank))
    with target.path.open("rb") as file:
        return Rewritten(bytes=target.path.stat().st_size, digest=digest_of(file))


def _with(batch: Any, place: int, blank: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Return a batch with another row in one place."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    parts = [batch.slice(0, place), blank, batch.slice(place + 1)]
    (whole,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    ensure(whole.num_rows == batch.num_rows, "every other row stays in its place")
    return whole


def _missing(kind: Any) -> Any:  # noqa: ANN401 - as above
    """Return one missing cell of a column of a canonical file."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if pa.types.is_fixed_size_list(kind):
        return pa.nulls(1, kind)
    return pa.array([float("nan") if pa.types.is_floating(kind) else -1], kind)


def _is_missing(column: Any) -> bool:  # noqa: ANN401 - as above
    (cell,) = column.to_pylist()
    # Codes are whole numbers and negative where they are missing; NaN differs from itself.
    return cell is None or cell != cell or (isinstance(cell, int) and cell < 0)  # noqa: PLR0124 - as said


def _answer(line: bytes) -> str:
    request = _Request.model_validate_json(line)
    limits = request.limits
    limit(
        memory_bytes=limits.memory_bytes,
        seconds=limits.seconds,
        file_bytes=DISK_SLACK_BYTES + request.source.path.stat().st_size,
    )
    try:
        found = rewrite(request.source, request.target, request.row, free_bytes=limits.free_bytes)
        answer = _Answer(is_missing=found is None, rewritten=found)
    except Refusal as refusal:
        answer = _Answer(problem=ChildRefusal.of(refusal))
    return answer.model_dump_json()


if __name__ == "__main__":
    answering(_answer)
