"""Public facts about a set of private records: all that a price, a plan or a sensitivity may depend on."""

from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

PART_UNITS: Final = 2**13
"""Sums are made of parts: floats add up at most this many consecutive units, and from there on integers do.

Where a part begins and ends depends on a unit's number alone, so parts that processes share out among them add up to
the same integers as those of one process.
"""


def parts_in(units: int) -> int:
    """Return the number of parts in a sum over so many units."""
    return -(-units // PART_UNITS)


class Frozen(BaseModel):
    """A public value: immutable, compared by content, closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Adjacency(StrEnum):
    """When two sets of records are neighbours. Fixed per scope; n is public under both."""

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
    """Where each encoded feature and the target may lie, as declared; for methods that learn how to encode them."""

    kinds: tuple[Literal["constant", "number", "two"], ...] = Field(
        description="of each feature: the intercept, a number within its range, or one of two values"
    )
    lower: tuple[float, ...] = Field(description="of each feature; of two values, the first")
    upper: tuple[float, ...] = Field(description="of each feature; of two values, the second")
    target: tuple[float, float]
    offset: tuple[float, float] | None = Field(
        default=None, description="of what enters the predictor with coefficient one; null: nothing does"
    )

    def places(self, kind: Literal["number", "two"]) -> tuple[int, ...]:
        """Return the places of the features of a kind, in their order."""
        return tuple(place for place, one in enumerate(self.kinds) if one == kind)


class Sampling(Frozen):
    """What is public of sampling weights, as parts of their declared upper bound."""

    mean: float = Field(gt=0, le=1, description="as declared, or of a uniform law")
    effect: float = Field(ge=1, description="design effect: mean square over squared mean")
    known: bool = Field(description="whether both follow from what the owner declared of the column")

    @property
    def square(self) -> float:
        """The mean square."""
        return self.effect * self.mean**2


class Facts(Frozen):
    """What is public about the records behind an oracle.

    The bounds are promises about each unit's contribution, kept by the oracle (it clips to them):

    * ``gradient_bound`` (B): l2 norm of a unit's gradient of the loss;
    * ``gradient_diameter``: l2 distance of two units' gradients at one point, where less than 2 B is proved; None: 2 B;
    * ``curvature_bound`` (Bbar): Frobenius norm of a unit's positive semidefinite Hessian, |a|^2 where that is a a^T;
      None where the loss has no such bound, and then curvature questions are refused. With an unknown scale, of the
      Hessian times the scale;
    * ``cubic_bound``: of w(x) |x|^3, None where the weights bound no third power;
    * ``hessian_rank``: of a unit's Hessian, convex or not, where less than p is proved; None: p.

    Others are promises of the loss within the declared bounds; steps may depend on them, no sensitivity does:

    * ``concordance`` (gamma): the loss is (gamma, 2)-self-concordant in theta; None where it is not known to be;
    * ``third_derivative``: of the loss in the margin, at most; None where there is none or nothing can be made of it;
    * ``target_bound``: of an encoded target, None where no method asks;
    * ``residual_scale``: of a robust loss whose scale is known, None for others;
    * ``smoothness`` (L1): a unit's gradient is so Lipschitz in theta, its weights and its clip included and its ridge
      not; None where it has kinks or nothing is known;
    * ``weak_convexity``: a unit's loss plus half of it times |theta|^2 is convex, 0 for convex losses; None: unknown;
    * ``start_gap``: the mean loss at the planned start, its ridge included, is at most so far above its least value;
      None: unknown.

    The outer product of a unit's score has Frobenius norm at most B**2.

    ``part_rows`` says how sums are made where a unit's gradient is a network's: floats of single precision add up at
    most so many rows, and from there on integers do; None: float64 parts of PART_UNITS units.
    """

    units: int = Field(gt=0, description="n, the number of units, null records included")
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
        """Whether clips alone bound a unit's gradient, so that they may cut it: a network's."""
        return self.part_rows is not None
