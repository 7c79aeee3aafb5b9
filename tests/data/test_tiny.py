"""Numbers whose products are slow become zero where records are encoded, so that no pass takes longer for them."""

import time
from math import isnan
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from scipy import stats

from core.data.columns import Columns
from core.data.tiny import LEAST, LEAST_SINGLE
from core.losses.robust import LogCosh
from core.losses.weights import Clip
from core.models.design import make_design
from core.models.kinds import LinearModel, LogisticModel
from core.models.network.layers import Linear
from core.models.network.model import NetworkModel
from core.oracle.noise import grid_for
from core.queries.gradients import Curvature, Gradient
from core.queries.sums import rows as compiled
from core.queries.sums.linear import LinearProblem
from core.queries.sums.single import PART_ROWS
from tests.support.problems import LOGISTIC, WEIGHTS, facts

by_both = pytest.mark.parametrize("kernels", [compiled.KERNELS, None], ids=["compiled", "numpy"])
SMALLEST_NORMAL = {np.float64: 2.0**-1022, np.float32: 2.0**-126}
TINY = [
    0.0,
    5e-324,
    -1e-310,
    1e-300,
    2.0**-501,
    2.0**-499,
    2.0**-301,
    2.0**-299,
    -(2.0**-61),
    2.0**-59,
    1e-5,
    np.nan,
    1.0,
]
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


@pytest.mark.timing
def test_a_pass_takes_as_long_for_cells_next_to_the_middle() -> None:
    """Sign test of 100 pairs in random order: false alarm 1e-6 under equal laws.

    Processor time, which other programs hardly touch. Without the rule such a pass takes four times as long on
    processors that are slow with denormal numbers.
    """
    assert_as_long(passes(1e-308), passes(0.0))


def assert_as_long(slow: Any, plain: Any) -> None:
    """Fail where one takes longer than another by a tenth in the median; false alarm 1e-6 under equal laws.

    Two copies of the same records take a few hundredths more or less of it for as long as they lie where they lie, on a
    busy machine up to a twentieth. Without the rule a pass takes four times as long.
    """
    slow()
    plain()
    order, pairs = np.random.default_rng().integers(0, 2, 100), []
    for first in order:
        other = None if first else plain()
        taken = slow()
        pairs.append((taken, plain() if other is None else other))
    later = sum(taken > other for taken, other in pairs)
    ratio = float(np.divide(*np.median(pairs, axis=0)))
    assert stats.binomtest(later, 100).pvalue > 1e-6 or abs(ratio - 1) < 1 / 10, (later, ratio)


def step(value: float, kernels: Any, units: int = 4000, width: int = 40) -> Any:
    """Return a step on a list of records in single precision, whose features are as large as said."""
    draws = torch.Generator().manual_seed(1)
    features = value * torch.ones(units, width, dtype=torch.float64)
    target = (torch.rand(units, generator=draws) < 0.5).double()
    with patch.object(compiled, "KERNELS", kernels):
        held = LinearProblem(features, target, torch.ones(units, dtype=torch.bool), LOGISTIC, WEIGHTS)
        public = facts(units, width).model_copy(update={"part_rows": PART_ROWS})
        theta = torch.full((width,), 0.5, dtype=torch.float64)
        question = Gradient(sigma=1.0)
        grid = grid_for(question, public, units)
        rows, included = torch.randint(0, units, (1000,), generator=draws), torch.ones(1000, dtype=torch.bool)

        def go() -> float:
            begun = time.process_time()
            held.integer_sum(question, public, theta, grid.part_step, rows=rows, included=included)
            return time.process_time() - begun

        go()  # which copies the records to single precision
    return go


@pytest.mark.timing
@by_both
@pytest.mark.parametrize("value", [1e-36, 1e-40])
def test_a_step_in_single_precision_takes_as_long_for_such_cells(value: float, kernels: Any) -> None:
    """Without the rule a step takes eight times as long: normal in double precision, its cells are not in single."""
    assert_as_long(step(value, kernels), step(0.0, kernels))


def outliers(loss: Any, residual: float, question: Any, units: int = 1000, width: int = 40) -> Any:
    """Return a pass over records whose targets are all as far off as said."""
    features = torch.randn(units, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 10
    target = torch.full((units,), residual, dtype=torch.float64)
    held = LinearProblem(features, target, torch.ones(units, dtype=torch.bool), loss, WEIGHTS)
    public = facts(units, width)
    theta = torch.zeros(width, dtype=torch.float64)
    grid = grid_for(question, public, units)

    def go() -> float:
        begun = time.process_time()
        held.integer_sum(question, public, theta, grid.part_step)
        return time.process_time() - begun

    return go


@pytest.mark.timing
def test_a_pass_takes_as_long_for_records_far_off() -> None:
    """A curvature that vanishes far off, as log cosh has: without the rule one such record took a tenth more."""
    loss, question = LogCosh(c=1.0, scale=1.0), Curvature(sigma=1.0, of="hessian")
    assert_as_long(outliers(loss, 355.0, question), outliers(loss, 300.0, question))


@by_both
@pytest.mark.parametrize(("part_rows", "margin", "grid"), [(None, 150.0, 2.0**-260), (PART_ROWS, 38.0, 2.0**-100)])
@pytest.mark.parametrize("units", [64, 20_000])
def test_numbers_whose_products_may_be_slow_are_zero(
    part_rows: int | None, margin: float, grid: float, units: int, kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records predicted so well that their scores are 1e-65, or 4e-18 in single precision, on a grid of its own."""
    monkeypatch.setattr(compiled, "KERNELS", kernels)
    features = torch.full((units, 3), 2.0**-20, dtype=torch.float64)
    ones, question = torch.ones(units, dtype=torch.float64), Gradient(sigma=1.0, clip=1.0)
    held = LinearProblem(features, 0 * ones, ones.bool(), LOGISTIC, Clip(bound=1.0))
    public = facts(units, 3).model_copy(update={"part_rows": part_rows})
    near, far = (torch.full((3,), -one * 2.0**20 / 3, dtype=torch.float64) for one in (0.9 * margin, margin))
    assert held.integer_sum(question, public, near, grid).any(), "larger ones count"
    assert not held.integer_sum(question, public, far, grid).any()
