"""From declared columns to the numbers a model sees, and back: public arithmetic on declared values only.

A row becomes the encoded features x, the intercept's 1 first. Numbers, integers and dates enter as
(value - centre)/scale, with the centre `typical` (or the middle of the bounds) and half the declared range as scale. A
category enters as one feature for each value but the first, its baseline, and a binary column as one for its second
value: (indicator - centre)/scale, with the public centre and scale that spread the values as far apart as vectors of
norm at most 1 allow (-1 and 1 for two values). So an ordinary column adds at most 1 to the squared norm of a row, and
noise of a given size hurts all columns alike. Without an intercept nothing is centred. The target of a linear model is
encoded like a number. Coefficients in the units of the declared columns are an affine map of the encoded ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from core.catalogue.cells import code_of_cell, number_of_cell
from core.catalogue.columns import (
    BinaryColumn,
    Coded,
    Column,
    Ordered,
    bounds_of,
    centre_of,
    find,
)
from core.catalogue.models import (
    AnyModel,
    LinearModel,
    LogisticModel,
    MultinomialModel,
    NetworkModel,
    PhaseRetrievalModel,
    PoissonModel,
    RegressionModel,
)
from core.errors import FieldError, Invalid, NotOfferedYet
from core.privacy.facts import Frozen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

MAX_DIMENSION = 2_000
INTERCEPT = "intercept"
_Positive = Annotated[float, Field(gt=0)]


class Feature(Frozen):
    """One number of an encoded row; which column it comes from, and how."""

    name: str = Field(description="`intercept`, the column's name, or `column[level]`")
    column: str | None = Field(description="null for the intercept")
    level: str | None = Field(default=None, description="the value of the column for which the feature is 1")
    code: int | None = Field(default=None, description="the level's place among the declared values")
    centre: float = 0.0
    scale: _Positive = 1.0


class TargetCoding(Frozen):
    """How the target becomes a number: a category's code, a count as it is, (value - centre)/scale otherwise.

    That of a `square` is 0 to 1: it is the margin's square, so the margin is in units of the root of its scale.
    """

    column: str
    kind: Literal["binary", "category", "count", "number", "square"]
    centre: float = 0.0
    scale: _Positive = 1.0

    @property
    def margin_scale(self) -> float:
        """What one unit of an encoded margin is worth."""
        return sqrt(self.scale) if self.kind == "square" else self.scale


class Design(Frozen):
    """A model's encoding: from declared rows to features and target, and from encoded coefficients to declared ones."""

    features: tuple[Feature, ...] = Field(min_length=1)
    target: TargetCoding
    columns: tuple[Column, ...] = Field(description="the declared columns behind the features, in the model's order")
    target_column: Column

    @property
    def classes(self) -> int:
        """How many values the target has, where it is a category."""
        assert isinstance(self.target_column, Coded), "only categories have classes"
        return len(self.target_column.values)

    @property
    def dimension(self) -> int:
        """p, the number of encoded features, intercept included."""
        return len(self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names."""
        return tuple(feature.name for feature in self.features)

    @property
    def intercept(self) -> bool:
        """Whether the first feature is the intercept."""
        return self.features[0].column is None

    @property
    def norm_bound(self) -> float:
        """The largest euclidean norm of an encoded row.

        The intercept adds 1 to its square, a column at most 1, and more where `typical` is off the middle.
        """
        return sqrt(self.intercept + sum(self._reach(column) ** 2 for column in self.columns))

    @property
    def ordinary_norm(self) -> float:
        """A norm that rows pass only where numbers lie further from `typical` than half their declared range."""
        return sqrt(len(self.columns) + self.intercept)

    @property
    def target_reach(self) -> float:
        """The largest size of an encoded target: 1, and more where `typical` is off the middle of its bounds."""
        assert not isinstance(self.target_column, Coded), "categories have codes"
        lower, upper = bounds_of(self.target_column)
        return max(abs(upper - self.target.centre), abs(lower - self.target.centre)) / self.target.scale

    def _reach(self, column: Column) -> float:
        """Return the largest norm of what one column adds to an encoded row."""
        coded = [feature for feature in self.features if feature.column == column.name]
        if isinstance(column, Coded):
            here = [((1 - feature.centre) / feature.scale) ** 2 for feature in coded]
            away = [(feature.centre / feature.scale) ** 2 for feature in coded]
            return sqrt(sum(away) + max(0.0, *(one - other for one, other in zip(here, away, strict=True))))
        lower, upper = bounds_of(column)
        (feature,) = coded
        return max(abs(upper - feature.centre), abs(lower - feature.centre)) / feature.scale

    def to_declared(self) -> "tuple[Array, Array]":
        """Return (A, offset), shapes (p, p) and (p,): coefficients in declared units are A @ encoded + offset.

        Their covariance is A @ V @ A.T. With y = c + s (x.theta) and x_j = (v_j - c_j)/s_j, the coefficient of v_j is
        s theta_j/s_j and the intercept is c + s (theta_0 - sum_j theta_j c_j/s_j); c = 0 and s = 1 on the logit scale,
        and c = 0 and s the root of the target's scale where the target is the margin's square.
        """
        import numpy as np  # noqa: PLC0415 - only those who transform coefficients pay for numpy

        scales = np.array([feature.scale for feature in self.features])
        unit = self.target.margin_scale
        matrix = np.diag(unit / scales)
        offset = np.zeros(self.dimension)
        if self.intercept:
            centres = np.array([feature.centre for feature in self.features])
            matrix[0] -= unit * centres / scales
            offset[0] = self.target.centre
        return matrix, offset

    def baseline_shifts(self) -> "Array":
        """Return, for each category of three values or more, the direction of its baseline's effect, shape (q, p).

        Every coefficient of a category is a contrast with its first declared value. What is not known of that value's
        own effect moves all of them together, along this unit vector of encoded coefficients; a rare first value makes
        it a direction that the records say little about.
        """
        import numpy as np  # noqa: PLC0415 - as above

        columns = [feature.column if feature.level is not None else None for feature in self.features]
        shifts = []
        for column in dict.fromkeys(name for name in columns if name is not None):
            shift = np.array(
                [feature.scale if name == column else 0.0 for feature, name in zip(self.features, columns, strict=True)]
            )
            if np.count_nonzero(shift) > 1:
                shifts.append(shift / np.linalg.norm(shift))
        return np.array(shifts).reshape(len(shifts), self.dimension)

    def encode_row(self, row: Mapping[str, object], pointer: str = "") -> list[float]:
        """Return the p encoded features of a row of declared values; other fields of the row are not looked at.

        Values are read as an upload's cells are: clamped, unknown categories take `other`, missing ones `fill`.

        Args:
            row: column name -> number, text, date or None.
            pointer: JSON pointer of the row in the request, for the errors.

        Raises:
            Invalid: a column is absent, or a value is missing or cannot be read, and the column declares nothing
                to stand for it. Each such column is named.
        """
        values: dict[str, float] = {}
        errors: list[FieldError] = []
        for column in self.columns:
            where = f"{pointer}/{_escape(column.name)}"
            if column.name not in row:
                errors.append(FieldError(where, "is missing: give every column the model uses"))
                continue
            value = _read(column, row[column.name])
            if value is None:
                errors.append(FieldError(where, _wanted(column)))
            else:
                values[column.name] = value
        if errors:
            raise Invalid(f"The row cannot be encoded: see {errors[0].pointer}.", *errors)
        return [self._feature(feature, values) for feature in self.features]

    def encode_columns(self, values: "Mapping[str, npt.NDArray[np.generic]]", out: "Array") -> None:
        """Fill `out` with encoded features, all rows at once; what a row with a missing value gets is not defined.

        Args:
            values: by column name, arrays of shape (rows,) as kept by the store: float64 numbers in declared units
                (days since `lower` for dates, NaN when missing), or integer codes (negative when missing).
            out: float64, shape (rows, p).
        """
        import numpy as np  # noqa: PLC0415 - as above

        for place, feature in enumerate(self.features):
            if feature.column is None:
                out[:, place] = 1.0
            elif feature.code is not None:
                np.equal(values[feature.column], feature.code, out=out[:, place])
                _standardise(out[:, place], feature)
            else:
                out[:, place] = values[feature.column]
                _standardise(out[:, place], feature)

    @staticmethod
    def _feature(feature: Feature, values: Mapping[str, float]) -> float:
        if feature.column is None:
            return 1.0
        value = values[feature.column]
        number = float(value == feature.code) if feature.code is not None else value
        return (number - feature.centre) / feature.scale


def make_design(columns: Sequence[Column], model: AnyModel) -> Design:
    """Return the encoding of `model`'s features and target, from declared columns alone.

    Raises:
        Invalid: the target or a feature is unknown, doubled or of a type the model cannot use (pointers
            /model/target, /model/features/k).
        NotOfferedYet: the model is a network.
    """
    if isinstance(model, NetworkModel):
        raise NotOfferedYet(
            "Neural networks are not offered yet.", FieldError("/model/kind", "use `logistic` or `linear`")
        )
    target_column = _target(columns, model)
    used = tuple(_used(columns, model))
    features = [Feature(name=INTERCEPT, column=None)] if model.intercept else []
    for column in used:
        features.extend(_features(column, centred=model.intercept))
    if len(features) > MAX_DIMENSION:
        raise Invalid(
            f"The model would have {len(features)} coefficients; at most {MAX_DIMENSION} are offered.",
            FieldError("/model/features", "leave out features, or declare fewer values of a category"),
        )
    names = [feature.name for feature in features]
    doubled = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if doubled is not None:
        raise Invalid(
            f"Two coefficients would both be called `{doubled}`.",
            FieldError("/model/features", "leave out one of the columns, or rename it in a new upload"),
        )
    target = _target_coding(target_column, model)
    return Design(features=tuple(features), target=target, columns=used, target_column=target_column)


def _target(columns: Sequence[Column], model: RegressionModel) -> Column:
    column = find(columns, model.target)
    if column is None:
        detail = f"the dataset declares no column `{model.target}`; it declares {_some(c.name for c in columns)}"
        raise Invalid(f"Unknown target `{model.target}`.", FieldError("/model/target", detail))
    if isinstance(model, LogisticModel) and not isinstance(column, BinaryColumn):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a logistic model needs a binary column.",
            FieldError("/model/target", "name a binary column, or fit a linear model to a number"),
        )
    if isinstance(model, LinearModel) and isinstance(column, Coded):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a linear model needs a number, integer or date.",
            FieldError("/model/target", "name a numeric column, or fit a logistic model to a binary one"),
        )
    if isinstance(model, MultinomialModel) and not isinstance(column, Coded):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a multinomial model needs a category.",
            FieldError("/model/target", "name a category, or fit a linear model to a number"),
        )
    if isinstance(model, PoissonModel | PhaseRetrievalModel) and not _counts(column):
        noun = "a count" if isinstance(model, PoissonModel) else "a square"
        raise Invalid(
            f"The target `{column.name}` cannot be {noun}: it may be a category, a date or negative.",
            FieldError("/model/target", "name a number or integer column whose declared lower bound is 0 or more"),
        )
    return column


def _counts(column: Column) -> bool:
    """Say whether a column's declared values may be counts, or squares."""
    return not isinstance(column, Coded) and column.type != "date" and bounds_of(column)[0] >= 0


def _used(columns: Sequence[Column], model: RegressionModel) -> Iterable[Column]:
    """Yield the feature columns, in the model's order."""
    if model.features is None:
        others = [column for column in columns if column.name != model.target]
        if not others and not model.intercept:
            raise Invalid(
                "The dataset has no column beside the target.",
                FieldError("/model/intercept", "keep the intercept, or upload a dataset with more columns"),
            )
        yield from others
        return
    seen: set[str] = set()
    for place, name in enumerate(model.features):
        where = f"/model/features/{place}"
        column = find(columns, name)
        if column is None:
            detail = f"the dataset declares no column `{name}`; it declares {_some(c.name for c in columns)}"
            raise Invalid(f"Unknown feature `{name}`.", FieldError(where, detail))
        if name == model.target:
            raise Invalid(f"`{name}` is the target.", FieldError(where, "the target cannot be a feature too"))
        if name in seen:
            raise Invalid(f"The feature `{name}` is named twice.", FieldError(where, "name each feature once"))
        seen.add(name)
        yield column


def _features(column: Column, *, centred: bool) -> Iterable[Feature]:
    if isinstance(column, Coded):
        centre, scale = _spread(len(column.values)) if centred else (0.0, 1.0)
        for code, level in enumerate(column.values[1:], start=1):
            name = column.name if isinstance(column, BinaryColumn) else f"{column.name}[{level}]"
            yield Feature(name=name, column=column.name, level=level, code=code, centre=centre, scale=scale)
    else:
        centre, scale = _coding(column, centred=centred)
        yield Feature(name=column.name, column=column.name, centre=centre, scale=scale)


def _spread(values: int) -> tuple[float, float]:
    """Return the centre c and scale of k - 1 indicators that make the longest of the k coded values have norm 1.

    Squared, before scaling: (k - 1) c^2 for the baseline and 1 - 2 c + (k - 1) c^2 for any other. The larger is least
    at c = 1/(k - 1), or where both are equal, c = 1/2, if that comes first.
    """
    centre = min(0.5, 1 / (values - 1))
    baseline = (values - 1) * centre**2
    return centre, sqrt(max(baseline, 1 - 2 * centre + baseline))


def _standardise(column: "Array", feature: Feature) -> None:
    """Centre and scale one encoded column where it lies."""
    column -= feature.centre
    column /= feature.scale


def _coding(column: Ordered, *, centred: bool) -> tuple[float, float]:
    """Return the centre and half the range; without centring 0 and the largest number within the bounds."""
    lower, upper = bounds_of(column)
    if not centred:
        return 0.0, max(abs(upper), abs(lower))
    return centre_of(column), upper / 2 - lower / 2


def _target_coding(column: Column, model: RegressionModel) -> TargetCoding:
    if isinstance(column, Coded):
        return TargetCoding(column=column.name, kind="binary" if isinstance(column, BinaryColumn) else "category")
    if isinstance(model, PoissonModel):
        return TargetCoding(column=column.name, kind="count")
    if isinstance(model, PhaseRetrievalModel):
        return TargetCoding(column=column.name, kind="square", scale=bounds_of(column)[1])
    centre, scale = _coding(column, centred=model.intercept)
    return TargetCoding(column=column.name, kind="number", centre=centre, scale=scale)


def _read(column: Column, value: object) -> float | None:
    return code_of_cell(column, value) if isinstance(column, Coded) else number_of_cell(column, value)


def _wanted(column: Column) -> str:
    if isinstance(column, Coded):
        return f"must be one of {_some(column.values)}"
    if column.type == "date":
        return "must be a date such as 2006-12-31"
    return "must be a number"


def _some(names: Iterable[str], most: int = 10) -> str:
    listed = [f"`{name}`" for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
