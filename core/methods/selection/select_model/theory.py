"""The settings of a selection and what follows from them once they are filled; letters as in `selecting`."""

from math import log, sqrt
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from core.methods.base import Plan, Spec
from core.methods.second_order.tolerances import Held, Printed
from core.privacy.arithmetic import Mu
from core.privacy.conversions import gdp_epsilon
from core.privacy.facts import Facts
from core.queries.gradients import Gradient
from core.queries.hessians import FirstStationary, Hessian, HessianProduct, LikelyStationary

MOST_CANDIDATES: Final = 1000
MOST_PRODUCTS: Final = 1000

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Mode = Literal["sound", "printed", "gradient", "hessian_products", "above_threshold", "exponential"]
BY_SCORES: Final = frozenset({"above_threshold", "exponential"})
"""Modes of one answer about all candidates."""
Asked = Gradient | Hessian | HessianProduct | FirstStationary | LikelyStationary


class CurvatureFigures(NamedTuple):
    """The figures of a mode that looks at curvature."""

    gamma_star: float
    smoothness: float


class SelectModelSettings(Spec):
    """An analyst's settings; all of it public."""

    federates: ClassVar = True
    per_client: ClassVar = frozenset()
    about: ClassVar = (1, MOST_CANDIDATES)
    given: ClassVar = ("points",)
    needs_apart: ClassVar = True

    cited: ClassVar = "Tao, Zhang, Yu, Cheng, Dressler and Wang, preprint; thresholds and constants ours"
    kind: Literal["select_model"] = "select_model"
    mu: Mu | None = Field(default=None, description="of the whole selection; null: the job's share")
    mode: Mode = Field(
        default="sound",
        description="printed has the print's thresholds, never its noise; gradient looks at no curvature",
    )
    alpha: Positive | None = Field(default=None, description="the longest gradient allowed, in encoded units; required")
    gamma_star: Positive | None = Field(
        default=None, description="the depth below 0 that an eigenvalue may have; null: sqrt(rho alpha)"
    )
    hessian_smoothness: Positive | None = Field(default=None, description="rho, where gamma_star is left out")
    failure: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.05, description="omega, of the whole selection")
    clip: Positive | None = Field(
        default=None, description="G, the longest gradient of a unit after clipping; null: the loss's bound"
    )
    smoothness: Positive | None = Field(
        default=None, description="M, to which each unit's Hessian is shortened in operator norm; null: the loss's own"
    )
    candidates: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] | None = Field(
        default=None, description="T; null: as many as models are named. A model with iterates stands for all of them"
    )
    products: Annotated[int, Field(ge=1, le=MOST_PRODUCTS)] = Field(
        default=20, description="K, of hessian_products, at each candidate"
    )
    epsilon: Positive | None = Field(
        default=None, description="of above_threshold, pure; null: the most that the target allows"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="of the printed thresholds, with the epsilon that mu is worth there"
    )
    sites: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="m, whose answers are averaged in a federated job; null: 1"
    )
    units: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="n, of the site with fewest; null: as many as there are"
    )

    @property
    def start(self) -> Literal["zeros"]:
        """No iteration starts here; this point is returned where no candidate passes."""
        return "zeros"

    @property
    def steps(self) -> int | None:
        """Candidates, at most."""
        return self.candidates


class SelectModelFigures(SelectModelSettings, Plan):
    """The planned values, and what follows from them; all of it public."""

    mu: Mu
    alpha: Positive
    candidates: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)]
    sites: Annotated[int, Field(ge=1)]
    units: Annotated[int, Field(ge=1)]

    @property
    def steps(self) -> int:
        """Candidates, at most."""
        return self.candidates

    @property
    def curvature(self) -> CurvatureFigures | None:
        """The figures of a test of curvature; None: the mode looks at none."""
        if self.gamma_star is None or self.smoothness is None:
            return None
        return CurvatureFigures(self.gamma_star, self.smoothness)

    @property
    def multiplier(self) -> float:
        """The noise over the sensitivity of every answer."""
        if self.epsilon is not None:
            # Of above_threshold, the only mode with an epsilon.
            return 2 / self.epsilon
        return sqrt(self.answers) / self.mu

    @property
    def answers(self) -> int:
        """Largest number of questions, all of one multiplier."""
        each = {"sound": 2, "printed": 2, "gradient": 1, "hessian_products": 1 + self.products}.get(self.mode)
        return 1 if each is None else each * self.candidates

    def questions(self) -> tuple[Asked, ...]:
        """Return the questions asked of each candidate, or the one about all of them."""
        sigma, curvature = self.multiplier, self.curvature
        slope = Gradient(sigma=sigma, clip=self.clip)
        if curvature is None:
            return (slope,)
        gamma, bound = curvature
        if self.mode == "hessian_products":
            return slope, HessianProduct(sigma=sigma, clip=bound)
        if self.mode == "above_threshold":
            # The slack follows from candidates and failure alone: any dimension serves.
            slack = self.held(1).slack(sigma)
            return (
                FirstStationary(
                    sigma=sigma, clip=self.clip, curvature_clip=bound, alpha=self.alpha, gamma=gamma, slack=slack
                ),
            )
        if self.mode == "exponential":
            return (LikelyStationary(sigma=sigma, clip=self.clip, curvature_clip=bound, alpha=self.alpha, gamma=gamma),)
        return slope, Hessian(sigma=sigma, clip=bound)

    def clip_at(self, facts: Facts) -> float:
        """Return G."""
        return facts.gradient_bound if self.clip is None else self.clip

    def held(self, dimension: int) -> Held:
        """Return what is public of the records and the candidates."""
        return Held(dimension, self.candidates, self.sites, self.units, self.failure)

    def printed(self, dimension: int) -> Printed:
        """Return the printed thresholds, at the epsilon that `mu` is worth at `delta`."""
        return Printed(self.held(dimension), gdp_epsilon(self.mu, self.delta), self.delta)

    def tolerances(self, facts: Facts, noises: tuple[float, float]) -> tuple[float, float]:
        """Return what a test allows for beside alpha and gamma_star.

        Args:
            facts: public.
            noises: standard deviations on each entry of the mean gradient, and of the mean Hessian or its product.

        Returns:
            Of the gradient and of the curvature, 0 where none is looked at.
        """
        held, curvature = self.held(facts.dimension), self.curvature
        if curvature is None:
            return held.sampled_gradient(self.clip_at(facts)) + held.noised_gradient(noises[0]), 0.0
        bounds = (self.clip_at(facts), curvature.smoothness)
        if self.mode == "printed":
            printed = self.printed(facts.dimension)
            return printed.gradient(bounds[0]), printed.hessian(bounds[1])
        sampled = held.sampled_gradient(bounds[0]), held.sampled_hessian(bounds[1])
        if self.mode == "hessian_products":
            return (
                sampled[0] + held.noised_gradient(noises[0]),
                sampled[1] + held.noised_quotient(noises[1], self.products),
            )
        return sampled[0] + held.noised_gradient(noises[0]), sampled[1] + held.noised_hessian(noises[1])

    def noises(self, facts: Facts) -> tuple[float, float]:
        """Return the noise on each entry of the means over clients, of the lattice's own part before it is drawn."""
        moved = [question.sensitivity(self._alone(facts)) for question in self.questions()]
        slope, bend = moved if len(moved) > 1 else (moved[0], 0.0)
        root = sqrt(self.sites)
        return self.multiplier * slope / root, self.multiplier * bend / root

    def _alone(self, facts: Facts) -> Facts:
        """Return the facts of the client with fewest units."""
        return facts.model_copy(update={"units": self.units})

    def _moves(self, facts: Facts, smoothness: float) -> tuple[float, float]:
        """Return how far one unit moves a gradient's norm, and a Hessian's least eigenvalue."""
        alone = self._alone(facts)
        bend = Hessian(sigma=1.0, clip=smoothness).stretch(alone)
        return Gradient(sigma=1.0, clip=self.clip).sensitivity(alone), bend

    def claimed(self, facts: Facts, noises: tuple[float, float] | None = None) -> tuple[float | None, float | None]:
        """Return what holds of a selected candidate: its gradient is no longer, no eigenvalue is farther below 0.

        None: nothing is claimed. Where products led nowhere below, there may still be such a direction.
        """
        alpha, held, curvature = self.alpha, self.held(facts.dimension), self.curvature
        if curvature is None:
            return alpha + 2 * self.tolerances(facts, self.noises(facts) if noises is None else noises)[0], None
        if self.mode in {"exponential", "printed"} or not held.enough:
            return None, None
        gamma, bound = curvature
        if self.mode == "above_threshold":
            slack, (slope, bend) = held.slack(self.multiplier), self._moves(facts, bound)
            steep = alpha + 2 * slack * slope + held.sampled_gradient(self.clip_at(facts))
            return steep, gamma + 2 * slack * bend + held.sampled_hessian(bound)
        steep, sharp = self.tolerances(facts, self.noises(facts) if noises is None else noises)
        return alpha + 2 * steep, None if self.mode == "hessian_products" else gamma + 2 * sharp

    @property
    def confidence(self) -> float:
        """Of a claim: a score's noise and its sampling may each fail."""
        return max(0.0, 1 - (2 if self.mode == "above_threshold" else 1) * self.failure)

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows: the noise, what tests allow for, and what would be claimed, before it is paid.

        Noise of a Hessian and of a gradient as norms: about 2 s sqrt(d), and s sqrt(d).
        """
        shown: dict[str, float | int | None] = {
            "answers_at_most": self.answers,
            "gamma_star": self.gamma_star,
            "alpha_trivial": self.clip_at(facts),
            "gamma_star_trivial": self.smoothness,
        }
        shown["claimed_gradient"], shown["claimed_curvature"] = self.claimed(facts)
        curvature = self.curvature
        if curvature is not None and self.mode in BY_SCORES:
            slope, bend = self._moves(facts, curvature.smoothness)
            missed = self.held(1).slack(self.multiplier) if self.mode == "above_threshold" else None
            best = self.multiplier * log(self.candidates / self.failure)
            slack = best if missed is None else missed
            return shown | {"slack_of_gradient": slack * slope, "slack_of_curvature": slack * bend}
        noises, root = self.noises(facts), sqrt(facts.dimension)
        wide = root if self.mode == "hessian_products" else 2 * root
        steep, sharp = self.tolerances(facts, noises)
        shown |= {"gradient_tolerance": steep, "gradient_noise_norm": noises[0] * root}
        if curvature is None:
            return shown
        return shown | {"curvature_tolerance": sharp, "curvature_noise_norm": noises[1] * wide}
