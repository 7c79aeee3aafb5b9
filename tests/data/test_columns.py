"""Declarations: each refusal names its field, and everything else survives the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.base.errors import Invalid
from core.data.columns import MAX_COLUMNS, ArrayColumn, Columns, bounds_of, centre_of
from core.data.datasets import parse_metadata

AGE = {"type": "number", "name": "age", "lower": 18, "upper": 95}
JOB = {"type": "category", "name": "job", "values": ["management", "technician", "other"], "other": "other"}
Y = {"type": "binary", "name": "y", "values": ["no", "yes"]}
SEEN = {"type": "date", "name": "seen", "lower": "2003-01-01", "upper": "2006-12-31"}
KIDS = {"type": "integer", "name": "kids", "lower": 0, "upper": 20}
IMAGE = {"type": "array", "name": "image", "shape": [1, 28, 28], "lower": 0, "upper": 255}
TOKENS = {"type": "array", "name": "words", "shape": [64], "of": "token", "lower": 0, "upper": 999}
BANK = {"name": "bank", "budget": {"epsilon": "3", "delta": "1e-6"}, "columns": [AGE, JOB, Y]}


def pointers(body: object) -> list[str]:
    with pytest.raises(Invalid) as refused:
        parse_metadata(body)
    assert all(field.detail for field in refused.value.fields)
    return [field.pointer for field in refused.value.fields]


@pytest.mark.parametrize(
    ("column", "pointer"),
    [
        ({**AGE, "lower": 95, "upper": 18}, "/columns/0/upper"),
        ({**AGE, "upper": 18}, "/columns/0/upper"),
        ({**AGE, "upper": "95"}, "/columns/0/upper"),
        ({**AGE, "upper": float("nan")}, "/columns/0/upper"),
        ({**AGE, "lower": float("-inf")}, "/columns/0/lower"),
        ({**AGE, "upper": 10**400}, "/columns/0/upper"),
        ({**AGE, "upper": 1e101}, "/columns/0/upper"),
        ({**AGE, "lower": 1e15, "upper": 1e15 + 1}, "/columns/0/upper"),
        ({**AGE, "lower": True}, "/columns/0/lower"),
        ({**AGE, "centre": 17}, "/columns/0/centre"),
        ({**AGE, "fill": 96}, "/columns/0/fill"),
        ({**AGE, "name": ""}, "/columns/0/name"),
        ({**AGE, "name": "a\nb"}, "/columns/0/name"),
        ({**AGE, "name": " age"}, "/columns/0/name"),
        ({**AGE, "unit": "years"}, "/columns/0/unit"),
        ({**AGE, "type": "text"}, "/columns/0/type"),
        ({"type": "number", "name": "age", "lower": 18}, "/columns/0/upper"),
        ({**KIDS, "upper": 2.5}, "/columns/0/upper"),
        ({**KIDS, "upper": 2**60}, "/columns/0/upper"),
        ({**KIDS, "fill": 0.5}, "/columns/0/fill"),
        ({**SEEN, "upper": "2002-12-31"}, "/columns/0/upper"),
        ({**SEEN, "upper": 1167523200}, "/columns/0/upper"),
        ({**SEEN, "upper": "2006-13-31"}, "/columns/0/upper"),
        ({**SEEN, "centre": "2010-01-01"}, "/columns/0/centre"),
        ({**JOB, "values": ["a"]}, "/columns/0/values"),
        ({**JOB, "values": ["a", "a"]}, "/columns/0/values"),
        ({**JOB, "other": "none"}, "/columns/0/other"),
        ({**JOB, "fill": "none"}, "/columns/0/fill"),
        ({**JOB, "missing": ["other"]}, "/columns/0/missing"),
        ({**Y, "values": ["no", "no"]}, "/columns/0/values"),
        ({**Y, "values": ["no", "yes", "perhaps"]}, "/columns/0/values"),
        ({**Y, "fill": "perhaps"}, "/columns/0/fill"),
        ({**IMAGE, "shape": []}, "/columns/0/shape"),
        ({**IMAGE, "shape": [1, 1, 28, 28]}, "/columns/0/shape"),
        ({**IMAGE, "shape": [28, 0]}, "/columns/0/shape/1"),
        ({**IMAGE, "shape": [28, 28.5]}, "/columns/0/shape/1"),
        ({**IMAGE, "shape": [1025, 1024]}, "/columns/0/shape"),
        ({**IMAGE, "upper": 0}, "/columns/0/upper"),
        ({**IMAGE, "lower": 1e8, "upper": 1e8 + 100}, "/columns/0/upper"),
        ({**IMAGE, "upper": 1e31}, "/columns/0/upper"),
        ({**IMAGE, "upper": 1e-40}, "/columns/0/upper"),
        ({**IMAGE, "of": "pixel"}, "/columns/0/of"),
        ({**IMAGE, "centre": 256}, "/columns/0/centre"),
        ({**IMAGE, "missing": ["x"]}, "/columns/0/missing/0"),
        ({**IMAGE, "fill": 0}, "/columns/0/fill"),
        ({**TOKENS, "lower": -1}, "/columns/0/lower"),
        ({**TOKENS, "upper": 99.5}, "/columns/0/upper"),
        ({**TOKENS, "upper": 2**31}, "/columns/0/upper"),
    ],
)
def test_a_wrong_column_names_its_field_alone(column: dict[str, Any], pointer: str) -> None:
    assert set(pointers({**BANK, "columns": [column]})) == {pointer}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"columns": [AGE, JOB, AGE]}, "/columns/2/name"),
        ({"columns": []}, "/columns"),
        ({"columns": [{**KIDS, "name": f"c{place}"} for place in range(MAX_COLUMNS + 1)]}, "/columns"),
        ({"columns": "age"}, "/columns"),
        ({"columns": [{**IMAGE, "name": name, "shape": [1024, 600]} for name in "ab"]}, "/columns"),
        ({"budget": None}, "/budget"),
        ({"scope": "sc_1"}, "/scope"),
        ({"budget": None, "scope": "ds_1"}, "/scope"),
        ({"budget": {"epsilon": "0"}}, "/budget/epsilon"),
        ({"budget": {"epsilon": "-1"}}, "/budget/epsilon"),
        ({"budget": {"epsilon": "NaN"}}, "/budget/epsilon"),
        ({"budget": {"epsilon": "1e400"}}, "/budget/epsilon"),
        ({"budget": {"epsilon": 3}}, "/budget/epsilon"),
        ({"adjacency": "add_remove"}, "/adjacency"),
        ({"unit": {"user_column": "user", "max_records": 0}}, "/unit/max_records"),
        ({"rows": 0}, "/rows"),
        ({"name": ""}, "/name"),
        ({"colums": []}, "/colums"),
    ],
)
def test_wrong_metadata_names_its_field(change: dict[str, Any], pointer: str) -> None:
    assert pointer in pointers({**BANK, **change})


@pytest.mark.parametrize("body", [None, [], "bank", 3])
def test_metadata_that_is_no_object_is_refused(body: object) -> None:
    assert pointers(body) == [""]


def test_metadata_is_what_was_sent() -> None:
    metadata = parse_metadata(json.loads(json.dumps({**BANK, "approval": True, "rows": 45211})))
    assert [column.name for column in metadata.columns] == ["age", "job", "y"]
    assert metadata.adjacency == "zero_out"
    assert metadata.unit == "record"
    assert metadata.approval
    assert parse_metadata(metadata.model_dump(mode="json", exclude_none=True)) == metadata


def test_missing_codes_may_be_numbers_or_texts() -> None:
    (column,) = TypeAdapter(Columns).validate_python([{**KIDS, "missing": [-1, 9.5, "NA"]}])
    assert column.missing == ("-1", "9.5", "NA")


def test_dates_count_days_since_the_lower_bound() -> None:
    seen, centred = TypeAdapter(Columns).validate_python([SEEN, {**SEEN, "name": "t", "centre": "2003-01-11"}])
    assert seen.type == centred.type == "date"
    assert bounds_of(seen) == (0, 1460)
    assert (centre_of(seen), centre_of(centred)) == (730, 10)


def test_arrays_say_how_large_they_are_and_whether_bytes_hold_them() -> None:
    image, unit, tokens = TypeAdapter(Columns).validate_python(
        [IMAGE, {**IMAGE, "name": "unit", "lower": -0.5}, {**TOKENS, "upper": 255}]
    )
    assert isinstance(image, ArrayColumn)
    assert isinstance(unit, ArrayColumn)
    assert isinstance(tokens, ArrayColumn)
    assert (image.numbers, tokens.numbers) == (784, 64)
    assert (image.fits_bytes, unit.fits_bytes, tokens.fits_bytes) == (True, False, False)
    assert (bounds_of(image), centre_of(image)) == ((0, 255), 127.5)


finite = st.floats(-1e100, 1e100)


@given(lower=finite, upper=finite, centre=finite)
def test_bounds_are_kept_or_refused(lower: float, upper: float, centre: float) -> None:
    body = {**BANK, "columns": [{"type": "number", "name": "x", "lower": lower, "upper": upper, "centre": centre}]}
    if lower <= centre <= upper and upper - lower > 1e-8 * max(abs(lower), abs(upper)):
        columns = parse_metadata(body).columns
        adapter = TypeAdapter(Columns)
        assert adapter.validate_json(adapter.dump_json(columns)) == columns
    elif not lower < upper or not lower <= centre <= upper:
        assert set(pointers(body)) <= {"/columns/0/upper", "/columns/0/centre"}
