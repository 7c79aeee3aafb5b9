"""Damped noisy Newton: what it is called, assumes, costs and predicts.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorems 3 and 4, Remark 6.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, Literal, Self

from pydantic import Field

from core.catalogue.method import AbstractSettings, Assumption, Bound, Card
from core.catalogue.planning_rules import (
    CONFIDENCE,
    PLANNED_RADIUS,
    SLACK,
    Damping,
    Floor,
    MatrixNoise,
    Mu,
    Radius,
    Start,
    Steps,
    fill,
    matrix_floor,
    matrix_sigma,
    noise_norm,
    required_curvature_bound,
)
from core.catalogue.questions import Curvature, Gradient
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts

PURE_STEPS = 8
DAMPED_STEPS = 17
CAREFUL_DAMPING = 0.5
NOISY_HESSIAN = 0.01
"""Above this ratio of the spectral noise of a Hessian to its public bound, steps are damped."""
QUIET_HESSIAN = 1e-4
"""Below this ratio every direction is resolved and pure steps forget the noise of earlier ones: the last gradient,
whose noise stays, is then given most of the gradients' budget."""
PLANNED_CURVATURE_SHARE = 0.35
PLANNED_LAST_SHARE = 0.9
FLOOR_MULTIPLE = 0.75


class NoisyNewton(AbstractSettings):
    """theta <- theta - damping * floored(Hessian + noise)^-1 (gradient + noise), `steps` times from a public start.

    Of mu^2 the Hessians take `curvature_share`, the gradients the rest, each divided equally over the steps; one half
    is the paper's mu/sqrt(2 steps) for every answer. Of the gradients' part the last one takes `last_gradient_share`;
    1/steps is equal division.
    """

    kind: Literal["noisy_newton"] = "noisy_newton"
    steps: Steps | None = Field(default=None, description="null: planned")
    damping: Damping | None = Field(default=None, description="1 is the pure Newton step; null: planned")
    mu: Mu | None = Field(default=None, description="for the estimate alone; null: the job's share")
    curvature_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="the Hessians' part of mu^2; null: planned"
    )
    last_gradient_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="the last gradient's part of what the gradients take; null: planned"
    )
    eigenvalue_floor: Floor | None = Field(
        default=None, description="smallest eigenvalue of a noised Hessian, in encoded units; null: planned"
    )
    radius: Radius | None = Field(default=None, description="iterates are projected onto this ball around zero")
    start: Start = Field(default="zeros", description="in encoded units; never from the records")
    matrix_noise: MatrixNoise = Field(
        default="tight", description="printed: the paper's factor 2 where sqrt(2) is enough under replace_one"
    )
    stop: Literal["budgeted", "private"] = Field(
        default="budgeted",
        description="private: stop once a noised gradient is no longer than half the noise of one coordinate",
    )

    def plan(self, facts: Facts, mu: float) -> Self:
        """Fill what is open, from public facts alone (`docs/weights.md` says how the constants were found)."""
        settings = fill(self, mu=mu, curvature_share=PLANNED_CURVATURE_SHARE, radius=PLANNED_RADIUS)
        largest = required_curvature_bound(facts)
        pure = fill(settings, steps=PURE_STEPS)
        noise = 2 * pure.hessian_noise(facts) * sqrt(facts.dimension) / largest
        damping = CAREFUL_DAMPING if noise > NOISY_HESSIAN else 1.0
        settings = fill(settings, damping=damping)
        settings = fill(settings, steps=PURE_STEPS if settings.damping == 1 else DAMPED_STEPS)
        assert settings.steps is not None, "filled above"
        last = PLANNED_LAST_SHARE if noise < QUIET_HESSIAN and settings.damping == 1 else 1 / settings.steps
        settings = fill(settings, last_gradient_share=last if settings.steps > 1 else 1.0)
        deviation = settings.hessian_noise(facts)
        return fill(settings, eigenvalue_floor=matrix_floor(deviation, facts.dimension, largest, FLOOR_MULTIPLE))

    def hessian_noise(self, facts: Facts) -> float:
        """Return the standard deviation of the noise on each entry of a Hessian answer."""
        _, curvature = self.questions()
        return curvature.sigma * curvature.sensitivity(facts)

    def last_gradient(self) -> Gradient:
        """Return the last step's gradient question; that of every step where they share equally."""
        assert self.steps is not None, "plan first"
        assert self.mu is not None, "plan first"
        assert self.curvature_share is not None, "plan first"
        if self._shares_equally():
            return self.questions()[0]
        assert self.last_gradient_share is not None, "it shares unequally"
        return Gradient(sigma=1 / (self.mu * sqrt((1 - self.curvature_share) * self.last_gradient_share)))

    def _shares_equally(self) -> bool:
        assert self.steps is not None, "plan first"
        return self.last_gradient_share is None or abs(self.last_gradient_share * self.steps - 1) < SLACK

    def questions(self) -> tuple[Gradient, Curvature]:
        """Return the two questions of a step, the very values that the schedule prices and the oracle is asked.

        The last step asks `last_gradient` instead of the first of them.
        """
        assert self.steps is not None, "plan first"
        assert self.mu is not None, "plan first"
        assert self.curvature_share is not None, "plan first"
        part = 1 / self.steps
        if not self._shares_equally():
            assert self.last_gradient_share is not None, "it shares unequally"
            part = (1 - self.last_gradient_share) / (self.steps - 1)
        gradient_mu = self.mu * sqrt((1 - self.curvature_share) * part)
        curvature_mu = self.mu * sqrt(self.curvature_share / self.steps)
        return Gradient(sigma=1 / gradient_mu), Curvature(
            of="hessian", sigma=matrix_sigma(curvature_mu, self.matrix_noise)
        )

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the gradient's and the Hessian's event of each step, composed."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        assert self.steps is not None, "plan first"
        gradient, curvature = (question.event() for question in self.questions())
        return (*(gradient, curvature) * (self.steps - 1), self.last_gradient().event(), curvature)

    def bound(self, facts: Facts) -> Bound:
        """Predict the distance to the non-private estimate, over directions above the eigenvalue floor.

        Close to the minimiser theta_{k+1} - theta_hat = (1 - damping)(theta_k - theta_hat) - damping * H^-1 noise up to
        second order (the proof of Theorem 3), so the distance ends below R (1 - damping)^K plus the largest noise of a
        step divided by the smallest eigenvalue.
        """
        assert self.steps is not None, "plan first"
        assert self.damping is not None, "plan first"
        assert self.radius is not None, "plan first"
        assert self.eigenvalue_floor is not None, "plan first"
        gradient, _ = self.questions()  # never less noise than the last one has
        deviation = gradient.sigma * gradient.sensitivity(facts)
        forgotten = (1 - self.damping) ** self.steps
        value = forgotten * self.radius + noise_norm(deviation, facts.dimension, self.steps) / self.eigenvalue_floor
        return Bound(
            quantity="distance of the private from the non-private estimate, to first order, in encoded units, along "
            f"directions whose curvature is at least {self.eigenvalue_floor:.2g}",
            value=value,
            confidence=CONFIDENCE,
            trivial=2 * self.radius,
            vacuous=value >= 2 * self.radius,
            source="Avella-Medina, Bradshaw and Loh (2023), Theorem 3, leading term with explicit constants",
        )

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="noisy_newton",
            title="Damped noisy Newton",
            paper="Avella-Medina, Bradshaw, Loh: Differentially private inference via noisy optimization (2023)",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded (the weights see to it)", checked="static"),
                Assumption(text="each unit's Hessian is a bounded rank-one matrix", checked="static"),
                Assumption(text="the start lies where damped steps converge", checked="declared"),
                Assumption(text="noised Hessians are positive definite after flooring", checked="runtime"),
            ),
            returns="coefficients, and private intervals where the job asks for them",
        )
