"""Public weights: a safetensors file is looked through before it is taken, stored under its digest, and read again.

Such a file is a length, a JSON header and numbers: nothing in it can run. Its header is checked when it has arrived,
before any of the numbers is taken.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, TooLarge, ensure
from core.base.files import create
from core.base.settings import ServiceSettings
from core.db.tables import Job, PublicWeights
from core.records.storage import open_storage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PREFIX: Final = "wts"
LENGTH_BYTES: Final = 8
MOST_HEADER_BYTES: Final = 2**20
MOST_TENSORS: Final = 4096
MOST_NUMBERS: Final = 8_000_000
"""More than any network that is offered has."""
MOST_AXES: Final = 4
LONGEST_NAME: Final = 200
NUMBER_BYTES: Final = {"F16": 2, "F32": 4, "F64": 8}
MOST_BYTES: Final = LENGTH_BYTES + MOST_HEADER_BYTES + 8 * MOST_NUMBERS
METADATA: Final = "__metadata__"

Shapes = dict[str, list[int]]


class ReceivedFile(NamedTuple):
    """A file that arrived whole and is sound."""

    digest: str
    bytes: int
    tensors: Shapes


class KeptWeights(NamedTuple):
    """Where public weights are, and what they must hash to."""

    location: str
    digest: str


def take(pieces: Iterable[bytes], path: Path) -> ReceivedFile:
    """Write an upload to a new file, as long as it is a sound safetensors file.

    Args:
        pieces: of the body, in order.
        path: of the file, which is removed where it is refused.

    Raises:
        Invalid: it is no safetensors file, cut short, or has tensors that no network could start from; they are named.
        TooLarge: it passes a limit.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with create(path) as file:
        try:
            taken = _take(iter(pieces), file)
            file.flush()
            _refuse_odd_numbers(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return taken


def _take(pieces: Iterable[bytes], file: BinaryIO) -> ReceivedFile:
    digest, size, head = sha256(), 0, bytearray()
    shapes: Shapes | None = None
    expected = MOST_BYTES
    for piece in pieces:
        size += len(piece)
        if size > expected:
            raise _too_large() if shapes is None else _wrong("", "has more bytes than its header says")
        digest.update(piece)
        if shapes is None:
            head += piece
            # Nothing is written before the header is checked.
            found = _header(head)
            if found is None:
                continue
            shapes, expected = found
            # The limit was unknown before: this piece may already hold more than the header says.
            if size > expected:
                raise _wrong("", "has more bytes than its header says")
            piece = bytes(head)  # noqa: PLW2901 - what was held back until the header was seen
        file.write(piece)
    if shapes is None or size != expected:
        raise _wrong("", "is cut short")
    return ReceivedFile(f"sha256:{digest.hexdigest()}", size, shapes)


def _header(head: bytearray) -> tuple[Shapes, int] | None:
    """Return the tensors' shapes and the size of the whole file, once the header is there."""
    if len(head) < LENGTH_BYTES:
        return None
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    if not 2 <= length <= MOST_HEADER_BYTES:  # noqa: PLR2004 - the braces
        raise _wrong("", f"is no safetensors file, or has a header of more than {MOST_HEADER_BYTES} bytes")
    if len(head) < LENGTH_BYTES + length:
        return None
    try:
        told = json.loads(head[LENGTH_BYTES : LENGTH_BYTES + length].decode("utf-8"))
    # Deeply nested JSON ends in RecursionError.
    except (ValueError, RecursionError):
        raise _wrong("", "has no header in JSON: it is no safetensors file") from None
    if not isinstance(told, dict):
        raise _wrong("", "has no header of tensors: it is no safetensors file")
    told.pop(METADATA, None)
    shapes, data = _tensors(told)
    return shapes, LENGTH_BYTES + length + data


def _tensors(told: Mapping[str, Any]) -> tuple[Shapes, int]:
    """Return the shapes of sound tensors that lie one behind the other, and how many bytes they are."""
    if not 1 <= len(told) <= MOST_TENSORS:
        raise _wrong("", f"has {len(told)} tensors; 1 to {MOST_TENSORS} are taken")
    shapes: Shapes = {}
    spans: list[tuple[int, int]] = []
    for name, one in told.items():
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            raise _wrong("", f"names a tensor by other than 1 to {LONGEST_NAME} printable letters")
        shapes[name], span = _tensor(name, one)
        spans.append(span)
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise _wrong("", "has tensors that overlap, or gaps between them")
        end = last
    if sum(prod(shape) for shape in shapes.values()) > MOST_NUMBERS:
        raise _too_large()
    return shapes, end


def _tensor(name: str, one: object) -> tuple[list[int], tuple[int, int]]:
    """Return a tensor's shape and its place among the numbers."""
    if not isinstance(one, dict) or set(one) != {"dtype", "shape", "data_offsets"}:
        raise _wrong(name, "is not described by dtype, shape and data_offsets")
    width = NUMBER_BYTES.get(one["dtype"]) if isinstance(one["dtype"], str) else None
    if width is None:
        raise _wrong(name, f"must be of {', '.join(NUMBER_BYTES)}")
    shape, span = one["shape"], one["data_offsets"]
    if not _whole(shape, least=1) or not 1 <= len(shape) <= MOST_AXES or prod(shape) > MOST_NUMBERS:
        raise _wrong(name, f"must have 1 to {MOST_AXES} axes and at most {MOST_NUMBERS:,} numbers")
    if not _whole(span, least=0) or len(span) != 2 or span[1] - span[0] != width * prod(shape):  # noqa: PLR2004 - first and last
        raise _wrong(name, "has data_offsets that do not fit its shape")
    return shape, (span[0], span[1])


def _whole(values: object, least: int) -> bool:
    if not isinstance(values, list):
        return False
    # JSON's true and false are instances of int.
    return all(type(one) is int and least <= one <= MOST_BYTES for one in values)


def _refuse_odd_numbers(path: Path) -> None:
    import numpy as np  # noqa: PLC0415 - only those who take or read weights pay for it
    from safetensors import SafetensorError  # noqa: PLC0415 - as above

    try:
        found = _load(path.read_bytes())
    except SafetensorError:
        raise _wrong("", "is no safetensors file that its own library reads") from None
    for name, values in found.items():
        if not np.isfinite(values).all():
            raise _wrong(name, "holds numbers that are not finite in single precision")


def _load(content: bytes) -> "dict[str, npt.NDArray[np.float32]]":
    import numpy as np  # noqa: PLC0415 - as above
    from safetensors.numpy import load  # noqa: PLC0415 - as above

    # Doubles beyond single precision become infinite, and `_refuse_odd_numbers` names them.
    with np.errstate(over="ignore"):
        return {name: values.astype(np.float32) for name, values in load(content).items()}


def read_weights(settings: ServiceSettings, kept: KeptWeights) -> "dict[str, npt.NDArray[np.float32]]":
    """Return stored weights, float32, by name.

    Raises:
        NotReady: the storage does not answer.
        FileNotFoundError: the file is gone.
        PrivacyInvariantError: it is not the one that was stored.
    """
    with open_storage(settings).open(kept.location) as file:
        content = file.read()
    # Compared before anything is parsed, for the storage need not be trusted.
    ensure(f"sha256:{sha256(content).hexdigest()}" == kept.digest, "the stored weights are not those that were taken")
    return _load(content)


def find(session: Session, owner_id: str | None, weights_id: str) -> PublicWeights | None:
    """Return weights by their id, of that owner, or of anybody where that is None."""
    found = session.get(PublicWeights, weights_id)
    return found if found is not None and owner_id in {None, found.owner_id} else None


def same(session: Session, owner_id: str, digest: str, site: str) -> PublicWeights | None:
    """Return the owner's weights with these very bytes, if a site keeps any."""
    bytes_of = (PublicWeights.owner_id == owner_id, PublicWeights.digest == digest, PublicWeights.site == site)
    return session.execute(select(PublicWeights).where(*bytes_of)).scalar_one_or_none()


def page(session: Session, owner_id: str | None, after: str | None, limit: int) -> Sequence[PublicWeights]:
    """Return up to `limit` weights, newest first: of one owner, or of all."""
    statement = select(PublicWeights)
    if owner_id is not None:
        statement = statement.where(PublicWeights.owner_id == owner_id)
    if after:
        statement = statement.where(PublicWeights.id < after)
    return session.execute(statement.order_by(PublicWeights.id.desc()).limit(limit)).scalars().all()


def locations(session: Session) -> set[str]:
    """Return the names of all stored weights that somebody has."""
    return set(session.execute(select(PublicWeights.location)).scalars())


def needed_by(session: Session, weights_id: str) -> str | None:
    """Return a job that has not ended and starts from these weights; None where there is none."""
    live = select(Job.id, Job.spec).where(Job.finished_at.is_(None))
    return next((row[0] for row in session.execute(live) if row[1]["model"].get("pretrained") == weights_id), None)


def _wrong(name: str, detail: str) -> Invalid:
    """Return the refusal of a file, or of one of its tensors."""
    if not name:
        return Invalid(f"The file {detail}.", FieldError("", f"{detail}; send a whole safetensors file"))
    return Invalid(f"The tensor `{name}` {detail}.", FieldError("", f"`{name}` {detail}"))


def _too_large() -> TooLarge:
    return TooLarge(f"Weights are at most {MOST_NUMBERS:,} numbers and {MOST_BYTES:,} bytes.", limit_bytes=MOST_BYTES)
