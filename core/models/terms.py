"""Terms beside a model's main effects: interactions, an offset or exposure, and sampling weights.

Public arithmetic on declared columns, as in `core.models.design`.

Interactions. A term of two or three columns has one feature for each combination of their features. Its coefficient, in
declared units, belongs to the plain product of numbers and of 0/1 indicators, as R's and statsmodels' `a:b`. Where an
intercept and all lower terms are in the model, encoded numbers are centred first, which keeps the product apart from
the main effects; multiplied out, what centring adds belongs to the lower terms. Where one is missing, numbers are
scaled by their largest size and not centred. A feature is the product of its factors, so its largest size is the
product of theirs.

Offset. A known number o of each record that enters the linear predictor with coefficient one. An exposure enters by its
logarithm. A linear model of y with offset o is that of y - o.

Sampling weights. A record counts w/upper times, between 0 and 1, with the declared upper bound, so that what one record
contributes is at most what it was. A method may learn a smaller bound, and cut weights there. A weight of zero makes a
record absent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import log, prod, sqrt
from typing import Annotated, Final, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.data.columns import (
    ArrayColumn,
    BinaryColumn,
    Coded,
    Column,
    DateColumn,
    IntegerColumn,
    NumberColumn,
    Scalar,
    bounds_of,
    centre_of,
    find,
)
from core.models.kinds import LinearModel, LogisticModel, PoissonModel, TrainedModel
from core.models.network.model import NetworkModel
from core.models.used_columns import some_of
from core.privacy.facts import Frozen, Sampling

_Positive = Annotated[float, Field(gt=0)]
Measured = Annotated[NumberColumn | IntegerColumn, Field(discriminator="type")]
"""A column whose values are numbers on a scale with a zero."""
UNIFORM: Final = 1 / sqrt(12)
"""Deviation of a uniform column over its range."""
LEAST_MEAN: Final = 1e-3
"""Over the range: a mean weight is taken to be no less."""
WEIGHTS_REACH: Final = 3.0
"""Deviations above their mean that the largest sampling weights of some number are taken to lie at."""


class Factor(Frozen):
    """One column's part in a product: (value - centre)/scale, or whether a category has a value."""

    column: str
    level: str | None = None
    code: int | None = Field(default=None, description="the level's place among the declared values")
    centre: float = 0.0
    scale: _Positive = 1.0

    def of(self, value: float) -> float:
        """Return the factor of one value, as the store keeps it."""
        return float(value == self.code) if self.code is not None else (value - self.centre) / self.scale


class OffsetCoding(Frozen):
    """Encoding of an offset: (number - centre)/unit, the number being the column's, or its logarithm."""

    column: Measured
    log: bool = Field(description="an exposure enters by its logarithm")
    centre: float = Field(description="goes into the intercept; 0 without one")
    unit: _Positive = Field(default=1.0, description="of the linear predictor: a linear model's encoded target's")

    @property
    def bounds(self) -> tuple[float, float]:
        """The declared bounds, encoded."""
        lower, upper = (self.of(bound) for bound in bounds_of(self.column))
        return lower, upper

    def of(self, value: float) -> float:
        """Return the offset of a value in declared units."""
        return ((log(value) if self.log else value) - self.centre) / self.unit


class SamplingCoding(Frozen):
    """Encoding of a record's weight: a part of the declared upper bound."""

    column: Measured

    @property
    def largest(self) -> float:
        """The declared upper bound."""
        return bounds_of(self.column)[1]

    def of(self, value: float) -> float:
        """Return the part that a weight in declared units is of the largest."""
        return value / self.largest

    def expected(self, mean: float | None = None, deviation: float | None = None) -> Sampling:
        """Return what is public of the weights: by the declared centre and deviation, else uniform on the range.

        Args:
            mean: as assumed; None: the declared centre.
            deviation: as declared or assumed.
        """
        lower, upper = bounds_of(self.column)
        known = deviation is not None and (mean is not None or self.column.centre is not None)
        mean = min(max(centre_of(self.column) if mean is None else mean, (upper - lower) * LEAST_MEAN), upper)
        spread = (upper - lower) * UNIFORM if deviation is None else deviation
        reach = (mean + WEIGHTS_REACH * spread) / upper if known else 1.0
        return Sampling(mean=mean / upper, effect=1 + (spread / mean) ** 2, known=known, reach=min(reach, 1.0))


def interaction_columns(columns: Sequence[Column], model: TrainedModel) -> tuple[tuple[Scalar, ...], ...]:
    """Return the columns of each interaction, in the model's order.

    Raises:
        Invalid: a column is unknown, an array, the target or named twice, or a term comes twice (pointers
            /model/interactions/k).
    """
    found: list[tuple[Scalar, ...]] = []
    if isinstance(model, NetworkModel):
        return ()
    seen: set[frozenset[str]] = set()
    for place, names in enumerate(model.interactions):
        where = f"/model/interactions/{place}"
        if len(set(names)) < len(names):
            fix = "name each column once; a column times itself is not offered: upload its square as a column"
            raise Invalid(f"The interaction {':'.join(names)} names a column twice.", FieldError(where, fix))
        if frozenset(names) in seen:
            raise Invalid(f"The interaction {':'.join(names)} comes twice.", FieldError(where, "name each term once"))
        seen.add(frozenset(names))
        found.append(tuple(_factor_column(columns, model, name, f"{where}/{at}") for at, name in enumerate(names)))
        if find(columns, ":".join(names)) is not None:
            fix = f"a column is named `{':'.join(names)}` too: rename it in a new upload"
            raise Invalid(f"Two coefficients would be called `{':'.join(names)}`.", FieldError(where, fix))
    return tuple(found)


def _factor_column(columns: Sequence[Column], model: TrainedModel, name: str, where: str) -> Scalar:
    column = find(columns, name)
    if column is None:
        detail = f"the dataset declares no column `{name}`; it declares {some_of(c.name for c in columns)}"
        raise Invalid(f"Unknown column `{name}` in an interaction.", FieldError(where, detail))
    if name == model.target:
        raise Invalid(f"`{name}` is the target.", FieldError(where, "the target cannot be part of an interaction"))
    if isinstance(column, ArrayColumn):
        raise Invalid(f"`{name}` is an array.", FieldError(where, "name ordinary columns"))
    return column


def hierarchical(terms: Sequence[tuple[Scalar, ...]], mains: Iterable[str], *, intercept: bool) -> list[bool]:
    """Say of each term whether an intercept and all terms that it contains are in the model."""
    # Sets: a:b and b:a are one term.
    known = {frozenset({name}) for name in mains} | {frozenset(column.name for column in term) for term in terms}
    return [
        intercept
        and all(
            frozenset(column.name for column in some) in known
            for size in range(1, len(term))
            for some in combinations(term, size)
        )
        for term in terms
    ]


def missing_terms(terms: Sequence[Sequence[str]], mains: Iterable[str]) -> list[tuple[str, str]]:
    """Return each term with the names of the lower terms that the model lacks, in words."""
    own = {frozenset({name}) for name in mains} | {frozenset(term) for term in terms}
    found = []
    for term in terms:
        lacking = [
            ":".join(some)
            for size in range(1, len(term))
            for some in combinations(term, size)
            if frozenset(some) not in own
        ]
        if lacking:
            found.append((":".join(term), " and ".join(lacking)))
    return found


def products(term: Sequence[Scalar], *, centred: bool) -> Iterator[tuple[Factor, ...]]:
    """Yield the factors of each feature of an interaction; the last column's values vary fastest."""
    yield from product(*(tuple(_factors(column, centred=centred)) for column in term))


def _factors(column: Scalar, *, centred: bool) -> Iterator[Factor]:
    if isinstance(column, Coded):
        for code, level in enumerate(column.values[1:], start=1):
            yield Factor(column=column.name, level=level, code=code)
        return
    lower, upper = bounds_of(column)
    if centred:
        # Halved first: the difference of two huge bounds would overflow.
        yield Factor(column=column.name, centre=centre_of(column), scale=upper / 2 - lower / 2)
    else:
        yield Factor(column=column.name, scale=max(abs(lower), abs(upper)))


def product_name(factors: Sequence[Factor], columns: Sequence[Scalar]) -> str:
    """Return a feature's name, its factors' joined by `:`, each as its main effect is called."""
    binary = {column.name for column in columns if isinstance(column, BinaryColumn)}
    return ":".join(
        one.column if one.level is None or one.column in binary else f"{one.column}[{one.level}]" for one in factors
    )


def factor_bounds(factor: Factor, column: Scalar) -> tuple[float, float]:
    """Return between which numbers a factor lies."""
    if isinstance(column, Coded):
        return 0.0, 1.0
    lower, upper = bounds_of(column)
    return factor.of(lower), factor.of(upper)


def product_bounds(factors: Sequence[Factor], columns: Mapping[str, Scalar]) -> tuple[float, float]:
    """Return between which numbers a product lies: at the corners of its factors' bounds."""
    # A product is linear in each factor, hence extreme at a corner.
    corners = [prod(ends) for ends in product(*(factor_bounds(one, columns[one.column]) for one in factors))]
    return min(corners), max(corners)


def make_offset(
    columns: Sequence[Column], model: TrainedModel, target_scale: float, *, centred: bool
) -> OffsetCoding | None:
    """Return how the model's offset enters; None where it has none.

    Raises:
        Invalid: both an offset and an exposure are named, or the column cannot be one (pointers /model/offset,
            /model/exposure).
    """
    if not isinstance(model, LogisticModel | LinearModel | PoissonModel):
        return None
    exposure = model.exposure if isinstance(model, PoissonModel) else None
    if model.offset is not None and exposure is not None:
        fix = "leave one out: an exposure is an offset by its logarithm"
        raise Invalid("A model has an offset or an exposure, not both.", FieldError("/model/exposure", fix))
    name = model.offset if exposure is None else exposure
    if name is None:
        return None
    column = _measured(columns, model, name, "offset" if exposure is None else "exposure")
    lower, _ = bounds_of(column)
    if exposure is not None and lower <= 0:
        fix = f"its declared lower bound is {lower:g}; declare one above 0, such as the least exposure that counts"
        raise Invalid(f"The exposure `{name}` may be 0 or negative.", FieldError("/model/exposure", fix))
    unit = target_scale if isinstance(model, LinearModel) else 1.0
    # Without a centre first: the middle is that of the logarithm, if there is one.
    coding = OffsetCoding(column=column, log=exposure is not None, centre=0.0)
    middle = sum(coding.bounds) / 2 if column.centre is None else coding.of(float(column.centre))
    return coding.model_copy(update={"centre": middle if centred else 0.0, "unit": unit})


def make_sampling(columns: Sequence[Column], model: TrainedModel) -> SamplingCoding | None:
    """Return how the model's sampling weights enter; None where it has none.

    Raises:
        Invalid: the column cannot be weights (pointer /model/sampling_weights).
    """
    if not isinstance(model, LogisticModel | LinearModel | PoissonModel) or model.sampling_weights is None:
        return None
    name = model.sampling_weights
    column = _measured(columns, model, name, "sampling_weights")
    lower, upper = bounds_of(column)
    if lower < 0 or upper <= 0:
        fix = f"its declared bounds are {lower:g} to {upper:g}; declare a lower bound of 0 or more"
        raise Invalid(f"The weights `{name}` may be negative.", FieldError("/model/sampling_weights", fix))
    return SamplingCoding(column=column)


def _measured(
    columns: Sequence[Column],
    model: LogisticModel | LinearModel | PoissonModel,
    name: str,
    field: Literal["offset", "exposure", "sampling_weights"],
) -> NumberColumn | IntegerColumn:
    """Return a column of numbers that a field of the model names.

    Raises:
        Invalid: it is unknown, the target, or no number.
    """
    where, column = f"/model/{field}", find(columns, name)
    if column is None:
        detail = f"the dataset declares no column `{name}`; it declares {some_of(c.name for c in columns)}"
        raise Invalid(f"Unknown column `{name}`.", FieldError(where, detail))
    if name == model.target:
        raise Invalid(f"`{name}` is the target.", FieldError(where, "name another column"))
    if isinstance(column, ArrayColumn | DateColumn | Coded):
        raise Invalid(f"`{name}` is of type {column.type}.", FieldError(where, "name a number or integer column"))
    if field == "sampling_weights" and name in {model.offset, getattr(model, "exposure", None)}:
        raise Invalid(f"`{name}` is the offset too.", FieldError(where, "name another column"))
    return column
