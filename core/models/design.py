"""From declared columns to the numbers a model sees, and back: public arithmetic on declared values only.

A row becomes the encoded features x, the intercept's 1 first. Numbers, integers and dates enter as (value -
centre)/scale, with the centre `centre` (or the middle of the bounds) and half the declared range as scale. A category
enters as one feature for each value but the first, its baseline, and a binary column as one for its second value. The
feature is (indicator - centre)/scale. The public centre and scale spread the values as far apart as vectors of norm at
most 1 allow (-1 and 1 for two values). An ordinary column thus adds at most 1 to the squared norm of a row, and noise
affects all columns alike. Without an intercept nothing is centred. The target of a linear model is encoded like a
number. Coefficients in the units of the declared columns are an affine map of the encoded ones.

A network reads ordinary columns encoded so, without an intercept, or one array column (`core.data.arrays`), in
single precision.

Interactions, an offset and sampling weights enter as `core.models.terms` says.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod, sqrt
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from core.base.errors import FieldError, Invalid
from core.data.arrays import encode_array, encode_one, norm_of
from core.data.columns import ArrayColumn, Coded, Column, Scalar, bounds_of, plain
from core.data.tiny import drop_tiny, without_tiny
from core.models.features import (
    Feature,
    TargetCoding,
    escape,
    factor_of,
    features_of,
    parts_of,
    product_features,
    product_reaches,
    reach_of,
    read_cell,
    target_coding,
    wanted,
)
from core.models.kinds import TrainedModel
from core.models.network.layers import Shape
from core.models.network.model import NetworkModel
from core.models.terms import (
    OffsetCoding,
    SamplingCoding,
    hierarchical,
    interaction_columns,
    make_offset,
    make_sampling,
)
from core.models.used_columns import target_of, used_by
from core.privacy.facts import Frozen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

MAX_DIMENSION = 2_000
INTERCEPT = "intercept"
_NUMBER_BYTES = {"float64": 8, "float32": 4, "int32": 4}
_ABSENT = "is missing: give every column the model uses"


class Design(Frozen):
    """A model's encoding: from declared rows to features and target, and from encoded coefficients to declared ones.

    Either of ordinary columns, or of one array, which then has no features of its own names.
    """

    features: tuple[Feature, ...]
    target: TargetCoding
    columns: tuple[Scalar, ...] = Field(description="the declared columns behind the features, in the model's order")
    target_column: Scalar
    array: ArrayColumn | None = Field(default=None, description="columns read instead of features")
    single: bool = Field(default=False, description="encoded features are kept in single precision, for a network")
    keeps_missing: bool = Field(
        default=False, description="a missing value is NaN and its record counts, for descriptions of columns"
    )

    aside: tuple[Scalar, ...] = Field(default=(), description="columns of interactions that have no feature themselves")
    offset: OffsetCoding | None = Field(
        default=None, description="a column that enters the predictor with coefficient one"
    )
    sampling: SamplingCoding | None = Field(default=None, description="the weight of a record")

    @model_validator(mode="after")
    def _either(self) -> "Design":
        if (self.array is None) == (not self.features):
            raise ValueError("a design has either features or an array")
        return self

    @property
    def shape(self) -> Shape:
        """The shape of an encoded record: an array's own, or (p,)."""
        return (self.dimension,) if self.array is None else self.array.shape

    @property
    def number_type(self) -> Literal["float64", "float32", "int32"]:
        """Storage of an encoded number."""
        if self.array is not None:
            return "int32" if self.array.of == "token" else "float32"
        return "float32" if self.single else "float64"

    @property
    def record_bytes(self) -> int:
        """Size of an encoded record, its target included."""
        beside = 1 + (self.offset is not None) + (self.sampling is not None)
        return _NUMBER_BYTES[self.number_type] * self.dimension + beside * _NUMBER_BYTES["float64"]

    @property
    def read(self) -> tuple[str, ...]:
        """The names of the columns that are read beside the target, each once: those of the features first."""
        return tuple(column.name for column in self.used)

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are read beside the target, each once: those of the features first."""
        sampling = () if self.sampling is None else (self.sampling.column,)
        # A column may be feature and weight at once.
        return tuple({column.name: column for column in (*self.predictors, *sampling)}.values())

    @property
    def predictors(self) -> tuple[Column, ...]:
        """The columns that a row to predict must have, each once: those of the features first."""
        if self.array is not None:
            return (self.array,)
        offset = () if self.offset is None else (self.offset.column,)
        return tuple({column.name: column for column in (*self.columns, *self.aside, *offset)}.values())

    @property
    def classes(self) -> int:
        """Number of the target's values, where it is a category."""
        assert isinstance(self.target_column, Coded), "only categories have classes"
        return len(self.target_column.values)

    @property
    def dimension(self) -> int:
        """p, the number of encoded features, intercept included, or of an array's numbers."""
        return len(self.features) if self.array is None else self.array.numbers

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names."""
        return tuple(feature.name for feature in self.features)

    @property
    def intercept(self) -> bool:
        """Whether the first feature is the intercept."""
        return self.array is None and self.features[0].column is None

    @property
    def norm_bound(self) -> float:
        """The largest euclidean norm of an encoded row.

        The intercept adds 1 to its square, a column at most 1, and more where `centre` is off the middle.
        """
        if self.array is not None:
            return norm_of(self.array)
        products = sum(reach**2 for reach in product_reaches(self.features, (*self.columns, *self.aside)).values())
        coded: dict[str | None, list[Feature]] = {}
        for feature in self.features:
            if feature.factors:
                continue
            coded.setdefault(feature.column, []).append(feature)
        return sqrt(
            self.intercept + sum(reach_of(column, coded[column.name]) ** 2 for column in self.columns) + products
        )

    @property
    def ordinary_norm(self) -> float:
        """A norm that rows pass only where numbers lie further from `centre` than half their declared range."""
        return sqrt(
            len(self.columns) + self.intercept + len(product_reaches(self.features, (*self.columns, *self.aside)))
        )

    @property
    def target_reach(self) -> float:
        """The largest size of an encoded target: 1, and more where `centre` is off the middle of its bounds."""
        return max(map(abs, self.target_bounds))

    @property
    def target_bounds(self) -> tuple[float, float]:
        """Between which numbers an encoded target lies; a number's offset is taken from it."""
        assert not isinstance(self.target_column, Coded), "categories have codes"
        lower, upper = ((end - self.target.centre) / self.target.scale for end in bounds_of(self.target_column))
        if self.offset is None or self.target.kind != "number":
            return lower, upper
        least, most = self.offset.bounds
        return lower - most, upper - least

    @property
    def margin_offset(self) -> OffsetCoding | None:
        """The offset, where it is not taken from the target: of a log or logit link."""
        return None if self.target.kind == "number" else self.offset

    def to_declared(self) -> "tuple[Array, Array]":
        """Return (A, offset), shapes (p, p) and (p,): coefficients in declared units are A @ encoded + offset.

        Their covariance is A @ V @ A.T. With y = c + s (x.theta) and x_j = (v_j - c_j)/s_j, the coefficient of v_j is s
        theta_j/s_j and the intercept is c + s (theta_0 - sum_j theta_j c_j/s_j). On the logit scale c = 0 and s = 1.
        Where the target is the margin's square, c = 0 and s is the root of the target's scale. A product of centred
        numbers is multiplied out: prod_j (v_j - c_j)/s_j is the plain product over the s_j, and lower terms times
        products of the other c_j, whose coefficients it moves.
        """
        import numpy as np  # noqa: PLC0415 - only those who transform coefficients pay for numpy

        scales = np.array([feature.scale for feature in self.features])
        unit = self.target.margin_scale
        matrix = np.diag(unit / scales)
        offset = np.zeros(self.dimension)
        if self.intercept:
            centres = np.array([feature.centre for feature in self.features])
            matrix[0] -= unit * centres / scales
            offset[0] = self.target.centre - (0.0 if self.offset is None else self.offset.centre)
        places = {parts_of(feature): place for place, feature in enumerate(self.features)}
        for place, feature in enumerate(self.features):
            moved = [factor for factor in feature.factors if factor.centre]  # a centre of 0 moves nothing
            for size in range(1, len(moved) + 1):
                for some in combinations(moved, size):
                    rest = frozenset((one.column, one.code) for one in feature.factors if one not in some)
                    matrix[places[rest], place] += prod(-one.centre for one in some) * unit / feature.scale
        return matrix, offset

    def baseline_shifts(self) -> "Array":
        """Return, for each category of three values or more, the direction of its baseline's effect, shape (q, p).

        Every coefficient of a category is a contrast with its first declared value. Uncertainty about that value's own
        effect moves all of them together, along this unit vector of encoded coefficients. With a rare first value the
        records have little information along it.
        """
        import numpy as np  # noqa: PLC0415 - as above

        columns = [feature.column if feature.level is not None else None for feature in self.features]
        shifts = []
        for column in dict.fromkeys(name for name in columns if name is not None):
            shift = np.array(
                [feature.scale if name == column else 0.0 for feature, name in zip(self.features, columns, strict=True)]
            )
            if np.count_nonzero(shift) > 1:  # two values have a single contrast
                shifts.append(shift / np.linalg.norm(shift))
        return np.array(shifts).reshape(len(shifts), self.dimension)

    def encode_row(self, row: Mapping[str, object], pointer: str = "") -> list[float]:
        """Return the p encoded features of a row of declared values; other fields of the row are not looked at.

        Values are read as an upload's cells are: clamped, unknown categories take `other`, missing ones `fill`.

        Args:
            row: column name -> number, text, date or None; an array as nested lists or as one list.
            pointer: JSON pointer of the row in the request, for the errors.

        Raises:
            Invalid: a column is absent, or a value is missing or cannot be read, and the column declares nothing
                to stand for it. Each such column is named, and the place inside an array.
        """
        if self.array is not None:
            return self._encode_array(row, f"{pointer}/{escape(self.array.name)}")
        values = self._values((*self.columns, *self.aside), row, pointer)
        return [self._feature(feature, values) for feature in self.features]

    def encode_offset(self, row: Mapping[str, object], pointer: str = "") -> float:
        """Return what enters a row's linear predictor beside its features, in encoded units; 0 without an offset.

        Args:
            row: as in `encode_row`.
            pointer: as there.

        Raises:
            Invalid: the offset's column is absent, or its value is missing or cannot be read.
        """
        if self.offset is None:
            return 0.0
        values = self._values((self.offset.column,), row, pointer)
        return self.offset.of(values[self.offset.column.name])

    @staticmethod
    def _values(columns: Sequence[Scalar], row: Mapping[str, object], pointer: str) -> dict[str, float]:
        """Return a row's values as the store keeps them."""
        values: dict[str, float] = {}
        errors: list[FieldError] = []
        for column in columns:
            where = f"{pointer}/{escape(column.name)}"
            if column.name not in row:
                errors.append(FieldError(where, _ABSENT))
                continue
            value = read_cell(column, row[column.name])
            if value is None:
                errors.append(FieldError(where, wanted(column)))
            else:
                values[column.name] = value
        if errors:
            raise Invalid(f"The row cannot be encoded: see {errors[0].pointer}.", *errors)
        return values

    def _encode_array(self, row: Mapping[str, object], where: str) -> list[float]:
        assert self.array is not None, "asked of designs with one"
        if self.array.name not in row:
            raise Invalid(f"The row cannot be encoded: see {where}.", FieldError(where, _ABSENT))
        encoded = encode_one(self.array, row[self.array.name], where)
        if isinstance(encoded, FieldError):
            raise Invalid(f"The row cannot be encoded: see {encoded.pointer}.", encoded)
        return encoded

    def encode_columns(self, values: "Mapping[str, npt.NDArray[np.generic]]", out: "npt.NDArray[np.generic]") -> None:
        """Fill `out` with encoded features, all rows at once; the result for a row with a missing value is undefined.

        Args:
            values: by column name, arrays of shape (rows,) as kept by the store; an array column has shape (rows,
                numbers). They are float64 numbers in declared units (days since `lower` for dates, NaN when missing),
                or integer codes (negative when missing).
            out: of the design's `number_type`, shape (rows, p).
        """
        import numpy as np  # noqa: PLC0415 - as above

        if self.array is not None:
            encode_array(self.array, values[self.array.name], out)
            return
        for place, feature in enumerate(self.features):
            if feature.column is None:
                out[:, place] = 1.0
                continue
            if feature.factors:
                column = np.ones(len(out))
                for factor in feature.factors:
                    column *= factor_of(factor, values[factor.column])
                drop_tiny(column)
                out[:, place] = column
                continue
            given = values[feature.column]
            numbers = given if feature.code is None else given == feature.code
            column = numbers.astype(np.float64)  # single precision comes last, once
            column -= feature.centre
            column /= feature.scale
            drop_tiny(column)
            out[:, place] = column
            if out.dtype == np.float32:  # its limit is the larger one
                drop_tiny(out[:, place])

    @staticmethod
    def _feature(feature: Feature, values: Mapping[str, float]) -> float:
        if feature.column is None:
            return 1.0
        if feature.factors:
            return without_tiny(prod(factor.of(values[factor.column]) for factor in feature.factors))
        value = values[feature.column]
        number = float(value == feature.code) if feature.code is not None else value
        return without_tiny((number - feature.centre) / feature.scale)


def make_design(columns: Sequence[Column], model: TrainedModel) -> Design:
    """Return the encoding of `model`'s features and target, from declared columns alone.

    Raises:
        Invalid: the target or a feature is unknown, doubled or of a type the model cannot use (pointers
            /model/target, /model/features/k).
    """
    columns = tuple(map(plain, columns))
    target_column = target_of(columns, model)
    used = used_by(columns, model)
    target = target_coding(target_column, model)
    network = isinstance(model, NetworkModel)
    if isinstance(used, ArrayColumn):
        return Design(features=(), target=target, columns=(), target_column=target_column, array=used, single=True)
    intercept = not isinstance(model, NetworkModel) and model.intercept
    features = [Feature(name=INTERCEPT, column=None)] if intercept else []
    for column in used:
        features.extend(features_of(column, centred=intercept or network))
    terms = interaction_columns(columns, model)
    mains = [column.name for column in used]
    for term, centred in zip(terms, hierarchical(terms, mains, intercept=intercept), strict=True):
        features.extend(product_features(term, centred=centred))
    if len(features) > MAX_DIMENSION:
        raise Invalid(
            f"The model would have {len(features)} coefficients; at most {MAX_DIMENSION} are offered.",
            FieldError("/model/features", "leave out features, or declare fewer values of a category"),
        )
    doubled = next((name for name, times in Counter(feature.name for feature in features).items() if times > 1), None)
    if doubled is not None:
        raise Invalid(
            f"Two coefficients would both be called `{doubled}`.",
            FieldError("/model/features", "leave out one of the columns, or rename it in a new upload"),
        )
    every = {column.name: column for term in terms for column in term}
    return Design(
        features=tuple(features),
        target=target,
        columns=used,
        target_column=target_column,
        single=network,
        aside=tuple(column for name, column in every.items() if name not in mains),
        offset=make_offset(columns, model, target.scale, centred=intercept),
        sampling=make_sampling(columns, model),
    )
