"""Linear regression from two noised answers, X'X and X'y: the method's name, assumptions, price and predictions.

Source: Avella-Medina, Bradshaw and Loh (2023), appendix H.2, with the noise that their own neighbours need: one row
changed into another moves X'X by up to sqrt(2) x_max^2, not by the x_max^2 printed there. A comparison: it has no
intervals, and it needs every row and target to be bounded, which weights do not see to.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.losses.assumption import Assumption
from core.losses.bases import PositiveNumber
from core.methods.base import Card, Plan, Spec
from core.privacy.arithmetic import (
    CONFIDENCE,
    PLANNED_RADIUS,
    Floor,
    Mu,
    Radius,
    matrix_floor,
    noise_norm,
    required_curvature_bound,
)
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient
from farthing.schemas.estimates import Bound

FLOOR_MULTIPLE = 2.0
"""Of the spectral size of the noise, over 2 s sqrt(p): directions below it tell of noise alone."""
RESOLVED_PART = 0.1
"""The prediction is for directions whose curvature is at least this part of the bound over the dimension."""


class SufficientStatistics(Spec):
    """theta = floored(X'X/n + noise)^-1 (X'y/n + noise), a ridge added to the matrix without noise.

    Both are asked once: the Hessian of the squared loss, and its gradient at zero. Each unit's gradient is cut to x_max
    y_max, the largest within the declared bounds, so that no value within them is cut.
    """

    begins: ClassVar = False
    row_words: ClassVar = "rows within their declared bounds"

    cited: ClassVar = "Avella-Medina, Bradshaw and Loh, 2023"
    kind: Literal["sufficient_statistics"] = "sufficient_statistics"
    mu: Mu | None = Field(default=None, description="for the estimate; null: the job's")
    curvature_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="of mu^2, for X'X; null: a half, as printed"
    )
    clip: PositiveNumber | None = Field(
        default=None,
        description="largest |x y| in encoded units, longer ones are shortened; null: the declared bounds'",
    )
    eigenvalue_floor: Floor | None = Field(
        default=None, description="smallest eigenvalue of the noised X'X/n, in encoded units; null: planned"
    )
    radius: Radius | None = Field(default=None, description="the estimate is projected onto this ball around zero")

    def plan(self, facts: Facts, mu: float) -> "SufficientStatisticsPlan":
        """Fill what is open, from public facts alone.

        Raises:
            Invalid: the model is no linear one with the squared loss.
        """
        if facts.target_bound is None:
            raise Invalid(
                "Sufficient statistics are for linear models with the squared loss.",
                FieldError(
                    "/optimizer/kind",
                    "needs a linear model with loss squared and weights clip; or take whitened_newton",
                ),
            )
        largest = required_curvature_bound(facts)
        share = 0.5 if self.curvature_share is None else self.curvature_share
        curvature = _curvature(mu if self.mu is None else self.mu, share)
        deviation = curvature.sigma * curvature.sensitivity(facts)
        return self.closed(
            SufficientStatisticsPlan,
            mu=mu,
            curvature_share=share,
            clip=sqrt(largest) * facts.target_bound,
            radius=PLANNED_RADIUS,
            eigenvalue_floor=matrix_floor(deviation, facts.dimension, largest, FLOOR_MULTIPLE),
        )

    @property
    def steps(self) -> int:
        """One: nothing is iterated."""
        return 1

    @property
    def start(self) -> Literal["zeros"]:
        """Where both are asked; for the squared loss X'X is the same everywhere."""
        return "zeros"

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="sufficient_statistics",
            title="Sufficient statistics perturbation",
            paper="Avella-Medina, Bradshaw, Loh: Differentially private inference via noisy optimization (2023), H.2",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="rows are within the declared bounds, to which they are cut", checked="static"),
                Assumption(text="targets are within the declared bounds; |x y| is cut to them", checked="static"),
                Assumption(text="the model is linear with the squared loss", checked="static"),
                Assumption(text="the noised X'X is positive definite after flooring", checked="runtime"),
            ),
            returns="coefficients of a linear model, for comparison: no intervals",
        )


class SufficientStatisticsPlan(SufficientStatistics, Plan):
    """Sufficient statistics with nothing open."""

    mu: Mu
    curvature_share: Annotated[float, Field(gt=0, lt=1)]
    clip: PositiveNumber
    eigenvalue_floor: Floor
    radius: Radius

    def questions(self) -> tuple[Gradient, Curvature]:
        """Return both questions: the very values that are priced and asked."""
        gradient = Gradient(sigma=1 / (self.mu * sqrt(1 - self.curvature_share)), clip=self.clip)
        return gradient, _curvature(self.mu, self.curvature_share)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return both events."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        return [question.event() for question in self.questions()]

    def passes(self, facts: Facts) -> int:
        """Return two for the gradient and p for the matrix."""
        return 2 + facts.dimension

    def bound(self, facts: Facts) -> Bound:
        """Predict the distance to the least-squares estimate where the design is well spread.

        With A and b exact and E, e the noise, theta - theta_hat = (A + E)^-1 (e - E theta_hat). The distance is at most
        (|e| + |E| |theta_hat|)/(l - |E|), l the smallest eigenvalue of A, and |E| is at most 2 s sqrt(p) up to lower
        order. The prediction assumes |theta_hat| <= sqrt(p) and l = RESOLVED_PART * Bbar/p.
        """
        gradient, curvature = self.questions()
        size, least = sqrt(facts.dimension), RESOLVED_PART * required_curvature_bound(facts) / facts.dimension
        matrix = 2 * curvature.sigma * curvature.sensitivity(facts) * sqrt(facts.dimension)
        vector = noise_norm(gradient.sigma * gradient.sensitivity(facts), facts.dimension, 1)
        # Noise as large as the least eigenvalue may make the matrix singular.
        value = (vector + matrix * size) / (least - matrix) if matrix < least else None
        return Bound(
            quantity="distance of the private from the least-squares estimate, in encoded units, where all eigenvalues "
            f"of X'X/n are at least {least:.2g} and the estimate is no longer than {size:.2g}",
            value=value,
            confidence=CONFIDENCE,
            trivial=2 * self.radius,
            vacuous=value is None or value >= 2 * self.radius,
            source="Avella-Medina, Bradshaw and Loh (2023), appendix H.2; perturbation of a linear system",
        )


def _curvature(mu: float, share: float) -> Curvature:
    """Return the question for X'X at its share of mu^2."""
    return Curvature(of="hessian", sigma=1 / (mu * sqrt(share)))
