"""A job's settings of intervals: those of the sandwich covariance, and its two questions."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from core.privacy.arithmetic import SLACK, Floor, MatrixNoise, Radius
from core.privacy.facts import Frozen
from core.queries.bases import Sigma
from core.queries.gradients import Curvature

Share = Annotated[float, Field(gt=0, lt=1)]
UNCHECKED: Final = (
    "The intervals are unchecked: in four of six audited settings, intervals like these covered 60 to 83 % of the time "
    "at a nominal 95 %."
)
"""Text beside intervals of a method that does not check them."""


class Shares(Frozen):
    """Division of mu^2 between the estimate and the two matrices of the sandwich; the shares sum to 1."""

    estimate: Share
    curvature: Share
    score: Share

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(self.estimate + self.curvature + self.score - 1) > SLACK:
            raise ValueError("the three shares must sum to 1")
        return self


class Inference(Frozen):
    """Private intervals from the sandwich covariance, and the correction for the noise of the last steps."""

    intervals: bool = True
    accept_unchecked: bool = Field(
        default=False,
        description="needed for intervals of noisy_newton and noisy_gd, whose answers do not check them: they covered "
        ".60 to .83 in four of six audited settings at the nominal .95; the default method checks its own",
    )
    level: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    correction: Literal["stationary", "plain", "printed"] = "stationary"
    shares: Shares | Literal["equal", "optimised"] | None = Field(
        default=None,
        description="equal: every answer takes as much of mu^2, as in the paper; optimised: predicted to give the "
        "narrowest intervals; null: planned",
    )
    curvature_floor: Floor | None = Field(
        default=None, description="smallest eigenvalue of the noised mean Hessian, in encoded units; null: planned"
    )
    score_floor: Floor | None = Field(
        default=None, description="smallest eigenvalue of the noised mean outer product of scores; null: planned"
    )
    plausible_radius: Radius | None = Field(
        default=None,
        description=(
            "a plausible size of an encoded slope; the intercept may be twice as large. It widens intervals "
            "along directions that the job has not learned; null: planned"
        ),
    )
    matrix_noise: MatrixNoise = Field(
        default="tight", description="printed: the paper's factor 2 where sqrt(2) is enough under replace_one"
    )
    curvature_sigma: Sigma | None = Field(default=None, description="null: planned, it follows from the shares")
    score_sigma: Sigma | None = Field(default=None, description="null: planned, it follows from the shares")

    def questions(self) -> tuple[Curvature, ...]:
        """Return what is asked for after the estimate: nothing, unless a plan says it."""
        return ()


class PlannedInference(Inference):
    """Intervals from a sandwich with nothing open that its two questions or its floors need."""

    intervals: Literal[True] = True
    curvature_floor: Floor
    score_floor: Floor
    plausible_radius: Radius
    curvature_sigma: Sigma
    score_sigma: Sigma

    def questions(self) -> tuple[Curvature, Curvature]:
        """Return the two matrices asked for after the estimate, Hessian first."""
        return (
            Curvature(of="hessian", sigma=self.curvature_sigma),
            Curvature(of="score", sigma=self.score_sigma),
        )
