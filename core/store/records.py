"""Records on their way out: from a canonical file to the arrays a problem is made of, and their erasure.

Only a trainer calls `read_records`, once the first chunk of its job is paid for.
"""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.catalogue.design import Design
from core.store.uploads import sync_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Encoded:
    """All records of a dataset under one design; a null record is absent and its numbers are zero."""

    features: "npt.NDArray[np.float64]"
    """Shape (n, p), C order."""
    target: "npt.NDArray[np.float64]"
    """Shape (n,): 0/1, or the scaled number."""
    present: "npt.NDArray[np.bool_]"
    """Shape (n,): false where a value the design needs is missing."""


def read_records(path: Path, design: Design, digest: str | None = None) -> Encoded:
    """Read a canonical file, batch by batch, into arrays made once.

    No more than the result and one batch are in memory at a time; the file is read, not mapped, so that its pages
    count for nobody.

    Args:
        path: a file that `core.store.decode` wrote.
        design: the encoding.
        digest: the file's stored digest, sha256:...; None leaves it unchecked.

    Raises:
        AssertionError: the file is not the one that was stored.
    """
    import numpy as np  # noqa: PLC0415 - the API, which imports this module's layer, never reads records
    import pyarrow as pa  # noqa: PLC0415 - as above

    if digest is not None:
        assert digest_of(path) == digest, "the stored records are not those that were decoded"
    names = [column.name for column in design.columns]
    target = design.target.column
    with pa.OSFile(str(path)) as file:
        options = _only([*names, target], file)
        reader = pa.ipc.open_file(file, options=options)
        batches = reader.num_record_batches
        rows = reader.count_rows()
        encoded = Encoded(np.empty((rows, design.dimension)), np.empty(rows), np.empty(rows, dtype=np.bool_))
        start = 0
        for number in range(batches):
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


def digest_of(path: Path) -> str:
    """Return the digest of a stored file, sha256:..."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def erase(path: Path) -> None:
    """Remove a canonical file, durably; one that is gone already is no error.

    The blocks are given back to the file system, not overwritten: on a disk that must not be readable afterwards,
    encrypt the volume and destroy its key.
    """
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)
