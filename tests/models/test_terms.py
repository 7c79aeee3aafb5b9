"""Interactions, offsets and weights: declared units tell what encoded ones do, bounds hold, errors name the field."""

from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from core.base.errors import Invalid
from core.data.columns import Coded, Column, Columns, bounds_of
from core.models import features as coding
from core.models.design import Design, make_design
from core.models.features import Feature
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, PoissonModel
from core.models.term_words import term_notes
from core.models.terms import product_bounds
from core.planning.federating import PublicSite, check_alike
from core.planning.forecast import Asker, forecast
from core.planning.job import JobSpec
from core.privacy.facts import Adjacency
from tests.support.terms import COLUMNS, CROSSED, MAINS, TERMS, plan
from tests.support.unchecked import accepting

MODELS = [
    LogisticModel(target="ill", features=MAINS, interactions=CROSSED),
    LogisticModel(target="ill", features=MAINS, interactions=(*CROSSED, ("age", "dose", "smoker"), ("dose", "smoker"))),
    LogisticModel(target="ill", features=MAINS, interactions=(("age", "dose", "job"),)),
    LogisticModel(target="ill", features=("dose",), interactions=(("age", "smoker"), ("shift", "dose"))),
    LogisticModel(target="ill", features=MAINS, interactions=CROSSED, intercept=False),
    LogisticModel(target="ill", features=MAINS, offset="shift"),
    LogisticModel(target="ill", features=MAINS, offset="shift", intercept=False),
    PoissonModel(target="visits", features=MAINS, exposure="years", interactions=CROSSED),
    LinearModel(target="score", features=MAINS, offset="shift", interactions=CROSSED),
    LinearModel(target="score", features=MAINS, offset="shift", intercept=False),
    MultinomialModel(target="job", features=("age", "smoker"), interactions=(("age", "smoker"),)),
]
every = pytest.mark.parametrize("model", MODELS, ids=range(len(MODELS)))
uniforms = st.lists(st.floats(0, 1), min_size=len(COLUMNS), max_size=len(COLUMNS))


def raw(column: Column, uniform: float) -> float:
    """A value as the store keeps it."""
    if isinstance(column, Coded):
        return int(uniform * len(column.values) * 0.999)
    lower, upper = bounds_of(column)
    return lower + uniform * (upper - lower)


def values_of(at: list[float]) -> dict[str, float]:
    return {column.name: raw(column, one) for column, one in zip(COLUMNS, at, strict=True)}


def encoded(design: Design, values: dict[str, float]) -> Any:
    out = np.empty((1, design.dimension))
    design.encode_columns({name: np.array([value]) for name, value in values.items()}, out)
    return out[0]


def plain(feature: Feature, values: dict[str, float]) -> float:
    """Return the factor of a declared coefficient: a plain product, as patsy makes it."""
    if feature.column is None:
        return 1.0
    parts = [(one.column, one.code) for one in feature.factors] or [(feature.column, feature.code)]
    return float(np.prod([values[name] if code is None else values[name] == code for name, code in parts]))


class TestEveryDesign:
    @every
    @given(at=uniforms, seed=st.integers(0, 1000))
    @settings(max_examples=40, deadline=None)
    def test_predicts_the_same_in_declared_units(self, model: Any, at: list[float], seed: int) -> None:
        design, values = make_design(COLUMNS, model), values_of(at)
        theta = np.random.default_rng(seed).normal(size=design.dimension)
        matrix, start = design.to_declared()
        declared = np.dot([plain(feature, values) for feature in design.features], matrix @ theta + start)
        offset = 0.0
        if design.offset is not None:
            name = design.offset.column.name
            declared += np.log(values[name]) if design.offset.log else values[name]
            offset = design.encode_offset({name: values[name]})
        predicted = design.target.centre + design.target.scale * (encoded(design, values) @ theta + offset)
        assert declared == pytest.approx(predicted, rel=1e-9, abs=1e-9 * design.target.scale)

    @every
    @given(at=uniforms)
    @settings(max_examples=40, deadline=None)
    def test_rows_stay_inside_the_norm_bound_and_their_ranges(self, model: Any, at: list[float]) -> None:
        design = make_design(COLUMNS, model)
        check_bounds(design, values_of(at))

    @every
    def test_one_row_is_encoded_as_many_are_and_survives_the_wire(self, model: Any) -> None:
        design, values = make_design(COLUMNS, model), values_of([0.3] * len(COLUMNS))
        row = {
            column.name: column.values[int(values[column.name])] if isinstance(column, Coded) else values[column.name]
            for column in COLUMNS
        }
        assert design.encode_row(row) == pytest.approx(encoded(design, values), rel=1e-12)
        assert Design.model_validate_json(design.model_dump_json()) == design


def check_bounds(design: Design, values: dict[str, float]) -> None:
    """Fail where a row is longer than is claimed."""
    assert np.linalg.norm(encoded(design, values)) <= design.norm_bound * (1 + 1e-12)


def corners(design: Design) -> list[dict[str, float]]:
    """Every combination of ends of the columns that a design reads."""
    read = [column for column in COLUMNS if column.name in design.read]
    return [
        {column.name: raw(column, end) for column, end in zip(read, ends, strict=True)}
        for ends in product((0.0, 0.5, 1.0), repeat=len(read))
    ]


OFF_CENTRE = LogisticModel(target="ill", features=("age", "dose"), interactions=(("age", "dose"),))
SKEWED = TypeAdapter(Columns).validate_python(
    [one.model_dump(mode="json") | ({"centre": one.lower} if one.name in {"age", "dose"} else {}) for one in COLUMNS]  # type: ignore[union-attr] # these two have bounds
)


def test_a_products_bound_is_the_product_of_its_factors_bounds() -> None:
    """Both are centred at their lower ends, so each reaches 2 and their product 4."""
    design = make_design(SKEWED, OFF_CENTRE)
    assert design.norm_bound**2 == pytest.approx(1 + 4 + 4 + 16)
    for values in corners(design):
        check_bounds(design, values)
    planned = plan(1000, 1.0, model={"kind": "logistic", "target": "ill", "features": MAINS, "interactions": CROSSED})
    ranges = planned.facts.ranges
    assert ranges is not None
    for values in corners(planned.design):
        row = encoded(planned.design, values)
        assert (row >= np.array(ranges.lower) - 1e-9).all()
        assert (row <= np.array(ranges.upper) + 1e-9).all()
    assert ranges.kinds == ("constant", "number", "number", "two", "two", "two", "product", "product", "two", "two")


def test_the_largest_factors_bound_in_its_place_would_be_seen() -> None:
    """Planted bug: the maximum of the factors' bounds for that of their product."""

    def largest(factors: Any, columns: Any) -> tuple[float, float]:
        ends = [product_bounds((factor,), columns) for factor in factors]
        return min(low for low, _ in ends), max(high for _, high in ends)

    design = make_design(SKEWED, OFF_CENTRE)
    furthest = max(corners(design), key=lambda values: float(np.linalg.norm(encoded(design, values))))
    check_bounds(design, furthest)
    with patch.object(coding, "product_bounds", largest), pytest.raises(AssertionError):
        check_bounds(design, furthest)


def test_names_are_those_of_formulas() -> None:
    design = make_design(COLUMNS, MODELS[0])
    assert design.names[-4:] == ("age:smoker", "age:dose", "job[clerk]:smoker", "job[nurse]:smoker")
    assert make_design(COLUMNS, MODELS[3]).names == ("intercept", "dose", "age:smoker", "shift:dose")
    assert make_design(COLUMNS, MODELS[3]).read == ("dose", "age", "smoker", "shift")


def test_an_offset_and_weights_are_no_features_unless_named() -> None:
    model = PoissonModel(target="visits", exposure="years", sampling_weights="w")
    names = make_design(COLUMNS, model).names
    assert not {"years", "w"} & set(names)
    assert {"age", "shift", "score"} <= set(names)
    named = make_design(COLUMNS, model.model_copy(update={"features": ("years",)}))
    assert named.names == ("intercept", "years")
    assert named.read == ("years", "w")


def test_products_are_centred_only_where_lower_terms_can_take_what_that_adds() -> None:
    whole, lacking = (make_design(COLUMNS, model) for model in (MODELS[0], MODELS[3]))
    assert all(one.centre for feature in whole.features for one in feature.factors if one.code is None)
    assert not any(one.centre for feature in lacking.features for one in feature.factors)
    assert term_notes(whole) == []
    said = term_notes(lacking)
    assert [line.split(":")[0] for line in said] == ["age", "shift"]
    assert "age:smoker is in the model without age and smoker" in said[0]
    assert "shift:dose is in the model without shift" in said[1]


REFUSED: list[tuple[Any, str]] = [
    (LogisticModel(target="ill", interactions=(("age", "nobody"),)), "/model/interactions/0/1"),
    (LogisticModel(target="ill", interactions=(("age", "ill"),)), "/model/interactions/0/1"),
    (LogisticModel(target="ill", interactions=(("age", "age"),)), "/model/interactions/0"),
    (LogisticModel(target="ill", interactions=(("age", "dose"), ("dose", "age"))), "/model/interactions/1"),
    (LogisticModel(target="ill", offset="nobody"), "/model/offset"),
    (LogisticModel(target="ill", offset="job"), "/model/offset"),
    (LinearModel(target="score", offset="score"), "/model/offset"),
    (LogisticModel(target="ill", sampling_weights="shift"), "/model/sampling_weights"),
    (LogisticModel(target="ill", sampling_weights="smoker"), "/model/sampling_weights"),
    (LogisticModel(target="ill", sampling_weights="shift", offset="shift"), "/model/sampling_weights"),
    (PoissonModel(target="visits", exposure="shift"), "/model/exposure"),
    (PoissonModel(target="visits", exposure="w"), "/model/exposure"),
    (PoissonModel(target="visits", exposure="years", offset="shift"), "/model/exposure"),
]


@pytest.mark.parametrize(("model", "pointer"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_names_its_field_and_a_fix(model: Any, pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_design(COLUMNS, model)
    assert [field.pointer for field in refused.value.fields] == [pointer]
    assert len(refused.value.fields[0].detail) > 10


@pytest.mark.parametrize(
    ("optimizer", "model", "pointer"),
    [
        ({"kind": "clipped_sgd"}, {"sampling_weights": "w"}, "/model/sampling_weights"),
        ({"kind": "clipped_sgd"}, {"offset": "shift"}, "/model/offset"),
        ({"kind": "noisy_gd"}, {"offset": "shift", "loss": {"kind": "brier"}}, "/model/offset"),
        ({"kind": "whitened_newton", "weighted": True}, {}, "/optimizer/weighted"),
        ({"kind": "whitened_newton", "shifted": False}, {"offset": "shift"}, "/optimizer/shifted"),
    ],
)
def test_methods_that_do_not_offer_them_say_so(optimizer: Any, model: Any, pointer: str) -> None:
    inference = {"intervals": optimizer["kind"] == "whitened_newton"}
    whole = {"kind": "logistic", "target": "ill", "features": MAINS, **model}
    with pytest.raises(Invalid) as refused:
        plan(1000, 1.0, model=whole, optimizer=optimizer, inference=inference)
    assert pointer in {field.pointer for field in refused.value.fields}


def test_a_linear_offset_is_taken_from_the_target_so_that_every_method_has_it() -> None:
    model = {"kind": "linear", "target": "score", "features": MAINS, "offset": "shift"}
    usual = accepting({"optimizer": {"kind": "noisy_gd"}})
    planned = plan(1000, 1.0, model=model, **usual)
    without = plan(1000, 1.0, model={**model, "offset": None}, **usual)
    lower, upper = planned.design.target_bounds
    wider = 4 / planned.design.target.scale
    assert planned.design.target_bounds == pytest.approx(
        (without.design.target_bounds[0] - wider, without.design.target_bounds[1] + wider)
    )
    assert planned.design.target_reach == max(-lower, upper)


def test_unknown_fields_of_other_models_are_named() -> None:
    with pytest.raises(ValidationError, match="sampling_weights"):
        MultinomialModel.model_validate({"target": "job", "sampling_weights": "w"})
    with pytest.raises(ValidationError, match="exposure"):
        LogisticModel.model_validate({"target": "ill", "exposure": "years"})
    with pytest.raises(ValidationError, match="interactions"):
        LogisticModel.model_validate({"target": "ill", "interactions": [["age"]]})


def test_sites_must_declare_weights_offset_and_factors_alike() -> None:
    model = PoissonModel(
        target="visits",
        features=("dose",),
        exposure="years",
        sampling_weights="w",
        interactions=(("age", "dose"), ("dose", "smoker")),
    )
    design = make_design(COLUMNS, model)
    one = PublicSite("ds_a", COLUMNS, 100, "record", Adjacency.ZERO_OUT, TERMS)
    for name in ("years", "w", "age", "smoker"):
        changed = [
            column.model_copy(update={"missing": ("none",)}) if column.name == name else column for column in COLUMNS
        ]
        other = PublicSite("ds_b", changed, 100, "record", Adjacency.ZERO_OUT, TERMS)
        with pytest.raises(Invalid) as refused:
            check_alike((one, other), design)
        assert f"`{name}`" in refused.value.fields[0].detail
    check_alike((one, one), design)


def foreseen(**model: Any) -> Any:
    """Return the forecast of an estimate, by coefficient."""
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": {"kind": "logistic", "target": "ill", "features": MAINS, **model},
            "privacy": {"mu": "1"},
            "optimizer": {"kind": "whitened_newton", "weight_bound": 3.0},
            "assume": {
                "deviations": {"age": 13, "dose": 1} | ({"w": 2.1} if model.get("sampling_weights") else {}),
                "frequencies": {"smoker": [0.6, 0.4], "job": [0.5, 0.3, 0.2]},
                "means": {"age": 48, "dose": 0.5},
            },
        }
    )
    asker = Asker(spec, COLUMNS, 8000, Adjacency.ZERO_OUT, TERMS)
    found = forecast(asker, asker.plan())
    assert found is not None
    return {one.name: one for one in found.coefficients}


def test_estimates_price_weights_and_name_products() -> None:
    """Weights of mean 3.2 and deviation 2.1 are taken to reach 9.5: noise is 9.5/3.2 times as large, sampling 1.2."""
    without, weighted = foreseen(), foreseen(sampling_weights="w")
    effect = 1 + (2.1 / 3.2) ** 2
    for name, one in weighted.items():
        assert one.nonprivate_width / without[name].nonprivate_width == pytest.approx(effect**0.5)
        noise = [(width.width / 1.12) ** 2 - 0.95 * width.nonprivate_width**2 for width in (without[name], one)]
        assert (noise[1] / noise[0]) ** 0.5 == pytest.approx(9.5 / 3.2, rel=1e-3)
    crossed = foreseen(interactions=CROSSED)
    assert {"age:smoker", "job[nurse]:smoker"} <= set(crossed)
    assert all(one.lowest <= one.width for one in crossed.values())
    assert foreseen(offset="shift")["age"].width == pytest.approx(without["age"].width)
