"""Hypotheses as people write them: `age = 0, job[b] - job[c] = 0.5, 2 * age = balance`.

Restrictions are separated by commas. Each side is a sum of numbers and coefficients, the latter alone or times or over
a number; without `=` it equals 0. Coefficients are written as the summary prints them; one that reads like something
else goes in double quotes or backticks. Nothing is evaluated but sums, and what cannot be read is pointed at.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

# The last group: a name may begin with digits, as `2nd` or `1[b]`, and is no number.
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?(?![\w\[])")
_QUOTED = re.compile(r'"([^"]+)"|`([^`]+)`')
_LONGEST = 10_000


class RestrictionError(ValueError):
    """A restriction that cannot be read; its text points at the place."""

    def __init__(self, text: str, place: int, wanted: str) -> None:
        """Say what was wanted and where."""
        super().__init__(f"{wanted}\n  {text}\n  {' ' * place}^")
        self.place = place


@dataclass
class _Sum:
    """Weights of coefficients, and a constant."""

    weights: dict[str, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, name: str | None, weight: float) -> None:
        if name is None:
            self.constant += weight
        else:
            self.weights[name] = self.weights.get(name, 0.0) + weight


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        self.text = text
        self.at = 0
        # Longest first, since one name may begin with another.
        self.names = sorted(names, key=len, reverse=True)
        self.known = frozenset(names)

    def fail(self, wanted: str) -> RestrictionError:
        return RestrictionError(self.text, self.at, wanted)

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, symbols: str) -> str:
        """Return the next symbol if it is one of these, "" otherwise."""
        self.skip()
        found = self.text[self.at : self.at + 1]
        if not found or found not in symbols:
            return ""
        self.at += 1
        return found

    def number(self) -> float | None:
        self.skip()
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return float(found[0])

    def name(self) -> str | None:
        """Return the longest coefficient that stands here."""
        self.skip()
        quoted = _QUOTED.match(self.text, self.at)
        if quoted is not None and (quoted[1] or quoted[2]) in self.known:
            self.at = quoted.end()
            return str(quoted[1] or quoted[2])
        for name in self.names:
            end = self.at + len(name)
            # `age` must not be read out of `ages`.
            if self.text.startswith(name, self.at) and not (name[-1:].isalnum() and self.text[end : end + 1].isalnum()):
                self.at = end
                return name
        return None

    def restriction(self) -> tuple[dict[str, float], float]:
        """Return weights and their value."""
        start = self.at
        left = self.side()
        right = self.side() if self.take("=") else _Sum()
        for name, weight in right.weights.items():
            left.add(name, -weight)
        if not any(left.weights.values()):
            self.at = start
            self.skip()
            raise self.fail("this restriction is about no coefficient")
        return left.weights, right.constant - left.constant

    def side(self) -> _Sum:
        """Return a sum of terms."""
        found = _Sum()
        sign = -1.0 if self.take("+-") == "-" else 1.0
        while True:
            name, weight = self.term()
            found.add(name, sign * weight)
            following = self.take("+-")
            if not following:
                return found
            sign = -1.0 if following == "-" else 1.0

    def term(self) -> tuple[str | None, float]:
        """Return a coefficient, None for a number alone, and its weight."""
        weight = self.number()
        if weight is not None:
            return (self.wanted_name(), weight) if self.take("*") else (None, weight)
        name = self.wanted_name()
        operator = self.take("*/")
        if not operator:
            return name, 1.0
        by = self.number()
        if by is None or (operator == "/" and by == 0):
            raise self.fail("a number is wanted here" if by is None else "nothing can be divided by 0")
        return name, by if operator == "*" else 1 / by

    def wanted_name(self) -> str:
        name = self.name()
        if name is None:
            raise self.fail(f"a number or a coefficient is wanted here; there are {', '.join(sorted(self.known))}")
        return name


def parse(text: str, names: Collection[str]) -> tuple[list[dict[str, float]], list[float]]:
    """Return weights by coefficient for each restriction of a text, and their values.

    Args:
        text: such as `age = 0, job[b] = job[c]`.
        names: the coefficients that there are.

    Raises:
        RestrictionError: the text cannot be read; it says where.
    """
    # A longer text is cut here, and refused below, since its end was not read.
    reader = _Reader(text[:_LONGEST], names)
    found = []
    while True:
        found.append(reader.restriction())
        if not reader.take(","):
            break
    reader.skip()
    if reader.at < len(text):
        raise reader.fail("one of + - * / = or a comma is wanted here")
    return [weights for weights, _ in found], [value for _, value in found]


def parse_all(texts: Sequence[str], names: Collection[str]) -> tuple[list[dict[str, float]], list[float]]:
    """Return the restrictions of several texts, each as `parse` reads it."""
    weights: list[dict[str, float]] = []
    values: list[float] = []
    for text in texts:
        some, theirs = parse(text, names)
        weights += some
        values += theirs
    return weights, values
