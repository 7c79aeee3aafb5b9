"""Noisy gradient descent: its name, assumptions, price and predictions.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (4), Theorem 2 and Corollary 1.
"""

from collections.abc import Sequence
from math import ceil, log, sqrt
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from core.inference.settings import PlannedInference
from core.losses.assumption import Assumption
from core.losses.bases import PositiveNumber
from core.methods.base import Card, Plan, Spec
from core.methods.m_estimation.predicted_covariance import (
    NEAREST_TO_ONE,
    Array,
    Noised,
    plain_covariance,
    remembered,
    spectrum_of,
)
from core.methods.m_estimation.widths import PredictsWidths
from core.models.design import Design
from core.models.kinds import RegressionModel
from core.models.loss_geometry import longest_square
from core.models.outlook import Outlook
from core.privacy.arithmetic import (
    CONFIDENCE,
    PLANNED_RADIUS,
    AnyStart,
    Mu,
    Radius,
    Steps,
    fill,
    noise_norm,
)
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from farthing.schemas.estimates import Bound

FEWEST_STEPS = 60
MOST_STEPS = 1500
FEWEST_TRIED = 10
STRIDE = 2.0
"""From one number of steps that is compared to the next."""


class NoisyGradientDescent(Spec):
    """theta <- theta - step_size * (mean gradient + noise), `steps` times from a public start.

    Each gradient takes an equal share of `mu`: its noise is sqrt(steps)/mu times the sensitivity. A ridge is added to
    the gradient without noise. With an unknown residual scale a step is also multiplied by the current one. The step is
    then the same in any unit of the target, since the Hessian is as 1/scale. The scale is kept above its public floor.
    """

    offers_intervals: ClassVar = True
    federates: ClassVar = True

    cited: ClassVar = "Avella-Medina, Bradshaw and Loh, 2023"
    takes_terms: ClassVar = True
    kind: Literal["noisy_gd"] = "noisy_gd"
    steps: Steps | None = Field(default=None, description="null: planned from the number of units")
    step_size: PositiveNumber | None = Field(
        default=None, description="null: 1/curvature bound, the largest step the theory allows"
    )
    mu: Mu | None = Field(default=None, description="for the estimate alone; null: the job's share")
    radius: Radius | None = Field(default=None, description="iterates are projected onto this ball around zero")
    start: AnyStart = Field(
        default="zeros", description="in encoded units, never from the records; random: at distance 1 from zero"
    )
    stop: Literal["budgeted", "private"] = Field(
        default="budgeted",
        description="private: stop once a noised gradient is no longer than the noise of one coordinate, or half of it "
        "where the scale is unknown",
    )
    scaling: Literal["scaled", "plain"] = Field(
        default="scaled", description="with an unknown scale; plain: steps are not multiplied by it, as printed"
    )

    def steady(self, model: RegressionModel, design: Design, facts: Facts) -> Self:
        """Take the smoothness of all rows where nothing bounds all Hessians, times an unknown scale, as steps are.

        A loss with kinks has no such figure, and no step size is safe for it.
        """
        if facts.curvature_bound is not None:
            return self
        bent = facts.smoothness or facts.weak_convexity
        if facts.scale is not None:
            bent = longest_square(model.weights, design.norm_bound)
        assert bent, "every loss is smooth or bends down"
        return fill(self, step_size=1 / (bent + facts.ridge))

    def alternatives(self, usual: Plan) -> Sequence[Self]:
        """Return settings with numbers of steps by powers of two, and the usual one, where it is open."""
        if self.steps is not None:
            return ()
        assert usual.steps is not None, "a plan has a number of steps"
        counts, steps = {usual.steps}, float(FEWEST_TRIED)
        while steps <= MOST_STEPS:
            counts.add(ceil(steps))
            steps *= STRIDE
        return [self.model_copy(update={"steps": one}) for one in sorted(counts)]

    def plan(self, facts: Facts, mu: float) -> "NoisyGradientDescentPlan":
        """Fill what is open.

        The step is 1/Bbar, with Bbar the public bound on every Hessian, its ridge included (and no more than 1 without
        one). After K steps a direction of curvature l keeps (1 - l/Bbar)^K of its start, while the noise grows as
        sqrt(K). The sampling error shrinks as 1/sqrt(n). K grows with n and mu up to MOST_STEPS
        (`docs/explanation/plans.md`). With an unknown scale Bbar bounds the Hessian times it, so a plain step is 1/Bbar
        times the start's scale; no step size is safe for every scale then.
        """
        return self.closed(
            NoisyGradientDescentPlan,
            steps=planned_steps(facts, mu),
            step_size=self._planned_step(facts),
            mu=mu,
            radius=PLANNED_RADIUS,
        )

    def _planned_step(self, facts: Facts) -> float:
        """Return the largest step that the theory allows."""
        start = 1.0 if facts.scale is None else facts.scale.start
        bent = (facts.curvature_bound or start) + facts.ridge * start
        return (start if self.scaling == "plain" else 1.0) / bent

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="noisy_gd",
            title="Noisy gradient descent",
            paper="Avella-Medina, Bradshaw, Loh: Differentially private inference via noisy optimization (2023)",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded (the weights see to it)", checked="static"),
                Assumption(text="the planned step is at most 1/curvature bound", checked="static"),
                Assumption(text="the loss is locally strongly convex around its minimiser", checked="declared"),
            ),
            returns="coefficients, and unchecked private intervals where the job accepts them",
        )


class NoisyGradientDescentPlan(NoisyGradientDescent, PredictsWidths):
    """Noisy gradient descent with nothing open."""

    steps: Steps
    step_size: PositiveNumber
    mu: Mu
    radius: Radius

    def questions(self) -> tuple[Gradient]:
        """Return the question of every step, the very value that the schedule prices and the oracle is asked."""
        return (Gradient(sigma=sqrt(self.steps) / self.mu),)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return one Gaussian event a step."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        (gradient,) = self.questions()
        return (gradient.event(),) * self.steps

    def covariance(self, outlook: Outlook, facts: Facts, inference: PlannedInference, noised: Noised) -> Array:
        """Return the sandwich, what gradient descent's noise adds, and its memory of the start."""
        scale = outlook.reference.scale
        spectrum = spectrum_of(noised, inference, scale)
        plain = plain_covariance(noised, inference, spectrum, facts.units)
        if inference.correction == "plain":
            return plain
        step = self.step_size * (scale if self.scaling == "scaled" else 1.0)
        (gradient,) = self.questions()
        variance = (step * gradient.sigma * gradient.sensitivity(facts)) ** 2
        if inference.correction != "stationary":
            return np.asarray(plain + 2 * variance * np.eye(facts.dimension))
        factor = np.clip(1 - step * spectrum.floored, -NEAREST_TO_ONE, NEAREST_TO_ONE)
        grown = variance * (1 - factor ** (2 * self.steps)) / (1 - factor**2)
        start = remembered(outlook, inference, spectrum, lambda speed: step * speed, self.steps)
        return np.asarray(plain + (spectrum.of(grown) + start))

    def bound(self, facts: Facts) -> Bound:
        """Predict the distance to the non-private estimate, over directions that `steps` steps can reach.

        With every Hessian between m and 1/step_size on these directions a step contracts by f = 1 - step_size*m. Hence
        |theta_K - theta_hat| <= f^K R + (1 - f^K)/m * (largest noise of one step), as in the proof of Theorem 2. At m =
        log(n)/(step_size*K) the first term has fallen to R/n. With an unknown scale both m and the step are relative to
        it, and it is taken to be where it starts.
        """
        if facts.weak_convexity:
            return self._no_bound(self.radius)
        (gradient,) = self.questions()
        # n + 1: the logarithm of a single unit is 0, and it divides.
        least = log(facts.units + 1) / (self.step_size * self.steps)
        deviation = gradient.sigma * gradient.sensitivity(facts) * (1.0 if facts.scale is None else facts.scale.start)
        # (1 - step m)^K is at most exp(-step m K), here 1/(n + 1).
        start = self.radius / (facts.units + 1)
        value = start + noise_norm(deviation, facts.dimension, self.steps) / least
        return Bound(
            quantity="distance of the private from the non-private estimate, in encoded units, along directions "
            f"whose curvature is at least {least:.2g}",
            value=value,
            confidence=CONFIDENCE,
            trivial=2 * self.radius,
            vacuous=value >= 2 * self.radius,
            source="Avella-Medina, Bradshaw and Loh (2023), Theorem 2, with explicit constants",
        )

    @staticmethod
    def _no_bound(radius: float) -> Bound:
        """Return what is known where the loss is not convex."""
        return Bound(
            quantity="distance of the private from the non-private estimate, in encoded units",
            value=None,
            confidence=None,
            trivial=2 * radius,
            vacuous=True,
            source="Avella-Medina, Bradshaw and Loh (2023), Theorem 2, whose loss is convex; this one is not",
        )


def planned_steps(facts: Facts, mu: float) -> int:
    """Return K = 6 log n of the paper's benchmarks, more where units and budget make room for it."""
    basic = 6 * log(facts.units)
    roomy = mu * facts.units / (10 * facts.gradient_bound)
    return min(MOST_STEPS, max(FEWEST_STEPS, ceil(max(basic, roomy))))
