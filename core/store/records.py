"""Records on their way out: from a stored canonical file to the arrays a problem is made of.

Only a trainer calls `read_records`, once the first chunk of its job is paid for.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from core.catalogue.design import Design
from core.settings import ServiceSettings
from core.store.encryption import Decrypting
from core.store.files import closed_on_failure, digest_of
from core.store.master_key import load_master_keys
from core.store.storage import open_storage
from core.store.tables import Dataset

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Kept:
    """Where a dataset's records are, and what is needed to read them."""

    dataset_id: str
    location: str
    digest: str
    """sha256:... of the stored file."""
    wrapped_key: str | None
    """None: they were stored before there was encryption."""


@dataclass(frozen=True)
class Encoded:
    """All records of a dataset under one design; a null record is absent and its numbers are zero."""

    features: "npt.NDArray[np.float64]"
    """Shape (n, p), C order."""
    target: "npt.NDArray[np.float64]"
    """Shape (n,): 0/1, or the scaled number."""
    present: "npt.NDArray[np.bool_]"
    """Shape (n,): false where a value the design needs is missing."""


def kept_of(dataset: Dataset) -> Kept:
    """Return where a dataset's records are; it must be one that has some."""
    assert dataset.location is not None, "a dataset that is ready has records"
    assert dataset.location_digest is not None, "a dataset that is ready has a digest"
    return Kept(dataset.id, dataset.location, dataset.location_digest, dataset.wrapped_key)


def open_records(settings: ServiceSettings, kept: Kept) -> BinaryIO:
    """Open a dataset's canonical file for reading at any place; every byte that is read is one that was stored.

    Frames of an encrypted file are checked as they are read. One from before there was encryption is compared with
    its digest first.

    Raises:
        NotReady: the storage does not answer, or there is no master key, or another one than they were stored under.
        FileNotFoundError: the file is gone.
        Tampered: file or key are not those that were stored.
        AssertionError: an unencrypted file is not the one that was stored.
    """
    if kept.wrapped_key is not None:
        key = load_master_keys(settings).unwrap(kept.dataset_id, kept.wrapped_key)
        file = open_storage(settings).open(kept.location)
        with closed_on_failure(file):
            return Decrypting(file, key, kept.dataset_id)  # type: ignore[return-value] # reads like one
    file = open_storage(settings).open(kept.location)
    with closed_on_failure(file):
        assert digest_of(file) == kept.digest, "the stored records are not those that were decoded"
        file.seek(0)
        return file


def read_records(source: BinaryIO, design: Design) -> Encoded:
    """Read a canonical file, batch by batch, into arrays made once.

    No more than the result and one batch are in memory at a time; the file is read, not mapped, so that its pages
    count for nobody.

    Args:
        source: what `open_records` opened; it is left open.
        design: the encoding.

    Raises:
        AssertionError: the file is cut short.
        Tampered: a part that is needed is not the one that was stored.
    """
    import numpy as np  # noqa: PLC0415 - the API, which imports this module's layer, never reads records
    import pyarrow as pa  # noqa: PLC0415 - as above

    names = [column.name for column in design.columns]
    target = design.target.column
    file = pa.PythonFile(source, "r")
    reader = pa.ipc.open_file(file, options=_only([*names, target], file))
    rows = reader.count_rows()
    encoded = Encoded(np.empty((rows, design.dimension)), np.empty(rows), np.empty(rows, dtype=np.bool_))
    start = 0
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        stop = start + batch.num_rows
        values = {name: batch.column(name).to_numpy() for name in {*names, target}}
        present = encoded.present[start:stop]
        present[:] = True
        for column in values.values():
            present &= ~np.isnan(column) if column.dtype.kind == "f" else column >= 0
        design.encode_columns(values, encoded.features[start:stop])
        encoded.features[start:stop][~present] = 0.0
        encoded.target[start:stop] = (values[target] - design.target.centre) / design.target.scale
        encoded.target[start:stop][~present] = 0.0
        start = stop
    assert start == rows, "the stored records are cut short"
    return encoded


def _only(names: list[str], file: Any) -> Any:  # noqa: ANN401 - pyarrow ships no types
    """Return options that leave the other columns of a canonical file on the disk."""
    import pyarrow as pa  # noqa: PLC0415 - as in `read_records`

    schema = pa.ipc.open_file(file).schema
    return pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names], use_threads=False)
