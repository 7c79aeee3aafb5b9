"""Formulas: the model that each means, that the service takes it, and what is refused at its place."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing import Client, MissingExtra, WrongInput, formula
from tests.farthing.conftest import Released

COLUMNS = [
    {"name": "age", "type": "number"},
    {"name": "dose", "type": "integer"},
    {"name": "region", "type": "category"},
    {"name": "sex", "type": "binary"},
]


@pytest.mark.parametrize(
    ("text", "features", "interactions", "intercept"),
    [
        ("y ~ age", ["age"], [], True),
        ("y~age+C(region)*sex", ["age", "region", "sex"], [["region", "sex"]], True),
        ("y ~ age * dose - 1", ["age", "dose"], [["age", "dose"]], False),
        ("y ~ 0 + age", ["age"], [], False),
        ("y ~ (age + dose + sex)**2 - age:sex", ["age", "dose", "sex"], [["age", "dose"], ["dose", "sex"]], True),
        ("y ~ `age group` + Q('b c') + C(`d e`)", ["age group", "b c", "d e"], [], True),
        ("C(y) ~ größe\n + a.b", ["größe", "a.b"], [], True),
        ("y ~ C(region) + region + region", ["region"], [], True),
    ],
)
def test_what_a_formula_means(text: str, features: list[str], interactions: list[list[str]], intercept: bool) -> None:
    expected: dict[str, Any] = {"kind": "linear", "target": "y", "intercept": intercept, "features": features}
    assert formula(text) == expected | ({"interactions": interactions} if interactions else {})


def test_declared_columns_say_what_a_number_is() -> None:
    nested = formula("y ~ age/dose", columns=COLUMNS)
    assert (nested["features"], nested["interactions"]) == (["age"], [["age", "dose"]])
    assert formula("y ~ region + region:age", columns=[*COLUMNS[:1], {"name": "region", "type": "number"}])
    for text, lacking in (
        ("y ~ region + region:age", "add age"),
        ("y ~ region/age", "add age"),
        ("y ~ age + region - 1", "add the intercept"),
    ):
        with pytest.raises(WrongInput, match=lacking):
            formula(text, columns=COLUMNS)
    with pytest.raises(WrongInput, match="declared as number"):
        formula("y ~ C(age)", columns=COLUMNS)
    with pytest.raises(WrongInput, match="add the intercept"):
        formula("y ~ C(region) - 1")


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("y ~ a + log(x)", 8, "upload a transformed one"),
        ("y ~ bs(x, df=3)", 4, "splines"),
        ("y ~ offset(x)", 4, "offset='x'"),
        ("y ~ C(r, Treatment('b'))", 4, "another order"),
        ("y ~ {a + b}", 4, "upload a transformed one"),
        ("y ~ job[b]", 4, "name a declared column"),
        ("y ~ __import__('os').system('id')", 4, "name a declared column"),
        ("log(y) ~ a", 0, "upload a transformed one"),
        ("y ~ a^2", 5, "square"),
        ("y ~ a:a", 6, "square"),
        ("y ~ C(a)*C(a)", 9, "square"),
        ("y ~ .", 4, "leave `features` out"),
        ("y + z ~ a", 0, "one target"),
        ("y ~ a | b", None, "one target ~ terms"),
        ("~ a", None, "one target ~ terms"),
        ("y", None, "one target ~ terms"),
        ("", None, "one target ~ terms"),
        ("y ~ 1", None, "no column"),
        ("y ~ 1:a", None, "multiplied by 1"),
        ("y ~ 2:a", None, "multiplied by 2"),
        ("y ~ a:b", None, "columns=client.dataset"),
        ("y ~ (a", None, "context marker"),
        ("y ~ `a", None, "quote"),
        ("y ~ " + "(" * 3000, None, "context marker"),
        ("y ~ a" + " + a" * 3000, None, "longer than 10,000"),
    ],
)
def test_what_no_job_offers_is_refused_at_its_place(text: str, place: int | None, why: str) -> None:
    with pytest.raises(WrongInput) as wrong:
        formula(text)
    assert why in str(wrong.value)
    assert len(str(wrong.value)) < 700
    if place is not None:
        assert str(wrong.value).splitlines()[-1] == " " * (place + 2) + "^"


def test_what_the_formula_says_is_not_said_beside_it() -> None:
    assert formula("y ~ a", "logistic", ridge=1)["ridge"] == 1
    with pytest.raises(WrongInput, match="/features"):
        formula("y ~ a", features=["b"])


def test_it_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "formulaic.parser.algos.tokenize", None)
    with pytest.raises(MissingExtra, match=r"farthing\[notebook\]"):
        formula("y ~ a")


@given(st.text(alphabet="yab ~+-:*/^().C`'\"1[]{}|%in\\\n", max_size=30))
def test_any_text_is_a_model_or_refused(text: str) -> None:
    try:
        model = formula(text)
    except WrongInput:
        return
    assert model["target"]
    assert model["features"]


def test_the_service_prices_what_it_means(client: Client, released: Released) -> None:
    model = formula("y ~ age*C(job)", "logistic", columns=client.dataset(released.dataset).columns)
    job = {"dataset": released.dataset, "model": model, "privacy": {"mu": "0.1"}}
    assert client.estimate(job).coefficients == 6
