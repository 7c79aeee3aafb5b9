"""A file of public weights is looked through as it comes, and nothing odd is stored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from core.base.errors import Invalid, TooLarge
from core.base.settings import ServiceSettings
from core.records.weights import MOST_HEADER_BYTES, KeptWeights, read_weights, take

TENSORS = {"0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "0.bias": np.ones(2, dtype=np.float16)}
GOOD = save(TENSORS)


def file_of(header: Any, data: bytes = b"") -> bytes:
    """Return a file with that header and those numbers."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(shape: Any = (2,), dtype: Any = "F32", offsets: Any = (0, 8)) -> dict[str, Any]:
    """Return a header of one tensor."""
    return {"w": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_what_is_taken_is_read_again(tmp_path: Path, size: int) -> None:
    path = tmp_path / "records" / "wts_1.safetensors"
    taken = take((GOOD[start : start + size] for start in range(0, len(GOOD), size)), path)
    assert taken.tensors == {"0.weight": [2, 3], "0.bias": [2]}
    assert (taken.bytes, path.read_bytes()) == (len(GOOD), GOOD)
    settings = ServiceSettings(home=tmp_path)
    found = read_weights(settings, KeptWeights(path.name, taken.digest))
    assert {name: at.dtype for name, at in found.items()} == dict.fromkeys(TENSORS, np.dtype(np.float32))
    assert all(np.array_equal(found[name], at) for name, at in TENSORS.items())
    path.write_bytes(GOOD[:-1] + b"\x01")
    with pytest.raises(AssertionError, match="not those that were taken"):
        read_weights(settings, KeptWeights(path.name, taken.digest))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cut short"),
        (GOOD[:-1], "cut short"),
        (GOOD[:20], "cut short"),
        (GOOD + b"\0", "more bytes"),
        (file_of(b"{{"), "no header in JSON"),
        (file_of(b"[1]"), "no header of tensors"),
        (file_of(b"\xff\xfe"), "no header in JSON"),
        (file_of({}), "0 tensors"),
        (file_of({"__metadata__": {"a": "b"}}), "0 tensors"),
        ((MOST_HEADER_BYTES + 1).to_bytes(8, "little"), "no safetensors file"),
        (b"\xff" * 8, "no safetensors file"),
        (file_of({"w": 1}), "`w` is not described"),
        (file_of({"w": {**one()["w"], "code": "x"}}, bytes(8)), "`w` is not described"),
        (file_of(one(dtype="I64", shape=(1,)), bytes(8)), "`w` must be of F16, F32, F64"),
        (file_of(one(dtype=["F32"]), bytes(8)), "`w` must be of"),
        (file_of(one(shape=())), "`w` must have 1 to 4 axes"),
        (file_of(one(shape=(0,), offsets=(0, 0))), "`w` must have 1 to 4 axes"),
        (file_of(one(shape=(True, 2)), bytes(8)), "`w` must have 1 to 4 axes"),
        (file_of(one(shape=(-2,)), bytes(8)), "`w` must have 1 to 4 axes"),
        (file_of(one(offsets=(0, 4)), bytes(8)), "`w` has data_offsets"),
        (file_of(one(offsets=(4, 12)), bytes(12)), "overlap, or gaps"),
        (file_of({"w\n": one()["w"]}, bytes(8)), "names a tensor"),
        (file_of({**one(), "__metadata__": {"a": 1}}, bytes(8)), "its own library"),
        (save({"w": np.array([1.0, np.nan], dtype=np.float32)}), "`w` holds numbers that are not finite"),
        (save({"w": np.array([1e300])}), "`w` holds numbers that are not finite"),
    ],
)
def test_what_is_odd_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    with pytest.raises(Invalid) as refusal:
        take([content], path)
    assert said in str(refusal.value)
    assert not path.exists()


def test_too_many_numbers_are_refused_by_the_header_alone(tmp_path: Path) -> None:
    header = file_of({"w": {"dtype": "F32", "shape": [4000, 2001], "data_offsets": [0, 4 * 4000 * 2001]}})
    asked: list[bytes] = []

    def pieces() -> Any:
        for piece in (header, b"numbers"):
            asked.append(piece)
            yield piece

    with pytest.raises((Invalid, TooLarge)):
        take(pieces(), tmp_path / "file")
    assert asked == [header], "no number was taken"
