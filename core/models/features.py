"""Encoding of one declared column into numbers of a row: its features, their centres, scales and reach.

See `core.models.design` for the rules; here each column, or each interaction, stands alone.
"""

from collections.abc import Iterable, Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from core.data.cells import code_of_cell, number_of_cell
from core.data.columns import BinaryColumn, Coded, Ordered, Scalar, bounds_of, centre_of
from core.models.kinds import PhaseRetrievalModel, PoissonModel, TrainedModel
from core.models.network.model import NetworkModel
from core.models.terms import Factor, product_bounds, product_name, products
from core.models.used_columns import some_of
from core.privacy.facts import Frozen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

_Positive = Annotated[float, Field(gt=0)]


class Feature(Frozen):
    """One number of an encoded row; which column it comes from, and how."""

    name: str = Field(description="`intercept`, the column's name, or `column[level]`; factors joined by `:`")
    column: str | None = Field(description="null for the intercept; of an interaction its columns, joined by `:`")
    level: str | None = Field(default=None, description="the value of the column for which the feature is 1")
    code: int | None = Field(default=None, description="the level's place among the declared values")
    centre: float = 0.0
    scale: _Positive = Field(default=1.0, description="of an interaction the product of its factors'")
    factors: tuple[Factor, ...] = Field(default=(), description="of an interaction: the multiplied columns")


class TargetCoding(Frozen):
    """Encoding of the target as a number: a category's code, a count unchanged, (value - centre)/scale otherwise.

    That of a `square` is 0 to 1: it is the margin's square, so the margin is in units of the root of its scale.
    """

    column: str
    kind: Literal["binary", "category", "count", "number", "square"]
    centre: float = 0.0
    scale: _Positive = 1.0

    @property
    def margin_scale(self) -> float:
        """Value of one unit of an encoded margin."""
        return sqrt(self.scale) if self.kind == "square" else self.scale


def product_features(term: Sequence[Scalar], *, centred: bool) -> Iterable[Feature]:
    """Yield the features of an interaction."""
    column = ":".join(one.name for one in term)
    for factors in products(term, centred=centred):
        scale = prod(factor.scale for factor in factors)
        yield Feature(name=product_name(factors, term), column=column, scale=scale, factors=factors)


def features_of(column: Scalar, *, centred: bool) -> Iterable[Feature]:
    """Yield the features of an ordinary column: one, or one for each value but the first."""
    if isinstance(column, Coded):
        centre, scale = spread_of(len(column.values)) if centred else (0.0, 1.0)
        for code, level in enumerate(column.values[1:], start=1):
            name = column.name if isinstance(column, BinaryColumn) else f"{column.name}[{level}]"
            yield Feature(name=name, column=column.name, level=level, code=code, centre=centre, scale=scale)
    else:
        centre, scale = coding_of(column, centred=centred)
        yield Feature(name=column.name, column=column.name, centre=centre, scale=scale)


def reach_of(column: Scalar, coded: Sequence[Feature]) -> float:
    """Return the largest norm of what one column adds to an encoded row.

    Args:
        column: of the design.
        coded: its features.
    """
    if isinstance(column, Coded):
        here = [((1 - feature.centre) / feature.scale) ** 2 for feature in coded]
        away = [(feature.centre / feature.scale) ** 2 for feature in coded]
        # The 0 is the baseline's: it has no indicator that is 1.
        return sqrt(sum(away) + max(0.0, *(one - other for one, other in zip(here, away, strict=True))))
    lower, upper = bounds_of(column)
    (feature,) = coded
    return max(abs(upper - feature.centre), abs(lower - feature.centre)) / feature.scale


def product_reaches(features: Iterable[Feature], columns: Iterable[Scalar]) -> dict[str, float]:
    """Return the largest norm of what each interaction adds to an encoded row.

    Of a category's values one at most is 1, so a row has one combination of them at most.

    Args:
        features: of the design.
        columns: all columns that it reads beside the target.
    """
    known = {column.name: column for column in columns}
    found: dict[str, float] = {}
    for feature in features:
        if feature.factors:
            assert feature.column is not None, "an interaction has columns"
            reach = max(map(abs, product_bounds(feature.factors, known)))
            found[feature.column] = max(reach, found.get(feature.column, 0.0))
    return found


def spread_of(values: int) -> tuple[float, float]:
    """Return the centre c and scale of k - 1 indicators that make the longest of the k coded values have norm 1.

    Squared, before scaling: (k - 1) c^2 for the baseline and 1 - 2 c + (k - 1) c^2 for any other. The larger is least
    at c = 1/(k - 1), or where both are equal, c = 1/2, if that comes first.
    """
    centre = min(0.5, 1 / (values - 1))
    baseline = (values - 1) * centre**2
    return centre, sqrt(max(baseline, 1 - 2 * centre + baseline))


def coding_of(column: Ordered, *, centred: bool) -> tuple[float, float]:
    """Return the centre and half the range; without centring 0 and the largest number within the bounds."""
    lower, upper = bounds_of(column)
    if not centred:
        return 0.0, max(abs(upper), abs(lower))
    # Halved first: the difference of two huge bounds would overflow.
    return centre_of(column), upper / 2 - lower / 2


def target_coding(column: Scalar, model: TrainedModel) -> TargetCoding:
    """Return how a model's target becomes a number."""
    if isinstance(column, Coded):
        return TargetCoding(column=column.name, kind="binary" if isinstance(column, BinaryColumn) else "category")
    if isinstance(model, PoissonModel):
        return TargetCoding(column=column.name, kind="count")
    if isinstance(model, PhaseRetrievalModel):
        return TargetCoding(column=column.name, kind="square", scale=bounds_of(column)[1])
    centre, scale = coding_of(column, centred=isinstance(model, NetworkModel) or model.intercept)
    return TargetCoding(column=column.name, kind="number", centre=centre, scale=scale)


def parts_of(feature: Feature) -> frozenset[tuple[str, int | None]]:
    """Return what is multiplied: columns with the code of a value; nothing for the intercept."""
    if feature.column is None:
        return frozenset()
    if not feature.factors:
        return frozenset({(feature.column, feature.code)})
    return frozenset((one.column, one.code) for one in feature.factors)


def factor_of(factor: Factor, values: "npt.NDArray[np.generic]") -> "Array":
    """Return a column's factors, shape (rows,)."""
    import numpy as np  # noqa: PLC0415 - as above

    numbers = values if factor.code is None else values == factor.code
    column: Array = numbers.astype(np.float64)
    return column if factor.code is not None else (column - factor.centre) / factor.scale


def read_cell(column: Scalar, value: object) -> float | None:
    """Return the number of a cell of a request, a category's code; None: it is no value of the column."""
    return code_of_cell(column, value) if isinstance(column, Coded) else number_of_cell(column, value)


def wanted(column: Scalar) -> str:
    """Return what a cell must be, in words."""
    if isinstance(column, Coded):
        return f"must be one of {some_of(column.values)}"
    if column.type == "date":
        return "must be a date such as 2006-12-31"
    return "must be a number"


def escape(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
