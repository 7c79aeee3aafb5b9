"""Adaptive noisy gradient descent: its name, assumptions, price and predictions; it needs no KL constants.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 3, theorems 11, 13 and 14, with corrections. As
printed, half of each step's cost is charged, and a norm that its noise made negative is charged as if it were long
while its gradient gets the least noise: near a minimiser that exceeds the budget many times over. Here a step is two
releases, a norm at a fixed price and then a gradient, each charged from the noise it really gets.
"""

from collections.abc import Sequence
from math import floor, hypot, log, nextafter, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.losses.assumption import Assumption
from core.methods.base import Card, ExcessFigures, Plan, Spec
from core.methods.kl import lower_bounds
from core.methods.kl.adaptive_gd.theory import MOST_CANDIDATES, Trajectory, excess_risk, promised
from core.methods.kl.concentration import noise_radius
from core.methods.kl.condition import KlCondition, PositiveNumber
from core.privacy.arithmetic import PLANNED_RADIUS, AnyStart, Mu, Radius
from core.privacy.conversions import rho_of_mu
from core.privacy.events import Event, Zcdp
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientNorm, LeastGradient
from farthing.schemas.estimates import Bound, Regimes

PAYMENTS = 97
"""Chunks that a method's price is cut into; one of them is the selection's where it has a price."""
MOST_STEPS = 20_000
LARGEST_SIGMA = 2.0**26
"""A gradient's noise multiplier is no larger, whatever its norm: such an answer costs 1e-16 and fits the lattice."""
NORM_SHARE = 0.25
"""Part of the budget that `step_cap` norms cost together."""
PLANNED_SELECTION_SHARE = 0.1
"""The choice errs by a multiple of 1/n, the norms by one of 1/sqrt(n), so it needs little."""


class AdaptiveGradientDescent(Spec):
    """theta <- theta - (mean gradient + noise)/(2 L1), the noise in proportion to the gradient's own noised norm.

    Each step asks for the norm N of the mean gradient, at a fixed price. It then asks for the gradient with noise of
    standard deviation N/(C q), q a length that a standard normal vector rarely exceeds. Long gradients are therefore
    cheap. It ends where the next answer cannot be afforded, or where N is so small that its gradient would cost half of
    the budget: the point is then as good as the budget can tell.
    """

    cited: ClassVar = "Menart, Ullah, Arora, Bassily and Guzman, 2024"
    of_networks: ClassVar = ("smoothness",)
    bounds_excess: ClassVar = True
    kind: Literal["adaptive_gd"] = "adaptive_gd"
    mu: Mu | None = Field(default=None, description="for the estimate, its selection included; null: the job's share")
    start: AnyStart = Field(
        default="zeros", description="in encoded units, never from the records; random: at distance 1 from zero"
    )
    smoothness: PositiveNumber | None = Field(
        default=None, description="the mean loss has an L1-Lipschitz gradient; null: the loss's own L1, and its ridge"
    )
    clip: PositiveNumber | None = Field(
        default=None, description="longest gradient of a unit, longer ones are shortened; null: the loss's own bound"
    )
    beta: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.05, description="probability that no bound holds")
    preset: Literal["corrected", "paper"] = Field(
        default="corrected",
        description="paper: the printed noise, C = 1 and its radius, charged as it should be",
    )
    multiple: PositiveNumber | None = Field(default=None, description="C; null: 2, for which descent has a proof")
    radius_rule: Literal["exact", "paper"] | None = Field(
        default=None, description="rule of q; null: exact, the quantile of the length of a normal vector"
    )
    step_cap: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        default=None,
        description="extension: noise on norms for about so many steps in place of n; null: as in the paper",
    )
    select: Literal["last", "least_norm", "exponential"] = Field(
        default="last",
        description="which iterate is returned. least_norm: an extension, free, the one of the least noised norm. "
        "exponential: as in the paper, by an exponential mechanism with a share of the budget",
    )
    selection_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="of mu^2, for the exponential selection; null: planned"
    )
    condition: KlCondition | None = Field(
        default=None,
        description=(
            "of the mean loss, for the prediction alone; null: the one of a convex loss with a ridge, else none, "
            "and a gradient norm is predicted"
        ),
    )
    start_gap: PositiveNumber | None = Field(
        default=None,
        description="F0, an upper bound of the start's mean loss above the least one; null: the known bound",
    )
    radius: Radius | None = Field(default=None, description="an estimate outside this ball around zero is a failure")
    norm_sigma: PositiveNumber | None = Field(default=None, description="noise multiplier of each norm; null: planned")

    @property
    def steps(self) -> int | None:
        """Largest number of steps; None: it follows from the budget."""
        return None

    def refuse_excess(self, facts: Facts) -> None:
        """Refuse a wanted excess risk where there is no condition.

        Raises:
            Invalid: only gradient norms are bounded.
        """
        if self.condition is None and _known_condition(facts) is None:
            detail = "is needed, or a convex loss with a ridge: without one only gradient norms are bounded"
            raise Invalid(f"/optimizer/condition {detail}.", FieldError("/optimizer/condition", detail))

    def plan(self, facts: Facts, mu: float) -> "AdaptiveGradientDescentPlan":
        """Fill what is open.

        Noise on a norm has standard deviation L0/(sqrt(n) rho^(1/4)), as printed, so that about n steps can be paid;
        or, with a step cap T, NORM_SHARE of the budget pays T of them.

        Raises:
            Invalid: the loss has no known smoothness, or the budget pays for no step.
        """
        smoothness = self._known_smoothness(facts)
        paper, mu = self.preset == "paper", mu if self.mu is None else self.mu
        share = self.selection_share
        if share is None and self.select == "exponential":
            share = PLANNED_SELECTION_SHARE
        plan = self.closed(
            AdaptiveGradientDescentPlan,
            mu=mu,
            smoothness=smoothness,
            condition=_known_condition(facts),
            multiple=1.0 if paper else 2.0,
            radius_rule="paper" if paper else "exact",
            selection_share=share,
            start_gap=facts.start_gap,
            radius=PLANNED_RADIUS,
            norm_sigma=self._planned_norm_sigma(facts, _rho(mu, share)),
        )
        if plan.affordable_norms < 1:
            raise Invalid(
                f"The budget pays for no step (budget_too_small): rho is {plan.rho:.3g}, and one noised norm costs "
                f"{plan.norm_price:.3g}.",
                FieldError("/privacy", "raise the target, bring more units, or cap the steps with optimizer.step_cap"),
            )
        return plan

    def _known_smoothness(self, facts: Facts) -> float:
        """Return L1, as given or the loss's own with its ridge's.

        Raises:
            Invalid: neither is there, or there is a share of the budget for a selection that is not asked for.
        """
        smoothness = self.smoothness
        if smoothness is None and facts.smoothness is not None:
            smoothness = facts.smoothness + facts.ridge
        if smoothness is None:
            raise Invalid(
                "Adaptive noisy gradient descent needs a smooth loss: its steps are 1/(2 L1).",
                FieldError("/optimizer/smoothness", "give L1, or take a loss whose gradient is Lipschitz"),
            )
        if self.selection_share is not None and self.select != "exponential":
            raise Invalid(
                "Only the exponential selection has a share of the budget.",
                FieldError("/optimizer/selection_share", "leave it out, or set select to exponential"),
            )
        return smoothness

    def _planned_norm_sigma(self, facts: Facts, rho: float) -> float:
        """Return the noise multiplier of a norm: as printed, or by the step cap."""
        if self.step_cap is not None:
            return sqrt(self.step_cap / (2 * NORM_SHARE * rho))
        unit = Gradient(sigma=1.0, clip=self.clip)
        return unit.bound(facts) / (sqrt(facts.units) * sqrt(sqrt(rho))) / unit.sensitivity(facts)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="adaptive_gd",
            title="Adaptive noisy gradient descent",
            paper="Menart, Ullah, Arora, Bassily, Guzman: Differentially private non-convex optimization under the KL "
            "condition with optimal rates (2024), algorithm 3",
            native="rho-zCDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded: longer ones are shortened", checked="static"),
                Assumption(text="the mean loss has an L1-Lipschitz gradient", checked="declared"),
                Assumption(
                    text="no unit's gradient is shortened; else privacy holds and no rate does", checked="declared"
                ),
                Assumption(
                    text="with a condition: it holds in the valley of the start, where the loss is hardly above the "
                    "start's, towards the least loss there",
                    checked="declared",
                ),
            ),
            returns="coefficients, and a bound on the gradient norm there; no intervals",
        )


class AdaptiveGradientDescentPlan(AdaptiveGradientDescent, Plan):
    """Adaptive noisy gradient descent with nothing open but facts that nobody knows, and a clip."""

    mu: Mu
    smoothness: PositiveNumber
    multiple: PositiveNumber
    radius_rule: Literal["exact", "paper"]
    radius: Radius
    norm_sigma: PositiveNumber

    @property
    def rho(self) -> float:
        """Budget of all steps together, as zCDP; a selection has its own."""
        return _rho(self.mu, self.selection_share)

    @property
    def norm_price(self) -> float:
        """Price of one norm, as zCDP."""
        return 1 / (2 * self.norm_sigma**2)

    @property
    def affordable_norms(self) -> int:
        """Largest number of norms in a run: these alone cost the whole budget."""
        # The division may fall just below the whole number that a step cap asks for.
        return floor(self.rho / self.norm_price + 1e-9)

    @property
    def steps(self) -> int:
        """Largest number of steps, which is public; noised values decide the number taken."""
        return max(1, min(self.affordable_norms, MOST_STEPS))

    @property
    def least_sigma(self) -> float:
        """Noise multiplier at which a gradient would cost half of the budget: it is not asked for any more."""
        return 1 / sqrt(self.rho)

    def noise_length(self, facts: Facts) -> float:
        """Return q: standard normal noise on a gradient is longer in no step, but with probability beta/2 or so."""
        if self.radius_rule == "exact":
            return noise_radius(facts.dimension, self.beta / (2 * self.affordable_norms))
        # The printed logarithm is negative for a tiny budget.
        return sqrt(facts.dimension * max(1.0, log(facts.units * sqrt(self.rho) / self.beta)))

    def norm_slack(self) -> float:
        """Return how many standard deviations no noise on a norm passes, but with probability beta/2."""
        return noise_radius(1, self.beta / (2 * self.affordable_norms))

    def norm_question(self) -> GradientNorm:
        """Return the question that every step begins with."""
        return GradientNorm(sigma=self.norm_sigma, clip=self.clip)

    def gradient_question(self, norm: float, facts: Facts) -> Gradient | None:
        """Return the question that follows a noised norm; None where it is small: there the method ends.

        Signed: a norm that its noise made negative is a small one. The noise is N/(C q), and what it costs follows
        from it, never from N.
        """
        unit = Gradient(sigma=1.0, clip=self.clip)
        sigma = norm / (self.multiple * self.noise_length(facts) * unit.sensitivity(facts))
        if sigma <= self.least_sigma:
            return None
        return Gradient(sigma=min(sigma, LARGEST_SIGMA), clip=self.clip)

    def selection_question(self) -> LeastGradient | None:
        """Return the question that chooses among the iterates, where it is asked."""
        if self.selection_share is None:
            return None
        return LeastGradient(sigma=1 / (self.mu * sqrt(self.selection_share)), clip=self.clip)

    def questions(self) -> tuple[GradientNorm | Gradient | LeastGradient, ...]:
        """Return the norm's question, the gradient's with the least and the most noise it may get, and the choice's."""
        extremes = tuple(Gradient(sigma=sigma, clip=self.clip) for sigma in (self.least_sigma, LARGEST_SIGMA))
        choice = self.selection_question()
        return (self.norm_question(), *extremes, *(() if choice is None else (choice,)))

    def most_asked(self, facts: Facts) -> int:
        """Return a norm and a gradient for each step, a last norm, and the choice."""
        del facts  # settings say how many
        return 2 * self.steps + 2

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the budget in equal slices, and the choice's event; answers decide the draws on the way.

        The slices add up to no more than the budget, under any rounding of their sum; undrawn slices are given back.
        """
        del facts  # a multiplier of the sensitivity means the same for every scope
        choice = self.selection_question()
        slices = PAYMENTS if choice is None else PAYMENTS - 1
        equal: tuple[Event, ...] = (Zcdp(rho=nextafter(self.rho / slices, 0)),) * slices
        return equal if choice is None else (*equal, choice.event())

    def bound(self, facts: Facts) -> Bound:
        """Predict the excess risk under the declared condition, else the gradient norm of the chosen iterate."""
        return promised(self.trajectory(facts), self.condition, self.select)

    def excess(self, facts: Facts) -> ExcessFigures | None:
        """Return what the bound of the last iterate is made of, beside the lower bound; None without a condition."""
        if self.condition is None:
            return None
        run, regimes = self.trajectory(facts), None
        if self.select == "last" and run.steep_fall > 0 and self.condition.flatness >= 0:
            terms = excess_risk(run, self.condition)
            regimes = Regimes(
                noise_on_norms=terms.norms,
                noise_on_gradients=terms.gradients,
                small_gradient=terms.small_gradient,
                steps_run_out=terms.steps,
            )
        clip = facts.gradient_bound if self.clip is None else self.clip
        lower = lower_bounds.forced(self.condition, facts, clip, rho_of_mu(self.mu))
        return ExcessFigures(lower=lower, rounds=None, noise=None, regimes=regimes)

    def trajectory(self, facts: Facts) -> Trajectory:
        """Return the figures that the theorems are made of."""
        gradient, length = Gradient(sigma=self.least_sigma, clip=self.clip), self.noise_length(facts)
        sensitivity, choice = gradient.sensitivity(facts), self.selection_question()
        return Trajectory(
            dimension=facts.dimension,
            lipschitz=gradient.bound(facts) + facts.ridge * self._start_length(),
            smoothness=self.smoothness,
            multiple=self.multiple,
            length=length,
            least=self.multiple * length * self.least_sigma * sensitivity,
            slack=self.norm_slack() * self.norm_sigma * sensitivity,
            norms=self.affordable_norms,
            steps=self.steps,
            beta=self.beta,
            start_gap=self.start_gap,
            choice=None if choice is None else choice.sigma * sensitivity,
        )

    def _start_length(self) -> float:
        """Return how far from zero the start is: at zero a ridge has no gradient."""
        return hypot(*self.start) if isinstance(self.start, tuple) else float(self.start == "random")

    def passes(self, facts: Facts) -> int:
        """Return products with all rows in the worst case: a norm and a gradient a step, and the choice's gradients."""
        del facts  # the most steps follow from the budget
        return 4 * self.steps + (2 * min(self.steps, MOST_CANDIDATES) if self.select == "exponential" else 0)


def _rho(mu: float, share: float | None) -> float:
    """Return the budget of all steps together, as zCDP: a selection takes its share of mu^2 first."""
    return mu**2 / 2 * (1 - (share or 0.0))


def _known_condition(facts: Facts) -> KlCondition | None:
    """Return what a ridge makes of a convex loss; None where nothing is known."""
    return KlCondition.strongly_convex(facts.ridge) if facts.weak_convexity == 0 and facts.ridge > 0 else None
