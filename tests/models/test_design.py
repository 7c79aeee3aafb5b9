"""Designs: encoded predictions and predictions in declared units are the same, and rows stay inside their bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.base.errors import Invalid
from core.data.columns import Coded, Column, Columns, bounds_of
from core.models.design import Design, make_design
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, PhaseRetrievalModel
from core.models.network.layers import Linear
from core.models.network.model import NetworkModel

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95, "centre": 40},
        {"type": "integer", "name": "kids", "lower": -1, "upper": 20, "missing": [-1], "fill": 2},
        {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31", "centre": "2005-01-01"},
        {"type": "category", "name": "job", "values": ["none", "technician", "other"], "other": "other"},
        {"type": "category", "name": "town", "values": ["a", "b"]},
        {"type": "binary", "name": "loan", "values": ["no", "yes"]},
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
    ]
)
MODELS = [
    LogisticModel(target="y"),
    LogisticModel(target="y", intercept=False),
    LinearModel(target="age"),
    LinearModel(target="seen", intercept=False),
    PhaseRetrievalModel(target="age"),
    PhaseRetrievalModel(target="age", intercept=True),
]


def raw(column: Column, uniform: float) -> float:
    """A value in declared units, or a code."""
    if isinstance(column, Coded):
        return int(uniform * len(column.values) * 0.999)
    lower, upper = bounds_of(column)
    return lower + uniform * (upper - lower)


def cell(column: Column, value: float) -> Any:
    return column.values[int(value)] if isinstance(column, Coded) else value


def declared_features(design: Design, values: dict[str, float]) -> list[float]:
    """Return the factors of declared coefficients: 1, numbers as they are, and 0/1 indicators."""
    return [
        1.0
        if feature.column is None
        else values[feature.column]
        if feature.code is None
        else float(values[feature.column] == feature.code)
        for feature in design.features
    ]


uniforms = st.lists(st.floats(0, 1), min_size=len(COLUMNS), max_size=len(COLUMNS))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.kind}-{model.target}-{model.intercept}")
class TestEveryDesign:
    @given(uniforms=uniforms, seed=st.integers(0, 1000))
    @settings(max_examples=50, deadline=None)
    def test_predicts_the_same_in_declared_units(self, model: Any, uniforms: list[float], seed: int) -> None:
        design = make_design(COLUMNS, model)
        values = {column.name: raw(column, at) for column, at in zip(COLUMNS, uniforms, strict=True)}
        encoded = np.empty((1, design.dimension))
        design.encode_columns({name: np.array([value]) for name, value in values.items()}, encoded)
        theta = np.random.default_rng(seed).normal(size=design.dimension)
        matrix, offset = design.to_declared()
        declared = np.dot(declared_features(design, values), matrix @ theta + offset)
        margin = encoded[0] @ theta
        if isinstance(model, PhaseRetrievalModel):
            declared, margin = declared**2, margin**2
        predicted = design.target.centre + design.target.scale * margin
        assert declared == pytest.approx(predicted, rel=1e-9, abs=1e-9 * design.target.scale)

    @given(uniforms=uniforms)
    @settings(max_examples=50, deadline=None)
    def test_rows_stay_inside_the_norm_bound(self, model: Any, uniforms: list[float]) -> None:
        design = make_design(COLUMNS, model)
        values = {column.name: np.array([raw(column, at)]) for column, at in zip(COLUMNS, uniforms, strict=True)}
        encoded = np.empty((1, design.dimension))
        design.encode_columns(values, encoded)
        assert np.linalg.norm(encoded) <= design.norm_bound * (1 + 1e-12)

    def test_the_norm_bound_is_reached(self, model: Any) -> None:
        design = make_design(COLUMNS, model)
        best = 0.0
        for feature_column in design.columns:
            ends = range(len(feature_column.values)) if isinstance(feature_column, Coded) else bounds_of(feature_column)
            lengths = []
            for end in ends:
                values = {column.name: np.array([raw(column, 0.5)]) for column in COLUMNS}
                values[feature_column.name] = np.array([end])
                encoded = np.empty((1, design.dimension))
                design.encode_columns(values, encoded)
                own = [place for place, f in enumerate(design.features) if f.column == feature_column.name]
                lengths.append(float(np.sum(encoded[0, own] ** 2)))
            best += max(lengths)
        assert best + design.intercept == pytest.approx(design.norm_bound**2)

    def test_survives_the_wire(self, model: Any) -> None:
        design = make_design(COLUMNS, model)
        assert Design.model_validate_json(design.model_dump_json()) == design


def test_names_and_baselines() -> None:
    design = make_design(COLUMNS, LogisticModel(target="y"))
    wanted = ("intercept", "age", "kids", "seen", "job[technician]", "job[other]", "town[b]", "loan")
    assert design.names == wanted
    assert make_design(COLUMNS, LogisticModel(target="y", features=("loan", "age"))).names == (
        "intercept",
        "loan",
        "age",
    )
    assert make_design(COLUMNS, LogisticModel(target="y", features=("loan",), intercept=False)).names == ("loan",)


@pytest.mark.parametrize(
    ("model", "pointer"),
    [
        (LogisticModel(target="z"), "/model/target"),
        (LogisticModel(target="age"), "/model/target"),
        (LogisticModel(target="job"), "/model/target"),
        (LinearModel(target="y"), "/model/target"),
        (LogisticModel(target="y", features=("age", "kids", "income")), "/model/features/2"),
        (LogisticModel(target="y", features=("age", "y")), "/model/features/1"),
        (LogisticModel(target="y", features=("age", "age")), "/model/features/1"),
    ],
)
def test_a_model_that_does_not_fit_names_its_field(model: Any, pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_design(COLUMNS, model)
    assert [field.pointer for field in refused.value.fields] == [pointer]


def test_two_coefficients_of_one_name_are_refused() -> None:
    columns = TypeAdapter(Columns).validate_python(
        [
            {"type": "category", "name": "job", "values": ["a", "b"]},
            {"type": "number", "name": "job[b]", "lower": 0, "upper": 1},
            {"type": "binary", "name": "y", "values": ["0", "1"]},
        ]
    )
    with pytest.raises(Invalid) as refused:
        make_design(columns, LogisticModel(target="y"))
    assert refused.value.fields[0].pointer == "/model/features"


class TestRows:
    design = make_design(COLUMNS, LogisticModel(target="y"))
    row = {"age": 40, "kids": 2, "seen": "2005-01-01", "job": "technician", "town": "b", "loan": "yes"}  # noqa: RUF012 - never changed

    def encoded(self, **changes: Any) -> list[float]:
        return self.design.encode_row({**self.row, **changes})

    def test_odd_values_are_read_as_an_upload_reads_them(self) -> None:
        assert self.encoded(age=1000) == self.encoded(age="95")
        assert self.encoded(age=float("-inf")) == self.encoded(age=18)
        assert self.encoded(kids=-1) == self.encoded(kids=None) == self.encoded(kids=2) == self.encoded(kids=2.4)
        assert self.encoded(job="pilot") == self.encoded(job="other")
        assert self.encoded(seen="1999-01-01") == self.encoded(seen="2003-01-01T10:00:00")

    def test_what_nothing_stands_for_is_named(self) -> None:
        row = {**self.row, "age": float("nan"), "town": "z", "loan": None, "seen": "soon", "job": None}
        del row["kids"]
        with pytest.raises(Invalid) as refused:
            self.design.encode_row(row, "/rows/3")
        named = {field.pointer for field in refused.value.fields}
        assert named == {f"/rows/3/{name}" for name in ("age", "kids", "seen", "town", "loan", "job")}


IMAGE = {"type": "array", "name": "image", "shape": [1, 2, 3], "lower": 0, "upper": 255, "missing": [13]}
WORDS = {"type": "array", "name": "words", "shape": [4], "of": "token", "lower": 0, "upper": 99}
WITH_ARRAYS = TypeAdapter(Columns).validate_python(
    [
        IMAGE,
        WORDS,
        {"type": "number", "name": "age", "lower": 18, "upper": 95, "centre": 40},
        {"type": "category", "name": "job", "values": ["none", "technician", "other"]},
        {"type": "category", "name": "label", "values": ["a", "b", "c"]},
    ]
)


def network(*features: str, target: str = "label") -> NetworkModel:
    """Return a network; its layers do not matter to a design."""
    return NetworkModel(target=target, features=features or None, layers=(Linear(units=3),))


def encoded(design: Design, values: Any) -> Any:
    out = np.empty((len(next(iter(values.values()))), design.dimension), dtype=design.number_type)
    design.encode_columns(values, out)
    return out


class TestNetworks:
    def test_an_image_is_centred_and_scaled_by_its_declared_bounds_in_single_precision(self) -> None:
        design = make_design(WITH_ARRAYS, network("image"))
        assert (design.shape, design.dimension, design.number_type) == ((1, 2, 3), 6, "float32")
        assert design.record_bytes == 6 * 4 + 8
        out = encoded(design, {"image": np.array([[0, 255, 0, 51, 255, 102]], dtype=np.uint8)})
        assert out.dtype == np.float32
        assert out[0].tolist() == pytest.approx([-1, 1, -1, -0.6, 1, -0.2], abs=1e-6)
        assert np.linalg.norm(out[0]) <= design.norm_bound * (1 + 1e-6)

    def test_a_declared_centre_is_the_centre(self) -> None:
        columns = TypeAdapter(Columns).validate_python([{**IMAGE, "centre": 33}, *(WITH_ARRAYS[4].model_dump(),)])
        design = make_design(columns, network("image"))
        out = encoded(design, {"image": np.array([[33, 255, 0, 33, 33, 33]], dtype=np.uint8)})
        assert out[0] == pytest.approx([0, 222 / 127.5, -33 / 127.5, 0, 0, 0])
        assert design.norm_bound == pytest.approx(6**0.5 * 222 / 127.5)

    def test_tokens_stay_as_they_are(self) -> None:
        design = make_design(WITH_ARRAYS, network("words"))
        out = encoded(design, {"words": np.array([[3, 0, 99, 7]], dtype=np.int32)})
        assert (out.dtype, out.tolist()) == (np.int32, [[3, 0, 99, 7]])

    def test_ordinary_columns_have_no_intercept_and_are_centred(self) -> None:
        design = make_design(WITH_ARRAYS, network("age", "job"))
        regression = make_design(WITH_ARRAYS, MultinomialModel(target="label", features=("age", "job")))
        assert design.features == regression.features[1:]
        assert (design.shape, design.number_type, design.intercept) == ((3,), "float32", False)
        values = {"age": np.array([18.0, 50.3]), "job": np.array([0, 2])}
        assert (encoded(design, values) == encoded(regression, values)[:, 1:].astype(np.float32)).all()

    def test_targets_are_classes_or_scaled_numbers(self) -> None:
        design = make_design(WITH_ARRAYS, network("image", target="age"))
        assert (design.target.kind, design.target.centre, design.target.scale) == ("number", 40, 38.5)
        assert make_design(WITH_ARRAYS, network("image")).classes == 3

    @pytest.mark.parametrize("features", [("image",), ("words",), ("age", "job")])
    def test_survives_the_wire(self, features: tuple[str, ...]) -> None:
        design = make_design(WITH_ARRAYS, network(*features))
        assert Design.model_validate_json(design.model_dump_json()) == design

    @pytest.mark.parametrize(
        ("model", "pointer"),
        [
            (network(), "/model/features"),
            (network("age", "image"), "/model/features/1"),
            (network("image", "words"), "/model/features/0"),
            (network("picture"), "/model/features/0"),
            (network("age", target="image"), "/model/target"),
            (MultinomialModel(target="label"), "/model/features"),
            (MultinomialModel(target="label", features=("age", "words")), "/model/features/1"),
        ],
    )
    def test_columns_that_a_model_cannot_read_are_named(self, model: Any, pointer: str) -> None:
        with pytest.raises(Invalid) as refused:
            make_design(WITH_ARRAYS, model)
        assert [field.pointer for field in refused.value.fields] == [pointer]

    def test_a_dataset_of_nothing_else_needs_no_names(self) -> None:
        assert make_design((WITH_ARRAYS[0], WITH_ARRAYS[4]), network()).array == WITH_ARRAYS[0]
        with pytest.raises(Invalid) as refused:
            make_design(WITH_ARRAYS[4:], network())
        assert refused.value.fields[0].pointer == "/model/features"


class TestArraysOfOneRow:
    design = make_design(WITH_ARRAYS, network("image"))

    @pytest.mark.parametrize(
        "value",
        [
            [[[0, 255, -3], [51, 1e300, 102]]],
            [[0, 255, 0], [51, 255, 102]],
            [0, 255, -1e9, 51, 10**30, 102.0],
            ((0, 255, 0), (51, 255, 102)),
        ],
        ids=["declared", "squeezed", "flat", "tuples"],
    )
    def test_nested_lists_are_encoded_as_columns_are(self, value: Any) -> None:
        whole = encoded(self.design, {"image": np.array([[0, 255, 0, 51, 255, 102]], dtype=np.uint8)})
        assert self.design.encode_row({"image": value}) == whole[0].tolist()

    def test_tokens_are_rounded_and_clamped(self) -> None:
        design = make_design(WITH_ARRAYS, network("words"))
        assert design.encode_row({"words": [1.4, -5, 1000, 7]}) == [1, 0, 99, 7]

    @pytest.mark.parametrize(
        ("row", "pointer"),
        [
            ({}, "/rows/3/image"),
            ({"image": None}, "/rows/3/image"),
            ({"image": 5}, "/rows/3/image"),
            ({"image": "abcdef"}, "/rows/3/image"),
            ({"image": []}, "/rows/3/image"),
            ({"image": [1, 2, 3]}, "/rows/3/image"),
            ({"image": [[[[1]]]]}, "/rows/3/image"),
            ({"image": [[1, 2, 3], [1, 2]]}, "/rows/3/image/1"),
            ({"image": [[1, 2, 3], 5]}, "/rows/3/image/1"),
            ({"image": [[[1, 2, 3], [1, 2, 3]], []]}, "/rows/3/image"),
            ({"image": [[1, 2, 3], [1, "2", 3]]}, "/rows/3/image/1/1"),
            ({"image": [[1, 2, 3], [1, True, 3]]}, "/rows/3/image/1/1"),
            ({"image": [1, 2, 3, 1, None, 3]}, "/rows/3/image/4"),
            ({"image": [1, 2, 3, 1, float("nan"), 3]}, "/rows/3/image/4"),
            ({"image": [1, 2, 3, 1, 10**400, 3]}, "/rows/3/image/4"),
            ({"image": [1, 2, 3, 1, 13, 3]}, "/rows/3/image"),
        ],
    )
    def test_what_is_wrong_is_named_by_its_place(self, row: Any, pointer: str) -> None:
        with pytest.raises(Invalid) as refused:
            self.design.encode_row(row, "/rows/3")
        assert [field.pointer for field in refused.value.fields] == [pointer]

    def test_an_image_of_one_pixel_is_a_list_of_one(self) -> None:
        columns = TypeAdapter(Columns).validate_python([{**IMAGE, "shape": [1, 1, 1]}, WITH_ARRAYS[4].model_dump()])
        design = make_design(columns, network("image"))
        assert design.encode_row({"image": [255]}) == design.encode_row({"image": [[[255]]]}) == [1]
