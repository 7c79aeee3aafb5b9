"""The proximal-point method: its name, assumptions, price and predictions; for losses with kinks and sharp minima.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithms 2 and 4, theorems 8 and 29, with corrections. As
printed, all rounds have one prox weight. The proof of its rate has a gap for kappa above 2, where simulations do not
show the rate either. The weight scheduled here follows the falling target and closes the gap.
"""

from math import hypot
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import ErrorBound
from core.losses.assumption import Assumption
from core.methods.base import Card, ExcessFigures, Plan, Spec
from core.methods.kl import lower_bounds
from core.methods.kl.condition import KlCondition, PositiveNumber, known_gap
from core.methods.kl.proximal_point.schedule import (
    CONSTANT,
    MOST_ROUNDS,
    Noise,
    ProximalConstants,
    ProximalSchedule,
    ProxWeight,
    RoundSchedule,
    ScheduleInput,
    Solver,
    exact_sigma,
    printed_sigma,
    proximal_schedule,
)
from core.methods.kl.proximal_point.theory import declared, known_condition, known_convexity, refusal
from core.methods.kl.repeats import Repeats
from core.privacy.arithmetic import SLACK, Mu, Start
from core.privacy.conversions import rho_of_mu
from core.privacy.facts import Adjacency, Facts
from core.queries.bases import Sigma
from core.queries.gradients import Gradient
from farthing.schemas.estimates import Bound

MOST_GRADIENTS = 20_000
"""Asked where nobody says how many steps a round may take."""
LONGEST_ROUND = 10_000_000
"""Steps that a round may be allowed: a loop has a bound."""


class ProximalPoint(Spec):
    """theta_t <- about argmin F + w_t |theta - theta_{t-1}|^2, `rounds` times, each by projected noisy gradient steps.

    A round begins at its centre. It takes steps 1/(w t) on the noised mean gradient of the records plus the exact
    gradient of the rest. Each step is projected to a ball around the centre that holds the exact minimiser. The round
    returns the mean of its iterates with weights 1, 2, 3 and so on. Each gradient takes an equal share of what its
    noise leaves of `mu`.
    """

    cited: ClassVar = "Menart, Ullah, Arora, Bassily and Guzman, 2024"
    of_networks: ClassVar = ("condition", "weak_convexity")
    bounds_excess: ClassVar = True
    kind: Literal["proximal_point"] = "proximal_point"
    mu: Mu | None = Field(default=None, description="for the estimate alone; null: the job's share")
    condition: KlCondition | None = Field(
        default=None, description="of the mean loss; null: that of a strongly convex one, where the ridge makes it so"
    )
    start_gap: PositiveNumber | None = Field(
        default=None,
        description="F0, an upper bound of the start's mean loss above the least one; null: the known bound",
    )
    weak_convexity: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="a unit's loss plus half of it times |theta|^2 is convex, 0 for convex losses, without the ridge; "
        "null: the loss's own",
    )
    prox_weight: ProxWeight = Field(
        default="scheduled",
        description="scheduled: grows as the target falls; paper: one for all rounds, as printed, proved at kappa = 2",
    )
    round_schedule: RoundSchedule = Field(
        default="proved", description="practical: an extension, a few rounds in place of as many as the theorem takes"
    )
    noise: Noise = Field(
        default="printed",
        description="exact: an extension, all of the budget for less noise; printed: less than half of it is spent",
    )
    inner_steps: Solver = Field(
        default="printed", description="of a round; practical: an extension, without the printed squared logarithm"
    )
    step_rule: Literal["printed", "telescoping"] = Field(
        default="printed", description="1/(w t); telescoping: an extension, 2/(w (t + 1)), for which a mean is proved"
    )
    max_inner: Annotated[int, Field(ge=2, le=LONGEST_ROUND)] | None = Field(
        default=None,
        description=f"a round takes fewer steps than this; null: planned, for {MOST_GRADIENTS} in all or so",
    )
    constant: PositiveNumber = Field(
        default=CONSTANT, description="a, of the inner solver's lemma, which no paper gives; the targets depend on it"
    )
    beta: Annotated[float, Field(ge=1e-100, lt=1)] = Field(default=0.05, description="probability that no bound holds")
    clip: PositiveNumber | None = Field(
        default=None, description="longest gradient of a unit, longer ones are shortened; null: the loss's own bound"
    )
    start: Start = Field(default="zeros", description="in encoded units; never from the records")
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] | None = Field(
        default=None, description="null: planned by the schedule"
    )
    solver_steps: Annotated[int, Field(ge=2, le=LONGEST_ROUND)] | None = Field(
        default=None, description="points that a round's mean is of, its centre the first; null: planned"
    )
    sigma: Sigma | None = Field(
        default=None, description="noise of a gradient over its sensitivity; null: planned; no less is accepted"
    )

    @property
    def steps(self) -> int | None:
        """Number of gradients in all; None: it follows from the planned rounds."""
        return None

    def plan(self, facts: Facts, mu: float) -> "ProximalPointPlan":
        """Fill what is open.

        Raises:
            Invalid: no condition or weak convexity is known or given, kappa is below 2, the theory promises no more
                than the start, the budget pays for no step, or given noise costs more than the budget.
        """
        weak = known_convexity(self.weak_convexity, facts)
        condition = known_condition(self.condition, facts.ridge - weak)
        gap = known_gap(self.start_gap, condition, self._clip(facts), self._away(), facts)
        ground, max_rho = self._ground(facts, condition, weak, gap), rho_of_mu(mu if self.mu is None else self.mu)
        schedule = self._arithmetic(ground, max_rho)
        if schedule.regime is not None:
            raise refusal(schedule, ground, max_rho)
        rounds = len(schedule.rounds)
        # One more than gradients: the centre counts among a round's points.
        max_inner = self.max_inner or max(2, MOST_GRADIENTS // rounds + 1)
        points = self.solver_steps or min(schedule.wanted, max_inner)
        least = exact_sigma(points, max_rho / rounds)
        # Replaces a given gap too: the facts or the condition may imply a smaller one.
        plan = self.model_copy(update={"start_gap": gap}).closed(
            ProximalPointPlan,
            mu=mu,
            condition=condition,
            weak_convexity=weak,
            rounds=rounds,
            max_inner=max_inner,
            solver_steps=points,
            sigma=least if self.noise == "exact" else self._printed_sigma(facts, points, max_rho / rounds),
        )
        if plan.rho > max_rho * (1 + SLACK):
            raise Invalid(
                f"/optimizer/sigma costs rho = {plan.rho:.4g} for so many gradients, of {max_rho:.4g}.",
                FieldError("/optimizer/sigma", f"leave it out, or ask for at least {least:.6g}"),
            )
        return plan

    def _clip(self, facts: Facts) -> float:
        """Return L0, the largest norm of one unit's gradient."""
        return facts.gradient_bound if self.clip is None else self.clip

    def _away(self) -> float:
        """Return how far the start is from zero."""
        return 0.0 if self.start == "zeros" else hypot(*self.start)

    def _printed_sigma(self, facts: Facts, points: int, rho: float) -> float:
        """Return the printed noise multiplier of a gradient, for so many points a round and a round's budget."""
        unit = Gradient(sigma=1.0, clip=self.clip)
        return printed_sigma(points, rho, unit.sensitivity(facts) * facts.units / unit.bound(facts))

    def _ground(self, facts: Facts, condition: KlCondition, weak_convexity: float, gap: float) -> ProximalConstants:
        """Return the public figures that the theorem is about."""
        return ProximalConstants(
            units=facts.units,
            dimension=facts.dimension,
            lipschitz=self._clip(facts),
            condition=condition,
            weak_convexity=max(0.0, weak_convexity - facts.ridge),
            start_gap=gap,
            ridge=facts.ridge,
            start_norm=self._away(),
        )

    def _arithmetic(self, ground: ProximalConstants, rho: float) -> ProximalSchedule:
        """Return the rounds with their weights, balls and targets, or why there are none."""
        given = ScheduleInput(rho, self.beta, self.prox_weight, self.round_schedule, self.inner_steps, self.constant)
        return proximal_schedule(ground, given, self.rounds)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="proximal_point",
            title="Proximal point",
            paper="Menart, Ullah, Arora, Bassily, Guzman: Differentially private non-convex optimization under the KL "
            "condition with optimal rates (2024), algorithms 2 and 4",
            native="rho-zCDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded: longer ones are shortened", checked="static"),
                Assumption(
                    text="no unit's gradient is shortened; else privacy holds and no rate does", checked="declared"
                ),
                Assumption(text="each unit's loss is weakly convex, with the constant given", checked="static"),
                Assumption(
                    text="the mean loss is (gamma, kappa)-KL with kappa at least 2 wherever iterates can be, a public "
                    "ball around the start",
                    checked="declared",
                ),
                Assumption(text="the start is at most start_gap above the least mean loss", checked="declared"),
                Assumption(text="the constant a of the inner solver's lemma is as given", checked="declared"),
            ),
            returns="coefficients, and a bound on the excess risk where the theorem covers the settings; no intervals",
        )


class ProximalPointPlan(ProximalPoint, Plan):
    """The proximal-point method with nothing open but a clip, which may be the loss's own."""

    mu: Mu
    condition: KlCondition
    start_gap: PositiveNumber
    weak_convexity: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    max_inner: Annotated[int, Field(ge=2, le=LONGEST_ROUND)]
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
    solver_steps: Annotated[int, Field(ge=2, le=LONGEST_ROUND)]
    sigma: Sigma

    @property
    def max_rho(self) -> float:
        """The budget, in zero-concentrated terms."""
        return rho_of_mu(self.mu)

    @property
    def rho(self) -> float:
        """Price of all gradients together, as zCDP, from their actual noise."""
        return self.steps / (2 * self.sigma**2)

    @property
    def steps(self) -> int:
        """Gradients in all: one less than the points of its mean, a round."""
        return self.rounds * (self.solver_steps - 1)

    def ground(self, facts: Facts) -> ProximalConstants:
        """Return the public figures that the theorem is about."""
        return self._ground(facts, self.condition, self.weak_convexity, self.start_gap)

    def arithmetic(self, facts: Facts) -> ProximalSchedule:
        """Return the rounds with their weights, balls and targets, or why there are none."""
        return self._arithmetic(self.ground(facts), self.max_rho)

    def rate(self, weight: float, step: int) -> float:
        """Return what the gradient is multiplied by at step t = 1, 2, ... of a round."""
        return 1 / (weight * step) if self.step_rule == "printed" else 2 / (weight * (step + 1))

    def questions(self) -> tuple[Gradient]:
        """Return the question of every step, the very value that the schedule prices and the oracle is asked."""
        return (Gradient(sigma=self.sigma, clip=self.clip),)

    def schedule(self, facts: Facts) -> Repeats:
        """Return one Gaussian event a step."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        (gradient,) = self.questions()
        return Repeats(gradient.event(), self.steps)

    def passes(self, facts: Facts) -> int:
        """Return products with all rows: two a gradient."""
        del facts  # public settings say how many
        return 2 * self.steps

    @property
    def variant(self) -> str:
        """The prox weight, and which extensions of the paper made the result."""
        named = {
            "practical rounds": self.round_schedule == "practical",
            "practical inner steps": self.inner_steps == "practical",
            "telescoping steps": self.step_rule == "telescoping",
            "exact noise": self.noise == "exact",
        }
        return ", ".join([self.prox_weight, *(name for name, used in named.items() if used)])

    def inner_binds(self, facts: Facts) -> bool:
        """Say whether a round takes fewer steps than it should, `max_inner` being in the way."""
        return self.solver_steps < self.arithmetic(facts).wanted

    def uncovered(self, facts: Facts) -> tuple[str, ...]:
        """Return what stands between these settings and the theorem; nothing where it covers them."""
        printed = self._printed_sigma(facts, self.solver_steps, self.max_rho / self.rounds)
        gaps = {
            "rounds on a practical schedule": self.round_schedule == "practical",
            "practical inner steps": self.inner_steps == "practical",
            "telescoping steps": self.step_rule == "telescoping",
            "rounds cut short by max_inner": self.inner_binds(facts),
            "more noise than printed": self.sigma > printed * (1 + SLACK),
            "the paper's prox weight at kappa above 2, where its proof has a gap": (
                self.prox_weight == "paper" and self.condition.flatness < 0
            ),
        }
        return tuple(name for name, there in gaps.items() if there)

    def bound(self, facts: Facts) -> Bound:
        """Predict the excess risk: the target of the last round, its constant included."""
        uncovered = self.uncovered(facts)
        value = None if uncovered else self.arithmetic(facts).target
        return Bound(
            quantity="excess of the mean loss, its ridge included, over its least value, in encoded units, for "
            f"a = {self.constant:g}" + "".join(f"; no theorem covers {name}" for name in uncovered),
            value=value,
            confidence=None if value is None else 1 - self.beta,
            trivial=self.start_gap,
            vacuous=value is None or value >= self.start_gap,
            source=f"Menart, Ullah, Arora, Bassily and Guzman (2024), theorem 8; {self.variant}",
        )

    def excess(self, facts: Facts) -> ExcessFigures:
        """Return the rounds and the noise of the first gradient, beside the lower bound."""
        gradient, rho = self.questions()[0], rho_of_mu(self.mu)
        return ExcessFigures(
            lower=lower_bounds.forced(self.condition, facts, self._clip(facts), rho),
            rounds=self.rounds,
            noise=gradient.sigma * gradient.sensitivity(facts),
        )

    def error_bound(self, facts: Facts) -> ErrorBound:
        """Return what is claimed of the estimate once all rounds are over, and what the claim rests on."""
        course = self.arithmetic(facts)
        # Without rounds no noise was drawn: the start's own gap holds for certain.
        uncovered = () if course.regime is not None else self.uncovered(facts)
        value, sure = (course.target, 1 - self.beta) if course.regime is None else (self.start_gap, 1.0)
        value = None if uncovered else value
        return ErrorBound(
            ended_by=course.regime or "rounds",
            quantity="excess_risk",
            value=value,
            confidence=None if value is None else sure,
            conditions=(
                *(f"not covered by the proof: {name}" for name in uncovered),
                *declared(self.ground(facts), course, self.weak_convexity, self.constant, facts),
            ),
            variant=self.variant,
            untrained=self.start_gap,
        )
