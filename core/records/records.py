"""Records on their way out: from a stored canonical file to the arrays a problem is made of.

Only a trainer calls `read_records`, once the first chunk of its job is paid for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from core.base.errors import ensure
from core.base.files import closed_on_failure
from core.base.settings import ServiceSettings
from core.data.tiny import drop_tiny
from core.db.tables import Dataset
from core.models.design import Design
from core.records.encryption import Decrypting
from core.records.master_key import load_master_keys
from core.records.storage import open_storage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LINE_BYTES: Final = 64
"""Of a cache line."""


@dataclass(frozen=True)
class StoredRecords:
    """Where a dataset's records are, and what is needed to read them."""

    dataset_id: str
    location: str
    digest: str
    """sha256:... of the stored file."""
    wrapped_key: str
    """The key that they are encrypted under, itself encrypted under the site's master key."""


@dataclass(frozen=True)
class Encoded:
    """All records of a dataset under one design; an excluded row is absent and its numbers are zero."""

    features: "npt.NDArray[Any]"
    """Shape (n, p), C order, of the design's `number_type`."""
    target: "npt.NDArray[np.float64]"
    """Shape (n,): 0/1, or the scaled number."""
    present: "npt.NDArray[np.bool_]"
    """Shape (n,): false where a value the design needs is missing; true everywhere where the design keeps those."""
    offset: "npt.NDArray[np.float64] | None" = None
    """Shape (n,): the offset, added to the predictor; None: there is none, or it is taken from the target."""
    sampling: "npt.NDArray[np.float64] | None" = None
    """Shape (n,): 0 to 1, how often a record counts; None: once each."""


def kept_of(dataset: Dataset) -> StoredRecords:
    """Return where a dataset's records are; it must be one that has some."""
    assert dataset.location is not None, "a dataset that is ready has records"
    assert dataset.location_digest is not None, "a dataset that is ready has a digest"
    assert dataset.wrapped_key is not None, "a dataset that is ready has a key"
    return StoredRecords(dataset.id, dataset.location, dataset.location_digest, dataset.wrapped_key)


def open_records(settings: ServiceSettings, kept: StoredRecords, key: bytes | None = None) -> BinaryIO:
    """Open a dataset's canonical file for reading at any place; every byte that is read is one that was stored.

    Its frames are decrypted and checked as they are read.

    Args:
        settings: where the storage is, and the master key.
        kept: where the records are.
        key: the dataset's own, for whoever has no master key; None: it is unwrapped.

    Raises:
        NotReady: the storage does not answer, or there is no master key, or another one than they were stored under.
        FileNotFoundError: the file is gone.
        Tampered: file or key are not those that were stored.
    """
    key = key or load_master_keys(settings).unwrap(kept.dataset_id, kept.wrapped_key)
    file = open_storage(settings).open(kept.location)
    with closed_on_failure(file):
        return Decrypting(file, key, kept.dataset_id)  # type: ignore[return-value] # reads like one


def read_records(source: BinaryIO, design: Design, rows: range | None = None) -> Encoded:
    """Read a canonical file, or a run of its rows, batch by batch, into arrays made once.

    No more than the result and one batch are in memory at a time, 4 bytes for each number of an array; the file is
    read, not mapped, so that its pages count for nobody.

    Args:
        source: the file that `open_records` opened; it is left open.
        design: the encoding.
        rows: which to read, one after the other; None: all. Of batches without such rows, one narrow column is looked
            at, which tells how long they are.

    Raises:
        PrivacyInvariantError: the file is cut short.
        Tampered: a part that is needed is not the one that was stored.
    """
    import numpy as np  # noqa: PLC0415 - the API, which imports this module's layer, never reads records
    import pyarrow as pa  # noqa: PLC0415 - as above

    names, target = design.read, design.target.column
    file = pa.PythonFile(source, "r")
    reader = pa.ipc.open_file(file, options=_only([*names, target], file))
    wanted = range(sum(_lengths(file, reader.num_record_batches))) if rows is None else rows
    encoded = Encoded(
        _aligned(len(wanted), design.dimension, kind=design.number_type),
        _aligned(len(wanted)),
        np.empty(len(wanted), dtype=np.bool_),
        None if design.margin_offset is None else _aligned(len(wanted)),
        None if design.sampling is None else _aligned(len(wanted)),
    )
    start = 0
    for number, piece in _pieces(file, reader.num_record_batches, rows):
        batch = reader.get_batch(number)[piece]
        stop = start + batch.num_rows
        values, present = {}, encoded.present[start:stop]
        present[:] = True
        missing = {}
        for name in {*names, target}:
            values[name], known = _numbers(batch.column(name))
            missing[name] = ~known
            present &= known
        design.encode_columns(values, encoded.features[start:stop])
        if design.keeps_missing:
            present[:] = True
            for place, name in enumerate(names):
                encoded.features[start:stop, place][missing[name]] = np.nan
        # Zeros add nothing to sums; until here these rows may hold NaN, which would spread.
        encoded.features[start:stop][~present] = 0
        encoded.target[start:stop] = (values[target] - design.target.centre) / design.target.scale
        _encode_beside(design, values, encoded, slice(start, stop))
        for numbers in (encoded.target, encoded.offset, encoded.sampling):
            if numbers is not None:
                numbers[start:stop][~present] = 0.0
                drop_tiny(numbers[start:stop])
        start = stop
    ensure(start == len(wanted), "the stored records are cut short")
    return encoded


def _encode_beside(design: Design, values: "dict[str, npt.NDArray[Any]]", encoded: Encoded, rows: slice) -> None:
    """Fill offsets and weights of some rows, or take a number's offset from its target."""
    import numpy as np  # noqa: PLC0415 - as in `read_records`

    if design.offset is not None:
        coding = design.offset
        given = values[coding.column.name].astype(np.float64)
        offset = ((np.log(given) if coding.log else given) - coding.centre) / coding.unit
        if encoded.offset is None:
            encoded.target[rows] -= offset
        else:
            encoded.offset[rows] = offset
    if encoded.sampling is not None:
        assert design.sampling is not None, "there are weights because the design has them"
        encoded.sampling[rows] = values[design.sampling.column.name].astype(np.float64) / design.sampling.largest


def _numbers(column: Any) -> "tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]":  # noqa: ANN401 - as below
    """Return what is kept of a column in some rows, and in which of them it is known."""
    import numpy as np  # noqa: PLC0415 - as in `read_records`
    import pyarrow as pa  # noqa: PLC0415 - as in `read_records`

    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        # `values` knows nothing of the array's offset, but keeps null rows, which `flatten` would drop.
        numbers = column.values.slice(column.offset * size, len(column) * size).to_numpy()
        return numbers.reshape(-1, size), column.is_valid().to_numpy(zero_copy_only=False)
    values = column.to_numpy()
    # Codes are whole numbers and have no NaN: below zero they are missing.
    return values, ~np.isnan(values) if values.dtype.kind == "f" else values >= 0


def _pieces(file: Any, batches: int, rows: range | None) -> Iterator[tuple[int, slice]]:  # noqa: ANN401 - as below
    """Yield the numbers of batches that hold some of the rows, and which of their rows those are."""
    if rows is None:
        yield from ((number, slice(None)) for number in range(batches))
        return
    first = 0
    for number, length in enumerate(_lengths(file, batches)):
        if first + length > rows.start:
            yield number, slice(max(0, rows.start - first), min(length, rows.stop - first))
        first += length
        if first >= rows.stop:
            return


def _lengths(file: Any, batches: int) -> Iterator[int]:  # noqa: ANN401 - as below
    """Yield how many rows each batch has; reads one narrow column, where the library's own count reads all of them."""
    import pyarrow as pa  # noqa: PLC0415 - as in `read_records`

    narrow = min(pa.ipc.open_file(file).schema, key=lambda field: _row_bits(field.type))
    reader = pa.ipc.open_file(file, options=_only([narrow.name], file))
    for number in range(batches):
        yield reader.get_batch(number).num_rows


def _row_bits(kind: Any) -> int:  # noqa: ANN401 - as below
    """Return how many bits a row takes in a column of a canonical file."""
    import pyarrow as pa  # noqa: PLC0415 - as in `read_records`

    width: int = kind.list_size * kind.value_type.bit_width if pa.types.is_fixed_size_list(kind) else kind.bit_width
    return width


def _aligned(*shape: int, kind: str = "float64") -> "npt.NDArray[Any]":
    """Return an empty array that begins where a cache line does: products then round alike in every process."""
    import numpy as np  # noqa: PLC0415 - as in `read_records`

    size, line = prod(shape), _LINE_BYTES // np.dtype(kind).itemsize
    raw = np.empty(size + line, dtype=kind)
    skipped = -(raw.ctypes.data // raw.itemsize) % line
    return raw[skipped : skipped + size].reshape(shape)


def _only(names: list[str], file: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Return options that leave the other columns of a canonical file on the disk."""
    import pyarrow as pa  # noqa: PLC0415 - as in `read_records`

    schema = pa.ipc.open_file(file).schema
    return pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names], use_threads=False)
