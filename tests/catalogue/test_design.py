"""Designs: encoded predictions and predictions in declared units are the same, and rows stay inside their bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.catalogue.columns import Coded, Column, Columns, bounds_of
from core.catalogue.design import Design, make_design
from core.catalogue.models import LinearModel, LogisticModel, NetworkModel, PhaseRetrievalModel
from core.errors import Invalid, NotOfferedYet

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95, "typical": 40},
        {"type": "integer", "name": "kids", "lower": -1, "upper": 20, "missing": [-1], "fill": 2},
        {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31", "typical": "2005-01-01"},
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
    """1, numbers as they are, and 0/1 indicators: what an analyst would multiply declared coefficients with."""
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


def test_networks_come_later() -> None:
    with pytest.raises(NotOfferedYet):
        make_design(COLUMNS, NetworkModel(target="y"))


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
