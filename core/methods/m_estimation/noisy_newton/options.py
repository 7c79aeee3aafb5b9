"""Globalisation of Newton's method until its pure steps converge: damping rules, warm starts, a line search.

Source: Avella-Medina, Bradshaw and Loh (2023), sections 4.2 to 4.4 and appendix G.

All of them are functions of noised answers. Only the line search, a Lipschitz estimate and gradient steps in front cost
answers of their own.
"""

from math import sqrt
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from core.base.errors import FieldError, Invalid
from core.methods.base import Spec
from core.privacy.arithmetic import Damping, Steps, fill, required_curvature_bound
from core.privacy.facts import Facts, Frozen
from core.queries.gradients import Curvature, Gradient, Secant

Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

WARM_STEPS = 10
WARM_GRADIENT_SHARE = 0.1
WARM_RIDGE_PART = 0.25
"""Of the public curvature bound."""


class LineSearch(Frozen):
    """Private backtracking: a Newton step is shortened until noise says that the loss falls by a part of its slope.

    `evaluations` comparisons are budgeted for the whole run, each with an equal part of `share`; the one that accepts a
    step counts too. Once a step of size 1 has been accepted none is asked any more, and when all are used up the steps
    stay as long as the last one.
    """

    evaluations: Annotated[int, Field(ge=1, le=1000)] = 10
    shrink: Annotated[float, Field(gt=0, lt=1)] = 0.5
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.25
    share: Share = Field(default=0.2, description="of the estimate's mu^2")


class RidgeStart(Frozen):
    """Damped steps first, on the loss with a ridge of its own, until a test on noised values passes or they end."""

    kind: Literal["ridge"] = "ridge"
    ridge: Positive | None = Field(default=None, description="added to the model's; null: planned")
    damping: Damping | None = Field(
        default=None, description="null: lambda/(2 (lambda + L)), with which the penalised loss falls at every step"
    )
    steps: Steps | None = Field(default=None, description="at most so many of those with a Hessian; null: planned")


class GradientStart(Frozen):
    """Gradient steps before the first Newton step; they count among `steps`."""

    kind: Literal["gradient"] = "gradient"
    steps: Steps = WARM_STEPS
    step_size: Positive | None = Field(default=None, description="null: 1/curvature bound")
    share: Share = Field(default=WARM_GRADIENT_SHARE, description="of the estimate's mu^2")


class RidgeStartPlan(RidgeStart):
    """Damped steps on a loss with a ridge, nothing open."""

    ridge: Positive
    damping: Damping
    steps: Steps


class GradientStartPlan(GradientStart):
    """Gradient steps before the first Newton step, nothing open."""

    step_size: Positive


WarmStart = Annotated[RidgeStart | GradientStart, Field(discriminator="kind")]
WarmStartPlan = Annotated[RidgeStartPlan | GradientStartPlan, Field(discriminator="kind")]


class NewtonOptions(Spec):
    """Options of NoisyNewton beside steps of fixed damping."""

    step_rule: Literal["fixed", "adaptive", "switching"] = Field(
        default="fixed",
        description="of steps with a Hessian; adaptive: log(1 + b)/b with b = gamma |H^-1 G|, for self-concordant "
        "losses; switching: damped until a test on the noised gradient and Hessian passes or `damped_steps` are done, "
        "then pure",
    )
    damped_steps: Steps | None = Field(default=None, description="most of them when switching; null: planned")
    warm_start: WarmStart | None = None
    lipschitz_share: Share | None = Field(
        default=None,
        description="of the estimate's mu^2, for a private bound on how fast Hessians change (smoothed Huber loss, "
        "Mallows weights of power 3); switching and warm starts then test with it",
    )
    line_search: LineSearch | None = None
    scale_step: Literal["newton", "own"] | None = Field(
        default=None,
        description="with an unknown scale; newton: by the noised matrix, as the coefficients' (unstable far from the "
        "truth); own: by a public curvature, which multiplies the scale by a bounded factor; null: planned",
    )

    @model_validator(mode="after")
    def _one_rule_of_damping(self) -> Self:
        if self.line_search is not None and (self.step_rule != "fixed" or isinstance(self.warm_start, RidgeStart)):
            raise ValueError("a line search chooses its own steps: leave step_rule and a ridge warm start out")
        if self.damped_steps is not None and self.step_rule != "switching":
            raise ValueError("damped_steps is for the switching rule; leave it out")
        if self.other_shares >= 1:
            raise ValueError("the shares of line_search, warm_start and lipschitz_share leave nothing for Newton steps")
        return self

    @property
    def other_shares(self) -> float:
        """The part of the estimate's mu^2 that is not for Newton steps and those behind them."""
        warm = self.warm_start.share if isinstance(self.warm_start, GradientStart) else 0.0
        return warm + (self.lipschitz_share or 0.0) + (0.0 if self.line_search is None else self.line_search.share)

    @property
    def warm_steps(self) -> int:
        """Number of gradient steps before the first Newton step."""
        return self.warm_start.steps if isinstance(self.warm_start, GradientStart) else 0

    @property
    def careful(self) -> bool:
        """Whether something else than `damping` sees to it that early steps do no harm."""
        return self.step_rule == "adaptive" or self.line_search is not None or self.warm_start is not None

    def newton_mu(self, mu: float) -> float:
        """Return the worth of Newton steps and those behind them together, for an estimate worth `mu`."""
        return mu * sqrt(1 - self.other_shares) if self.other_shares else mu

    def warm_gradients(self, mu: float) -> tuple[Gradient, ...]:
        """Return the questions of the gradient steps in front, for an estimate worth `mu`."""
        if not isinstance(self.warm_start, GradientStart):
            return ()
        sigma = sqrt(self.warm_start.steps / self.warm_start.share) / mu
        return (Gradient(sigma=sigma),) * self.warm_start.steps

    def comparisons(self, mu: float) -> tuple[Secant, ...]:
        """Return every comparison that the line search may ask, all alike."""
        if self.line_search is None:
            return ()
        evaluations = self.line_search.evaluations
        return (Secant(sigma=sqrt(evaluations / self.line_search.share) / mu),) * evaluations

    def lipschitz_questions(self, mu: float) -> tuple[Curvature, ...]:
        """Return the question for the bound on how fast Hessians change, if it is asked."""
        if self.lipschitz_share is None:
            return ()
        return (Curvature(of="cubic", sigma=1 / (mu * sqrt(self.lipschitz_share))),)

    def filled_options(self, facts: Facts, newton_steps: int) -> Self:
        """Fill what is open here, once the number of Newton steps is known.

        Raises:
            Invalid: a rule that this loss has no constant for, or one that never ends.
        """
        self._refuse_unknown_constants(facts)
        # With a scale the fact bounds the Hessian times the scale.
        bound = required_curvature_bound(facts) * (1.0 if facts.scale is None else 1 / facts.scale.start)
        half = max(1, newton_steps // 2)
        warm = self.warm_start
        if isinstance(warm, RidgeStart):
            ridge = warm.ridge or WARM_RIDGE_PART * bound
            damping = warm.damping or ridge / (2 * (ridge + facts.ridge + bound))
            warm = RidgeStartPlan(ridge=ridge, damping=damping, steps=warm.steps or half)
        elif isinstance(warm, GradientStart):
            # With a scale each step is multiplied by the current one when it is made.
            size = 1 / (bound + facts.ridge) if facts.scale is None else 1 / required_curvature_bound(facts)
            warm = GradientStartPlan(steps=warm.steps, step_size=warm.step_size or size, share=warm.share)
        return fill(
            self.model_copy(update={"warm_start": warm}),
            damped_steps=half if self.step_rule == "switching" else None,
            scale_step=None if facts.scale is None else "own",
        )

    def _refuse_unknown_constants(self, facts: Facts) -> None:
        """Refuse rules whose public constants this loss and these weights do not have."""
        if self.step_rule == "adaptive" and facts.concordance is None:
            raise _invalid("step_rule", "adaptive needs a self-concordant loss, such as log_cosh or logistic")
        known = facts.concordance is not None or self.lipschitz_share is not None
        if self.step_rule == "switching" and not known:
            raise _invalid("step_rule", "switching needs a self-concordant loss, or a lipschitz_share")
        if self.lipschitz_share is not None and (facts.cubic_bound is None or facts.third_derivative is None):
            raise _invalid("lipschitz_share", "needs the smoothed_huber loss with mallows weights of power 3")

    def refuse_endless(self, newton_steps: int, late_steps: int) -> None:
        """Refuse damped phases that leave no pure step behind them.

        Raises:
            Invalid: with a JSON pointer.
        """
        # Late steps are pure: with them every Newton step may be damped.
        last = newton_steps if late_steps else newton_steps - 1
        if newton_steps < 1:
            raise _invalid("warm_start/steps", "leaves no step for Newton's method; lower it")
        if self.damped_steps is not None and self.damped_steps > last:
            raise _invalid("damped_steps", "leaves no pure step; lower it")
        warm = self.warm_start
        if isinstance(warm, RidgeStart) and warm.steps is not None and warm.steps > last:
            raise _invalid("warm_start/steps", "leaves no step without its ridge; lower it")


def _invalid(field: str, detail: str) -> Invalid:
    return Invalid(f"/optimizer/{field} {detail}.", FieldError(f"/optimizer/{field}", detail))
