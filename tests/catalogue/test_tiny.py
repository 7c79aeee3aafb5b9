"""Numbers whose products are slow become zero where records are encoded, so that no pass takes longer for them."""

import time
from math import isnan
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from scipy import stats

from core.catalogue.columns import Columns
from core.catalogue.design import make_design
from core.catalogue.models import LinearModel, LogisticModel
from core.catalogue.network.layers import Linear
from core.catalogue.network.model import NetworkModel
from core.catalogue.questions import Curvature, Gradient
from core.catalogue.tiny import LEAST, LEAST_SINGLE
from core.oracle.noise import grid_for
from core.problems.linear import LinearProblem
from tests.support.problems import LOGISTIC, WEIGHTS, facts

SMALLEST_NORMAL = {np.float64: 2.0**-1022, np.float32: 2.0**-126}
TINY = [0.0, 5e-324, -1e-310, 1e-300, 2.0**-501, 2.0**-499, -(2.0**-61), 2.0**-59, 1e-5, np.nan, 1.0]
COLUMNS: list[dict[str, Any]] = [
    {"name": "x", "type": "number", "lower": -1, "upper": 1},
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
    {"name": "z", "type": "number", "lower": -1, "upper": 1},
]


def declared(columns: list[dict[str, Any]] = COLUMNS) -> Any:
    return TypeAdapter(Columns).validate_python(columns)


def assert_normal(encoded: Any, kind: Any) -> None:
    """Say that no product of two of these numbers is denormal."""
    known = np.abs(encoded[np.isfinite(encoded) & (encoded != 0)]).astype(np.float64)
    assert known.size > 0
    assert known.min() ** 2 >= SMALLEST_NORMAL[kind]


def test_encoded_columns_have_no_tiny_number() -> None:
    design = make_design(declared(), LogisticModel(target="y", features=("x",), intercept=False))
    out = np.empty((len(TINY), 1))
    design.encode_columns({"x": np.array(TINY)}, out)
    assert_normal(out, np.float64)
    kept = [value if not abs(value) < LEAST else 0.0 for value in TINY]
    assert out[:, 0].tobytes() == np.array(kept).tobytes()
    rows = [design.encode_row({"x": value})[0] for value in TINY if not isnan(value)]
    assert rows == [value for value in kept if not isnan(value)]


def test_networks_inputs_have_none_in_single_precision() -> None:
    network = NetworkModel(kind="network", target="y", layers=(Linear(units=1),))
    design = make_design(declared(COLUMNS[:2]), network)
    assert design.number_type == "float32"
    out = np.empty((len(TINY), design.dimension), dtype=np.float32)
    design.encode_columns({"x": np.array(TINY)}, out)
    assert_normal(out, np.float32)
    image = [
        {"name": "image", "type": "array", "shape": [len(TINY) - 1], "lower": -1, "upper": 1},
        COLUMNS[1],
    ]
    design = make_design(declared(image), network)
    numbers = np.array([[value for value in TINY if not isnan(value)]], dtype=np.float32)
    out = np.empty_like(numbers)
    design.encode_columns({"image": numbers}, out)
    assert_normal(out, np.float32)
    assert set(np.abs(out[0]).tolist()) == {0.0, 2.0**-59, float(np.float32(1e-5)), 1.0}
    assert np.float32(LEAST_SINGLE) ** 2 >= SMALLEST_NORMAL[np.float32]


def passes(value: float, units: int = 1500, width: int = 24) -> Any:
    """Return a pass over records whose cells all lie so close to the middle of their columns."""
    design = make_design(declared(), LinearModel(target="z", features=("x",), intercept=False))
    out = np.empty((units * width, 1))
    design.encode_columns({"x": np.full(units * width, value)}, out)
    features = torch.from_numpy(out.reshape(units, width))
    held = LinearProblem(
        features, torch.ones(units, dtype=torch.float64), torch.ones(units, dtype=torch.bool), LOGISTIC, WEIGHTS
    )
    public = facts(units, width)
    questions = [Gradient(sigma=1.0), Curvature(sigma=1.0, of="hessian")]
    theta = torch.full((width,), 0.5, dtype=torch.float64)

    def go() -> float:
        begun = time.process_time()
        for question in questions:
            held.integer_sum(question, public, theta, grid_for(question, public, units).part_step)
        return time.process_time() - begun

    return go


def test_a_pass_takes_as_long_for_cells_next_to_the_middle() -> None:
    """Sign test of 100 pairs in random order: under equal laws it fails once in 20,000 times.

    Processor time, which other programs hardly touch. Without the rule such a pass takes four times as long on
    processors that are slow with denormal numbers.
    """
    slow, plain = passes(1e-308), passes(0.0)
    slow()
    plain()
    order, later = np.random.default_rng().integers(0, 2, 100), 0
    for first in order:
        other = None if first else plain()
        taken = slow()
        later += taken > (plain() if other is None else other)
    assert stats.binomtest(later, 100).pvalue > 5e-5, later
