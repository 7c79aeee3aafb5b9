"""Hypotheses as text: their meaning, and the place where one cannot be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.restrictions import RestrictionError, parse, parse_all

NAMES = ("intercept", "age", "age group", "job[technician]", "job[a, b]", "b: age", "x-y", "1st", "2", 'say "hi"')


@pytest.mark.parametrize(
    ("text", "weights", "value"),
    [
        ("age = 0", {"age": 1.0}, 0.0),
        ("age", {"age": 1.0}, 0.0),
        ("age=1e-3", {"age": 1.0}, 0.001),
        ("-age + 2 = 3", {"age": -1.0}, 1.0),
        ("2*age - job[technician]/4 = .5", {"age": 2.0, "job[technician]": -0.25}, 0.5),
        ("age * 3 = intercept", {"age": 3.0, "intercept": -1.0}, 0.0),
        ("1 = age", {"age": -1.0}, -1.0),
        ("job[a, b] = 0", {"job[a, b]": 1.0}, 0.0),
        ("b: age = 0", {"b: age": 1.0}, 0.0),
        ("age group = age", {"age group": 1.0, "age": -1.0}, 0.0),
        ("x-y - age", {"x-y": 1.0, "age": -1.0}, 0.0),
        ('"2" = 2', {"2": 1.0}, 2.0),
        ("`2` + 2 = 2", {"2": 1.0}, 0.0),
        ("1st = 1", {"1st": 1.0}, 1.0),
        ('`say "hi"` = 0', {'say "hi"': 1.0}, 0.0),
        ("age + age = 1", {"age": 2.0}, 1.0),
    ],
)
def test_what_a_restriction_means(text: str, weights: dict[str, float], value: float) -> None:
    assert parse(text, NAMES) == ([weights], [value])


def test_several_are_separated_by_commas() -> None:
    weights, values = parse(" age = 0 ,job[a, b] = 1,\tintercept", NAMES)
    assert weights == [{"age": 1.0}, {"job[a, b]": 1.0}, {"intercept": 1.0}]
    assert values == [0.0, 1.0, 0.0]
    assert parse_all(["age = 0", "intercept = 2"], NAMES) == ([{"age": 1.0}, {"intercept": 1.0}], [0.0, 2.0])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 0),
        ("age = ", 6),
        ("age == 0", 5),
        ("ages = 0", 0),
        ("age = 0, nope = 1", 9),
        ("age 2", 4),
        ("age ** 2", 5),
        ("2 * 3 = age", 4),
        ("age / 0", 7),
        ("age / age", 6),
        ("age = 0,", 8),
        ("1 = 1", 0),
        ("age = 0, age - age = 1", 9),
        ("__import__('os')", 0),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, place: int) -> None:
    with pytest.raises(RestrictionError) as wrong:
        parse(text, NAMES)
    assert wrong.value.place == place
    first, shown, caret = str(wrong.value).splitlines()
    assert first
    assert shown.removeprefix("  ") == text
    assert caret.index("^") == place + 2


@given(st.text(alphabet='age job[]+-*/=, 0123456789.eE"`', max_size=40))
def test_any_text_is_read_or_pointed_at(text: str) -> None:
    try:
        weights, values = parse(text, NAMES)
    except RestrictionError as wrong:
        place = wrong.place
    else:
        place = 0
        assert len(weights) == len(values) > 0
        assert all(any(one.values()) for one in weights)
    assert 0 <= place <= len(text)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(-1e6, 1e6).filter(bool), min_size=1),
    st.floats(-1e6, 1e6),
)
def test_what_is_written_is_read_back(weights: dict[str, float], value: float) -> None:
    def quoted(name: str) -> str:
        return f"`{name}`" if '"' in name else f'"{name}"'

    text = " ".join(f"{'-' if by < 0 else '+'} {abs(by)!r} * {quoted(name)}" for name, by in weights.items())
    ((found,), (told,)) = parse(f"{text} = {value!r}", NAMES)
    assert found == pytest.approx(weights)
    assert told == pytest.approx(value)
