"""Hypotheses on coefficients: text such as `age = 0, job[b] - job[c] = 0.5`, values by name, or weights by name.

Text is read by formulaic. Coefficients are written as the summary prints them; one that reads like something else, such
as `2` or `a - b`, goes in backticks or double quotes. Nothing is evaluated but sums.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Final

from farthing.errors import WrongInput
from farthing.extras import needed

Hypotheses = str | Mapping[str, float] | Sequence[str | Mapping[str, float]]
Restrictions = tuple[list[dict[str, float]], list[float]]
"""Weights by coefficient for each restriction, and their values."""
_LONGEST: Final = 10_000
_MOST_NAMED: Final = 20
# A name may begin with digits, as `2nd` or `1[b]`, and is no number then.
_NUMBER: Final = r"(?P<number>(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(?![\w\[]))"
_QUOTED: Final = r'`(?P<tick>[^`]+)`|"(?P<quote>[^"]+)"'


def restrictions(given: Hypotheses, names: Sequence[str], values: Iterable[float] | None = None) -> Restrictions:
    """Return hypotheses as the service takes them.

    Args:
        given: text; values by coefficient, `{"age": 0}`; or a list of coefficients and of weights by coefficient.
        names: the coefficients that there are.
        values: one for each item of a list; None: 0.

    Raises:
        MissingExtra: a text, and formulaic is not installed.
        WrongInput: a text cannot be read; it points at the place.
    """
    if isinstance(given, str):
        return _read(given, names)
    if isinstance(given, Mapping):
        return [{name: 1.0} for name in given], [float(value) for value in given.values()]
    rows = [{one: 1.0} if isinstance(one, str) else {name: float(by) for name, by in one.items()} for one in given]
    return rows, [0.0] * len(rows) if values is None else [float(value) for value in values]


def in_words(weights: Mapping[str, float], value: float) -> str:
    """Write a restriction as an equation."""
    terms = [
        f"{'-' if by < 0 else '+'} {'' if abs(by) == 1 else f'{abs(by):g} * '}{name}" for name, by in weights.items()
    ]
    written = " ".join(terms).removeprefix("+ ")
    # A leading sign belongs to its term.
    return f"{re.sub('^- ', '-', written)} = {value:g}"


def _read(text: str, names: Sequence[str]) -> Restrictions:
    constraints = needed("formulaic.utils.constraints", "a hypothesis as text")
    # Each name stands as an identifier of ours, so that formulaic never meets brackets, spaces or quotes.
    stand_ins = {name: f"_{place}" for place, name in enumerate(names)}
    plain = _plain(text, stand_ins)
    try:
        found = constraints.LinearConstraints.from_spec(plain, variable_names=list(stand_ins.values()))
        matrix, values = found.constraint_matrix.tolist(), found.constraint_values.tolist()
    # Whatever formulaic meets is of this text: syntax, a division by 0, a product of two names, a deep nesting.
    except Exception as wrong:
        raise _unread(text, _first_line(wrong, stand_ins)) from wrong
    rows = [{name: by for name, by in zip(names, row, strict=True) if by} for row in matrix]
    if not rows or not all(rows):
        raise _unread(text, "each restriction needs a coefficient" if rows else "there is no restriction")
    if not all(isfinite(number) for number in (*values, *(by for row in rows for by in row.values()))):
        raise _unread(text, "a number is larger than any float")
    # Adding 0 makes 0 of -0.
    return rows, [float(value) + 0.0 for value in values]


def _plain(text: str, stand_ins: Mapping[str, str]) -> str:
    """Return a text with its names replaced and its numbers written out.

    Raises:
        WrongInput: something is neither a name, a number nor a sign.
    """
    longest_first = sorted(stand_ins, key=len, reverse=True)
    # `age` must not be read out of `ages`.
    known = "|".join(re.escape(name) + (r"(?![^\W_])" if name[-1:].isalnum() else "") for name in longest_first)
    token = re.compile(rf"\s*(?:{_QUOTED}|{_NUMBER}|(?P<name>{known or '(?!)'})|(?P<sign>[-+*/=(),]))\s*")
    parts: list[str] = []
    at = 0
    while at < len(text):
        found = token.match(text, at)
        quoted = found and (found["tick"] or found["quote"])
        if found is None or len(text) > _LONGEST or (quoted and quoted not in stand_ins):
            raise _unread(text, f"a number or a coefficient is wanted here; there are {_some(stand_ins)}", at)
        if found["number"]:
            # formulaic reads no exponents.
            parts.append(_written_out(found["number"], text, at))
        elif found["sign"]:
            if found["sign"] == "=" and "=" in parts[len(parts) - parts[::-1].index(",") if "," in parts else 0 :]:
                raise _unread(text, "one equals sign a restriction: write a = b, b = c", at)
            # A sum may begin with a sign, which formulaic takes for a part of the equals sign.
            follows = parts and parts[-1] in ("=", ",", "(")
            parts.append(f"0 {found['sign']}" if follows and found["sign"] in "+-" else found["sign"])
        else:
            parts.append(stand_ins[quoted or found["name"]])
        at = found.end()
    return " ".join(parts)


def _written_out(number: str, text: str, at: int) -> str:
    """Return a number without an exponent."""
    if not isfinite(float(number)):
        raise _unread(text, "this number is larger than any float", at)
    return format(Decimal(repr(float(number))), "f")


def _some(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    listed = list(names)
    more = len(listed) - _MOST_NAMED
    return ", ".join(listed[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _first_line(wrong: Exception, stand_ins: Mapping[str, str]) -> str:
    """Return the first line of an error of formulaic's, with the coefficients' own names."""
    names = {stand_in: name for name, stand_in in stand_ins.items()}
    line = (str(wrong).strip() or type(wrong).__name__).splitlines()[0]
    return re.sub(r"\b_\d+\b", lambda found: names.get(found[0], found[0]), line)


def _unread(text: str, why: str, at: int | None = None) -> WrongInput:
    start = 0 if at is None else max(0, at - 60)
    shown = text[start : start + 120]
    place = "" if at is None else f"\n  {' ' * (at - start + len(text[at:]) - len(text[at:].lstrip()))}^"
    return WrongInput(f"this hypothesis cannot be read: {why}\n  {shown}{place}")
