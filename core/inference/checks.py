"""A method's checks of its own estimate, from answers already paid for, and its encoding of the records."""

from typing import Final, Literal

from pydantic import Field

from core.privacy.facts import Frozen, Sampling
from farthing.schemas.estimates import JobCheck

CoefficientCheck = Literal[
    "not identified", "separated", "scale outside the plan", "too few events", "clipped", "too uncertain"
]
"""Said of one coefficient, whose interval is withheld; events of one of several classes."""


WEIGHTED: Final = "weighted"
"""Said of one coefficient, whose interval is that of the weighted equation."""
CLEARLY: Final = 4.0
"""Deviations of a count's noise below n, from where on records are taken to be excluded."""


class ColumnLook(Frozen):
    """Learned facts about one coefficient's column, in encoded units."""

    centre: float
    scale: float
    clamped: tuple[Literal["lower", "upper"], ...] = Field(
        default=(), description="declared bounds at which many records lie: clamped there, or a value of their own"
    )


class Learned(Frozen):
    """The encoding and the figures that the job learned by noised answers; with them its weights are public."""

    columns: tuple[ColumnLook, ...] = Field(description="by coefficient; the intercept has centre 0 and scale 1")
    encoding: tuple[tuple[float, ...], ...] = Field(description="E, shape (p, p), applied to encoded rows")
    weight_bound: float = Field(description="t of the weights min(1, t^2/|E x|^2)")
    base_rate: float | None = Field(
        default=None,
        description="of a logistic model: the second outcome's part of the complete records, both counted with noise; "
        "with sampling weights the weighted rate; a mean count",
    )
    complete: float | None = Field(
        default=None,
        description="number of records with all values that the model needs, counted with noise; null: not counted",
    )
    complete_deviation: float | None = Field(default=None, description="of the noise on it, in records")
    class_rates: tuple[float, ...] | None = Field(default=None, description="of a category's values, in their order")
    residual_scale: float | None = Field(default=None, description="in encoded units")
    cap: float | None = Field(default=None, description="largest count of a Poisson model")
    rate_cap: float | None = Field(
        default=None, description="M of a Poisson model: a record of rate mu above it has weight M/mu"
    )
    cut: float | None = Field(
        default=None,
        description="of a Poisson model: where weighted residuals are cut; of least squares, where residuals are, in "
        "residual scales",
    )
    beyond: float | None = Field(
        default=None,
        description="of least squares: the mean of what residuals pass the cut by, as counted, in residual scales; it "
        "is in the intercept",
    )
    dispersion: float | None = Field(
        default=None, description="a of a Poisson model: the cut takes counts' variance for mu + a mu^2"
    )
    variance_ratio: float | None = Field(
        default=None,
        description="of a Poisson model: variance of weighted residuals over that of a Poisson law, by their sizes",
    )
    score_ratio: float | None = Field(
        default=None,
        description=(
            "of a Poisson model: variance of the scores over that of a Poisson law, which the standard errors "
            "allow for (quasi-Poisson's dispersion), with its noise"
        ),
    )
    score_ratio_error: float | None = Field(default=None, description="deviation of the noise on it")
    offset: float | None = Field(default=None, description="mean offset, encoded; null: none, or a linear model's")
    sampling: Sampling | None = Field(default=None, description="sampling weights over their declared upper bound")

    def counted(self, units: int) -> float:
        """Return how many records an answer is made of: all declared ones, unless clearly fewer were counted."""
        if self.complete is None or self.complete_deviation is None:
            return units
        # A noised count may be below 1, and figures divide by it.
        return max(self.complete, 1.0) if self.complete < units - CLEARLY * self.complete_deviation else units


class TailLine(Frozen):
    """Of least squares, the line that is not claimed, of the same answers; by coefficient and in declared units."""

    tails: Literal["counted", "assumed_light"]
    coefficients: tuple[float, ...]
    std_errors: tuple[float, ...]
    largest: float = Field(description="largest residual up to which records were seen, in the target's units")
    hidden: float = Field(description="number of records that the noise could hide beyond it, of about one size")
    moves: tuple[float, ...] = Field(
        description="the most by which one such record moves each coefficient, if its features are ordinary"
    )
    times: float = Field(description="t: with extreme features it moves them by up to so many times as much")


class Checks(Frozen):
    """Faults of an estimate, of the job and by coefficient; empty if there are none."""

    job: tuple[JobCheck, ...] = ()
    coefficients: tuple[tuple[CoefficientCheck, ...], ...]
    learned: Learned
    gradient_excess: float | None = Field(
        default=None,
        description="squared length of the last noised gradient over what noise alone passes once in a thousand; null: "
        "the last step is exact, as of least squares",
    )
    hessian_noise: float = Field(description="spectral noise of the Hessian over its mean eigenvalue")
    unidentified: tuple[float, ...] = Field(
        description="by coefficient, the part of its variance that is a public guess and not learned"
    )
    clipped: tuple[float, ...] = Field(
        default=(),
        description=(
            "of least squares, by coefficient: the part of its variance that residuals beyond the cut may add, "
            "within the noise of their counts; above a half the interval is withheld"
        ),
    )

    foreseen: tuple[float, ...] = Field(
        default=(),
        description="by coefficient, the standard error that the plan foresees with what was learned, in declared "
        "units; actual ones of slopes are within .7 to 1.35 of it in sound cells",
    )
    unshown_covariance: tuple[tuple[float, ...], ...] | None = Field(
        default=None,
        exclude_if=lambda covariance: covariance is None,
        description="of theta, encoded units, where the release shows none, for a flag of the job or by request: "
        "predictions are shrunk by it; no interval is made of it",
    )

    tails: TailLine | None = Field(default=None, description="of least squares")
    kept: tuple[float | None, ...] = Field(
        default=(),
        description="by coefficient, the part of its column's second moment about the centre that the row weights "
        "keep, as the look counted it with noise; null: not counted",
    )
    weighted: tuple[bool, ...] = Field(
        default=(),
        description="by coefficient: with equal weights the estimate is foreseen to be over half a standard error away "
        "if the effect is another by a quarter where records lose weight; no interval is withheld for it",
    )

    @property
    def withheld(self) -> tuple[int, ...]:
        """The places of coefficients without an interval."""
        places = range(len(self.coefficients))
        return tuple(place for place in places if self.job or self.coefficients[place])

    def words(self, place: int) -> tuple[str, ...]:
        """Return what is said beside one coefficient, in words."""
        column = self.learned.columns[place % len(self.learned.columns)]  # classes share them
        notes = ("clamped",) * bool(column.clamped) + (WEIGHTED,) * (place in self.far)
        return (*self.job, *self.coefficients[place], *notes)

    @property
    def far(self) -> tuple[int, ...]:
        """The places of coefficients that equal weights may move."""
        return tuple(place for place, marked in enumerate(self.weighted) if marked)
