"""Public facts about a set of private records: a price, a plan or a sensitivity may depend on nothing else."""

from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

PART_UNITS: Final = 2**13
"""The most units in a part of a sum. Floats add up the consecutive units of a part, integers add up the parts.

The ends of a part depend on the units' numbers alone. Parts that several processes share add up to the same integers
as those of one process.
"""


def parts_in(units: int) -> int:
    """Return the number of parts in a sum over so many units."""
    return -(-units // PART_UNITS)


class Frozen(BaseModel):
    """A public value: immutable, compared by content, closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Adjacency(StrEnum):
    """The relation between two neighbouring sets of records. Fixed per scope; n is public under both."""

    ZERO_OUT = "zero_out"
    """One unit is replaced by one that contributes nothing."""

    REPLACE_ONE = "replace_one"
    """One unit changes into any other."""


class UnknownScale(Frozen):
    """A residual scale that is estimated with the coefficients: the last parameter, positive, in encoded units."""

    start: float = Field(gt=0)
    floor: float = Field(gt=0, description="no iterate's scale is below it")
    curvature: float = Field(
        default=1.0, gt=0, le=1, description="of the loss along the scale, times it, for normal errors of that scale"
    )


class Ranges(Frozen):
    """Declared ranges of each encoded feature and of the target; for methods that learn an encoding."""

    kinds: tuple[Literal["constant", "number", "few", "two", "product"], ...] = Field(
        description="of each feature: the intercept, a number within its range, one of a few numbers that are equally "
        "far apart, one of two values, or a product of numbers less their learned centres"
    )
    lower: tuple[float, ...] = Field(description="of each feature; of two values, the first")
    upper: tuple[float, ...] = Field(description="of each feature; of two values, the second")
    target: tuple[float, float]
    values: tuple[int, ...] = Field(
        default=(),
        description="of each feature, how many numbers, equally far apart from end to end, it may be; 0: any number; "
        "empty: 0 of each",
    )
    origin: tuple[float, ...] = Field(
        default=(), description="encoded row of a record of zeros; empty: nothing is known of declared units"
    )
    factors: tuple[tuple[int, ...], ...] = Field(
        default=(),
        description="of each feature, the places of those that it is the product of, with 0 and 1 for two values; "
        "empty: it is none; all of it empty: no feature is of the kind product",
    )
    offset: tuple[float, float] | None = Field(
        default=None, description="of what enters the predictor with coefficient one; null: nothing does"
    )

    def places(self, kind: Literal["number", "few", "two", "product"]) -> tuple[int, ...]:
        """Return the places of the features of a kind, in their order."""
        return tuple(place for place, one in enumerate(self.kinds) if one == kind)

    def step(self, place: int) -> float:
        """Return the distance between the numbers that a feature may be; 0: it may be any number in its range."""
        values = self.values[place] if self.values else 0
        return (self.upper[place] - self.lower[place]) / (values - 1) if values else 0.0

    @property
    def few(self) -> tuple[int, ...]:
        """The number of values of each feature that is one of a few, in their order."""
        return tuple(self.values[place] for place in self.places("few"))


class Sampling(Frozen):
    """Public figures of sampling weights, as parts of their declared upper bound."""

    mean: float = Field(gt=0, le=1, description="as declared, or of a uniform law")
    effect: float = Field(ge=1, description="design effect: mean square over squared mean")
    known: bool = Field(description="whether both follow from what the owner declared of the column")
    reach: float = Field(default=1.0, gt=0, le=1, description="the largest weight that counts, or is foreseen")
    beyond: float | None = Field(
        default=None,
        description="number of records with larger weights that the noise could hide; null: there are none",
    )

    @property
    def square(self) -> float:
        """The mean square."""
        return self.effect * self.mean**2

    def over_reach(self) -> "Sampling":
        """Return the same figures as parts of the largest weight that counts."""
        return self.model_copy(update={"mean": min(self.mean / self.reach, 1.0), "reach": 1.0})


class Facts(Frozen):
    """Public facts about the records behind an oracle.

    These bounds hold for each unit's contribution; the oracle clips to them:

    * ``gradient_bound`` (B): l2 norm of a unit's gradient of the loss;
    * ``gradient_diameter``: l2 distance of two units' gradients at one point, where a bound below 2 B is proved.
      None: 2 B;
    * ``curvature_bound`` (Bbar): Frobenius norm of a unit's positive semidefinite Hessian, |a|^2 where that is a a^T.
      With an unknown scale: of the Hessian times the scale. None where the loss has no such bound. Curvature questions
      are then refused;
    * ``cubic_bound``: of w(x) |x|^3. None where the weights bound no third power;
    * ``hessian_rank``: rank of a unit's Hessian, convex or not, where a rank below p is proved. None: p.

    These hold of the loss within the declared bounds. Steps may depend on them, but no sensitivity does:

    * ``concordance`` (gamma): the loss is (gamma, 2)-self-concordant in theta. None where that is not known.
    * ``third_derivative``: bound on the loss's third derivative in the margin. None where no bound exists or is of use.
    * ``target_bound``: of an encoded target. None where no method needs it.
    * ``residual_scale``: of a robust loss whose scale is known. None for others.
    * ``smoothness`` (L1): Lipschitz constant of a unit's gradient in theta, with its weights and its clip but without
      the ridge. None where the gradient has kinks or no constant is known.
    * ``weak_convexity``: a unit's loss plus half of it times |theta|^2 is convex; 0 for convex losses. None: unknown.
    * ``start_gap``: bound on the mean loss at the planned start, ridge included, less its least value. None: unknown.

    The outer product of a unit's score has Frobenius norm at most B**2.

    ``part_rows`` is set where a unit's gradient is that of a network. Floats of single precision add up at most
    ``part_rows`` rows, and integers add up these parts. None: float64 parts of PART_UNITS units.
    """

    units: int = Field(gt=0, description="n, the number of units, excluded rows included")
    dimension: int = Field(gt=0, description="p, the number of parameters, an unknown scale included")
    adjacency: Adjacency
    gradient_bound: float = Field(gt=0)
    gradient_diameter: float | None = Field(default=None, gt=0)
    curvature_bound: float | None = Field(default=None, gt=0)
    cubic_bound: float | None = Field(default=None, gt=0)
    concordance: float | None = Field(default=None, gt=0)
    third_derivative: float | None = Field(default=None, gt=0)
    target_bound: float | None = Field(default=None, gt=0)
    residual_scale: float | None = Field(default=None, gt=0)
    smoothness: float | None = Field(default=None, gt=0)
    weak_convexity: float | None = Field(default=None, ge=0)
    start_gap: float | None = Field(default=None, gt=0)
    ridge: float = Field(default=0.0, ge=0, description="lambda of (lambda/2) |theta|^2, added without the records")
    scale: UnknownScale | None = Field(default=None, description="None: all parameters are coefficients")
    part_rows: int | None = Field(default=None, gt=0)
    hessian_rank: int | None = Field(default=None, gt=0)
    ranges: Ranges | None = Field(default=None, description="None where no method asks")
    sampling: Sampling | None = Field(default=None, description="None: every record counts once")

    @property
    def clips_alone(self) -> bool:
        """Whether clips alone bound a unit's gradient, so that they may cut it: true of networks."""
        return self.part_rows is not None
