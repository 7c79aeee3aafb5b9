"""Predictions of a released network, by onnxruntime on the graph that is built here: no torch, no record, no cost."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from core.base.errors import FieldError, Invalid
from core.inference.network import ReleasedNetwork
from core.inference.network_graph import make_graph
from core.inference.predicted import Predicted
from core.inference.predictions import encoded_rows
from core.models.network.layers import Layer, Shape
from core.models.network.model import trace

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

BATCH: Final = 64
"""Rows that are computed at once, at most."""
MOST_NUMBERS: Final = 2**22
"""That one layer makes at once: 16 MB, whatever the layers are, in a process that serves everybody."""
_MOST_SESSIONS: Final = 4


class _Key:
    """A release by its model's id: rows of models never change."""

    def __init__(self, model_id: str, released: ReleasedNetwork) -> None:
        self.model_id, self.released = model_id, released

    def __hash__(self) -> int:
        # By the id alone: a release holds all its parameters.
        return hash(self.model_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.model_id == other.model_id


def predict(
    model_id: str, released: ReleasedNetwork, rows: Sequence[Mapping[str, Any]], level: float | None = None
) -> list[dict[str, Any]]:
    """Predict rows given in the dataset's own columns.

    Args:
        model_id: the model of the release.
        released: its row.
        rows: a value for each column of the model; an array as nested lists.
        level: must be left out.

    Returns:
        For each row `probability` of a binary target's second value, `probabilities` by class, or `value` in the
        target's units.

    Raises:
        Invalid: a row cannot be read; pointers start at /rows. Or an interval was asked for.
    """
    refuse_level(level)
    values = np.array(encoded_rows(released.design, rows), dtype=np.float32)
    return predict_encoded(model_id, released, values).listed()


def refuse_level(level: float | None) -> None:
    """Refuse intervals.

    Raises:
        Invalid: a level is given.
    """
    if level is not None:
        raise Invalid(
            "A network's predictions have no intervals.",
            FieldError("/level", "leave it out: the error of a prediction is not known"),
        )


def predict_encoded(model_id: str, released: ReleasedNetwork, values: np.ndarray[Any, Any]) -> Predicted:
    """Predict encoded records, shape (rows, numbers)."""
    made = run(_session(_Key(model_id, released)), released, values)
    classes = released.classes
    if classes is None:
        return Predicted("value", made)
    if released.design.target.kind == "binary":
        return Predicted("probability", made[:, 1:])
    return Predicted("probabilities", made, classes)


def run(session: "InferenceSession", released: ReleasedNetwork, encoded: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return probabilities, or values in the target's units, shape (rows, outputs).

    Args:
        session: of the release, on encoded records.
        released: its row.
        encoded: shape (rows, numbers).
    """
    whole = released.design.number_type == "int32"
    records = encoded.reshape(-1, *released.shape).astype(np.int64 if whole else np.float32)
    name = "probabilities" if released.classes is not None else "value"
    size = rows_at_once(released.model.layers, released.shape)
    parts = [
        session.run([name], {"values": records[start : start + size]})[0] for start in range(0, len(records), size)
    ]
    return np.concatenate(parts)


def rows_at_once(layers: tuple[Layer, ...], given: Shape) -> int:
    """Return how many rows are computed at once, so that no layer makes more than MOST_NUMBERS of them."""
    widest = max(prod(one.made) for one in trace(layers, given))
    return max(1, min(BATCH, MOST_NUMBERS // widest))


@lru_cache(maxsize=_MOST_SESSIONS)
def _session(key: _Key) -> "InferenceSession":
    return open_session(key.released)


def open_session(released: ReleasedNetwork) -> "InferenceSession":
    """Return a session of a release on encoded records, on one thread."""
    from onnxruntime import InferenceSession, SessionOptions  # noqa: PLC0415 - only networks pay for it

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    graph = make_graph(released.model, released.design, released.tensors, {}, encoded=True)
    return InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
