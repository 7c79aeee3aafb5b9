"""Hypotheses as text: their meaning, and the place where one cannot be read."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing import FarthingError, MissingExtra, WrongInput
from farthing.hypotheses import in_words, restrictions

NAMES = ("intercept", "age", "age group", "job[technician]", "job[a, b]", "b: age", "x-y", "1st", "2", 'say "hi"',
         "größe", "a`b", "_0", "job[']", "age:smoker")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "weights", "value"),
    [
        ("age = 0", {"age": 1.0}, 0.0),
        ("age", {"age": 1.0}, 0.0),
        ("age=1e-3", {"age": 1.0}, 0.001),
        ("age = -0.5", {"age": 1.0}, -0.5),
        ("(-age) = 1", {"age": -1.0}, 1.0),
        ("-age + 2 = 3", {"age": -1.0}, 1.0),
        ("2*(age - job[technician]/4) = .5", {"age": 2.0, "job[technician]": -0.5}, 0.5),
        ("age * 3 = intercept", {"age": 3.0, "intercept": -1.0}, 0.0),
        ("1 = age", {"age": -1.0}, -1.0),
        ("job[a, b] = 0", {"job[a, b]": 1.0}, 0.0),
        ("job['] = 0", {"job[']": 1.0}, 0.0),
        ("b: age = 0", {"b: age": 1.0}, 0.0),
        ("age:smoker = 0", {"age:smoker": 1.0}, 0.0),
        ("age group = age", {"age group": 1.0, "age": -1.0}, 0.0),
        ("x-y - age", {"x-y": 1.0, "age": -1.0}, 0.0),
        ('"2" = 2', {"2": 1.0}, 2.0),
        ("`2` + 2 = 2", {"2": 1.0}, 0.0),
        ("1st = 1", {"1st": 1.0}, 1.0),
        ('`say "hi"` = 0', {'say "hi"': 1.0}, 0.0),
        ('"a`b" = 1', {"a`b": 1.0}, 1.0),
        ("größe = 2", {"größe": 1.0}, 2.0),
        ("_0 = 1", {"_0": 1.0}, 1.0),
        ("age + age = 1", {"age": 2.0}, 1.0),
    ],
)
def test_what_a_hypothesis_means(text: str, weights: dict[str, float], value: float) -> None:
    assert restrictions(text, NAMES) == ([weights], [value])


def test_several_are_separated_by_commas() -> None:
    weights, values = restrictions(" age = 0 ,job[a, b] = 1,\tintercept", NAMES)
    assert weights == [{"age": 1.0}, {"job[a, b]": 1.0}, {"intercept": 1.0}]
    assert values == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ages = 0", 0),
        ("age = 0, nope = 1", 9),
        ("`nope` = 1", 0),
        ("__import__('os')", 0),
        ("age = 0; age = 1", 7),
        ("age = 1e400", 6),
        ("age = age group = 0", 16),
        ("age = nan", 6),
        ("", None),
        ("age = ", None),
        ("age == 0", 5),
        ("age 2", None),
        ("age ** 2", None),
        ("age / 0", None),
        ("age / age", None),
        ("age * age", None),
        ("age = 0,", None),
        ("1 = 1", None),
        ("age = 0, age - age = 1", None),
        ("age = 1e308 * 10", None),
    ],
)
def test_what_cannot_be_read_is_refused_and_pointed_at(text: str, place: int | None) -> None:
    with pytest.raises(WrongInput) as wrong:
        restrictions(text, NAMES)
    first, shown, *caret = str(wrong.value).splitlines()
    assert first.startswith("wrong-input: this hypothesis cannot be read: ")
    assert shown == f"  {text}"
    assert "\x1b" not in str(wrong.value)
    if place is not None:
        assert caret == [" " * (place + 2) + "^"]


def test_a_long_text_and_a_long_list_of_names_give_a_short_message() -> None:
    with pytest.raises(WrongInput) as wrong:
        restrictions("age = 0, " * 2000, [f"column {number}" for number in range(500)])
    assert "and 480 more" in str(wrong.value)
    assert len(str(wrong.value)) < 700


def test_a_text_needs_the_extra_and_mappings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "formulaic.utils.constraints", None)
    assert restrictions({"age": 2}, ()) == ([{"age": 1.0}], [2.0])
    assert restrictions(["age", {"x-y": 2}], (), [1, 2]) == ([{"age": 1.0}, {"x-y": 2.0}], [1.0, 2.0])
    with pytest.raises(FarthingError, match=r"farthing\[notebook\]") as absent:
        restrictions("age = 0", NAMES)
    assert isinstance(absent.value, MissingExtra)
    assert isinstance(absent.value, ImportError)
    assert absent.value.code == "missing-extra"


@given(st.text(alphabet='age job[]+-*/=(), 0123456789.eE"`_', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        weights, values = restrictions(text, NAMES)
    except WrongInput:
        return
    assert len(weights) == len(values) > 0
    assert all(any(one.values()) for one in weights)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.floats(-1e6, 1e6).filter(bool), min_size=1),
    st.floats(-1e6, 1e6),
)
def test_what_is_written_is_read_back(weights: dict[str, float], value: float) -> None:
    def quoted(name: str) -> str:
        return f"`{name}`" if '"' in name else f'"{name}"'

    text = " ".join(f"{'-' if by < 0 else '+'} {abs(by)!r} * {quoted(name)}" for name, by in weights.items())
    ((found,), (told,)) = restrictions(f"{text} = {value!r}", NAMES)
    assert found == pytest.approx(weights)
    assert told == pytest.approx(value)


def test_a_hypothesis_in_words() -> None:
    assert in_words({"age": 1, "job[b]": -2}, 0.5) == "age - 2 * job[b] = 0.5"
    assert in_words({"age": -1}, 0) == "-age = 0"
