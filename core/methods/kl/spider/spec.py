"""KL-Spider: its name, assumptions, price and predictions.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 1, theorem 4, lemmas 5 and 6, corrected; see
`core.methods.kl.spider.schedule` for what was.
"""

from collections.abc import Sequence
from math import hypot
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import ErrorBound
from core.losses.assumption import Assumption
from core.methods.base import Card, ExcessFigures, Plan, Spec
from core.methods.kl import lower_bounds
from core.methods.kl.condition import KlCondition, PositiveNumber, known_gap
from core.methods.kl.spider.schedule import Regime, SpiderConstants, SpiderSchedule, Variant, spider_schedule
from core.privacy.arithmetic import SLACK, Mu, Radius, Start
from core.privacy.conversions import rho_of_mu
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference
from farthing.schemas.estimates import Bound

MOST_STEPS: Final = 200_000
"""Answers in the worst case: a loop has a bound, and so has a job's time."""
SMOOTHEST_KAPPA: Final = 2.0
"""No smooth loss is sharper at its minimisers."""
THEOREM: Final = "Menart, Ullah, Arora, Bassily and Guzman (2024), theorem 4"

Asked = Annotated[Gradient | GradientDifference, Field(discriminator="kind")]


class KlSpider(Spec):
    """Steps of one public length a round along an estimate that noised gradient differences keep up to date.

    Differences over short steps are known to be short, so they need less noise than gradients: with a condition of
    kappa < 2 that is what makes the rate. With kappa = 2 each round is one gradient and at most one step.
    """

    cited: ClassVar = "Menart, Ullah, Arora, Bassily and Guzman, 2024"
    of_networks: ClassVar = ("condition", "smoothness")
    bounds_excess: ClassVar = True
    kind: Literal["kl_spider"] = "kl_spider"
    mu: Mu | None = Field(default=None, description="for the estimate; null: the job's")
    condition: KlCondition | None = Field(
        default=None,
        description="of the mean loss, its ridge included, with kappa at most 2; null: that of a convex loss with a "
        "ridge. For a smaller kappa raise gamma to match",
    )
    start_gap: PositiveNumber | None = Field(
        default=None,
        description=(
            "F0: an upper bound of the start's mean loss above its least value; null: derived from the loss and "
            "the condition"
        ),
    )
    beta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.05, description="probability that the noise makes the certificate false"
    )
    smoothness: PositiveNumber | None = Field(
        default=None, description="of one unit's loss without its ridge, caps differences; null: the loss's own"
    )
    mean_smoothness: PositiveNumber | None = Field(
        default=None, description="of the mean loss, its ridge included, sets the steps; null: smoothness + ridge"
    )
    clip: PositiveNumber | None = Field(
        default=None, description="largest norm of one unit's gradient; null: the loss's own bound"
    )
    variant: Variant = Field(
        default="proved",
        description="proved: the paper's constants, corrected. calibrated: the same guarantee from sharper ones, an "
        "extension of the paper",
    )
    force: bool = Field(default=False, description="run where nothing better than the start is certified")
    radius: Radius | None = Field(
        default=None,
        description=(
            "a radius around the start within which the condition holds; leaving it is a failure. null: the "
            "distance that all steps together can go"
        ),
    )
    start: Start = Field(default="zeros", description="in encoded units; never from the records")
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        default=None, description="answers asked in the worst case; planned"
    )
    extremes: tuple[Asked, ...] | None = Field(
        default=None, description="the gradient's question, and the differences' with most and least noise; planned"
    )

    def plan(self, facts: Facts, mu: float) -> "KlSpiderPlan":
        """Fill what is open.

        Raises:
            Invalid: the loss has no known smoothness, no condition is known, kappa is above 2, no better excess than
                the start's is certified, or there would be too many rounds. With the figures and the ways out.
        """
        condition, smoothness = self._constants(facts)
        mean_smoothness = smoothness + facts.ridge if self.mean_smoothness is None else self.mean_smoothness
        gap = known_gap(self.start_gap, condition, self._clip(facts), self._away(), facts)
        ground = self._ground(facts, condition, smoothness, mean_smoothness, gap)
        course = self._course(ground, mu if self.mu is None else self.mu)
        if course.regime is not None and not (self.force and course.rounds):
            raise _without_use(course, course.regime, ground.start_gap)
        if course.answers > MOST_STEPS:
            raise Invalid(
                f"The worst case has {course.answers} answers; at most {MOST_STEPS} are offered.",
                FieldError("/optimizer/condition", "is too weak for this many units; or take adaptive_gd"),
            )
        asked = course.extremes(self.clip)
        for name, given, planned in (("steps", self.steps, course.answers), ("extremes", self.extremes, asked)):
            if given is not None and given != planned:
                raise Invalid(
                    f"/optimizer/{name} follows from the rest.", FieldError(f"/optimizer/{name}", "leave it out")
                )
        # Replaces a given gap too: the facts or the condition may imply a smaller one.
        return self.model_copy(update={"start_gap": gap}).closed(
            KlSpiderPlan,
            mu=mu,
            condition=condition,
            smoothness=smoothness,
            mean_smoothness=mean_smoothness,
            steps=course.answers,
            extremes=asked,
            radius=course.travel * (1 + SLACK),  # the slack: rounding of a walk's sums must not count as leaving
        )

    def _constants(self, facts: Facts) -> tuple[KlCondition, float]:
        """Return the condition and one unit's smoothness, as given or as the facts imply them.

        Raises:
            Invalid: some constant is not known, with its field.
        """
        condition = self.condition
        if condition is None and facts.weak_convexity == 0 and facts.ridge > 0:
            condition = KlCondition.strongly_convex(facts.ridge)
        smoothness = self.smoothness if self.smoothness is not None else facts.smoothness
        errors = []
        if facts.scale is not None:
            errors.append(FieldError("/model/loss", "has an unknown scale, which the condition is not about: give one"))
        if condition is None:
            errors.append(FieldError("/optimizer/condition", "declare one, give a convex loss a ridge; or adaptive_gd"))
        elif condition.kappa > SMOOTHEST_KAPPA:
            errors.append(
                FieldError("/optimizer/condition/kappa", "above 2 no smooth loss has it: lower it, or proximal_point")
            )
        if smoothness is None:
            errors.append(FieldError("/optimizer/smoothness", "this loss has none that is known: proximal_point"))
        if condition is None or smoothness is None or errors:
            raise Invalid(f"kl_spider needs what is not known here: see {errors[0].pointer}.", *errors)
        return condition, smoothness

    def _clip(self, facts: Facts) -> float:
        """Return L0, the largest norm of one unit's gradient."""
        return facts.gradient_bound if self.clip is None else self.clip

    def _away(self) -> float:
        """Return how far the start is from zero."""
        return 0.0 if self.start == "zeros" else hypot(*self.start)

    def _ground(
        self, facts: Facts, condition: KlCondition, smoothness: float, mean_smoothness: float, gap: float
    ) -> SpiderConstants:
        """Return the public figures, with a gamma for which F0 <= (gamma L0)^kappa: a larger one is always safe.

        The mean loss's slope at the start is at most L0 and the ridge's there.
        """
        lift = 1 + facts.ridge * self._away() / self._clip(facts)
        return SpiderConstants(
            units=facts.units,
            dimension=facts.dimension,
            replaced=2 if facts.adjacency is Adjacency.REPLACE_ONE else 1,
            lipschitz=self._clip(facts),
            smoothness=mean_smoothness,
            ratio=smoothness / mean_smoothness,
            condition=KlCondition(gamma=condition.gamma * lift, kappa=condition.kappa),
            gap=gap,
        )

    def _course(self, ground: SpiderConstants, mu: float) -> SpiderSchedule:
        """Return all rounds that a budget pays for, or why there is none."""
        return spider_schedule(ground, rho_of_mu(mu), self.beta, self.variant, self.force)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="kl_spider",
            title="KL-Spider",
            paper="Menart, Ullah, Arora, Bassily, Guzman: Differentially private non-convex optimization under the KL "
            "condition with optimal rates (2024)",
            native="rho-zCDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(
                    text="the mean loss is (gamma, kappa)-KL around the start, 1 <= kappa <= 2", checked="declared"
                ),
                Assumption(text="with a convex loss and a ridge it is, with kappa = 2", checked="static"),
                Assumption(text="the loss at the start is at most start_gap above its least value", checked="declared"),
                Assumption(text="losses are smooth, with known or declared constants", checked="static"),
                Assumption(text="gradients are no longer than the clip (longer ones are clipped)", checked="declared"),
                Assumption(text="gamma^2 smoothness start_gap^-(2-kappa)/kappa is at least 1/2", checked="static"),
                Assumption(text="iterates stay within radius of the start", checked="runtime"),
            ),
            returns="coefficients with a certificate of their excess risk; no intervals",
        )


class KlSpiderPlan(KlSpider, Plan):
    """KL-Spider with nothing open but a clip, which may be the loss's own."""

    mu: Mu
    condition: KlCondition
    start_gap: PositiveNumber
    smoothness: PositiveNumber
    mean_smoothness: PositiveNumber
    radius: Radius
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    extremes: tuple[Asked, ...]

    def ground(self, facts: Facts) -> SpiderConstants:
        """Return the public figures that all rounds follow from."""
        return self._ground(facts, self.condition, self.smoothness, self.mean_smoothness, self.start_gap)

    def course(self, facts: Facts) -> SpiderSchedule:
        """Return all rounds, or why there is none."""
        return self._course(self.ground(facts), self.mu)

    def questions(self) -> tuple[Gradient | GradientDifference, ...]:
        """Return the gradient's question and the extremes of the differences'; all are asked with the same clip."""
        return self.extremes

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return one Gaussian event an answer, as if no round ended early; undrawn ones are given back."""
        return self.course(facts).events()

    def passes(self, facts: Facts) -> int:
        """Return two products a gradient, four a difference: it is that of two gradients."""
        rounds = self.course(facts).rounds
        # The last of a round's steps is followed by no difference.
        return sum(4 * one.steps - 2 for one in rounds)

    def bound(self, facts: Facts) -> Bound:
        """Predict the excess risk: the target of the last round, its constant included."""
        course, gap = self.course(facts), self.ground(facts).start_gap
        return Bound(
            quantity="excess of the mean loss, its ridge included, over its least value, in encoded units",
            value=course.certified,
            confidence=1 - self.beta,
            trivial=gap,
            vacuous=course.certified is None or course.certified >= gap,
            source=THEOREM
            + (
                ", with explicit constants"
                if self.variant == "proved"
                else "; calibrated constants, an extension of the paper"
            ),
        )

    def excess(self, facts: Facts) -> ExcessFigures:
        """Return the rounds and the noise of the first gradient, beside the lower bound."""
        gradient, rho = self.questions()[0], rho_of_mu(self.mu)
        return ExcessFigures(
            lower=lower_bounds.forced(self.condition, facts, self._clip(facts), rho),
            rounds=len(self.course(facts).rounds),
            noise=gradient.sigma * gradient.sensitivity(facts),
        )

    def error_bound(self, facts: Facts) -> ErrorBound:
        """Return what is claimed of the estimate once all rounds are over, and what the claim rests on."""
        course, gap = self.course(facts), self.ground(facts).start_gap
        value, sure = course.certified, 1 - self.beta
        if not course.rounds:
            value, sure = gap, 1.0
        return ErrorBound(
            ended_by=course.regime if course.regime is not None and not course.rounds else "rounds",
            quantity="excess_risk",
            value=value,
            confidence=None if value is None else sure,
            conditions=self._conditions(facts, course),
            variant=self.variant,
            untrained=gap,
        )

    def _conditions(self, facts: Facts, course: SpiderSchedule) -> tuple[str, ...]:
        """Return the unchecked assumptions of the claim; facts that the loss implies are not among them."""
        ground, declared = self.ground(facts), []
        known, within = facts.start_gap, f"within {self.radius:.6g} of the start"
        proved = facts.weak_convexity == 0 and facts.ridge > 0
        if not (proved and self.condition == KlCondition.strongly_convex(facts.ridge)):
            declared.append(
                f"the mean loss is ({self.condition.gamma:.6g}, {self.condition.kappa:.6g})-KL {within}, with respect "
                "to its least value"
            )
        if facts.clips_alone or self._clip(facts) < facts.gradient_bound:
            declared.append(f"no unit's gradient is longer than {self._clip(facts):.6g} {within}: nothing is clipped")
        if facts.smoothness is None or ground.ratio * ground.smoothness < facts.smoothness:
            declared.append(f"each unit's loss is {self.smoothness:.6g}-smooth {within}")
        if facts.smoothness is None or ground.smoothness < facts.smoothness + facts.ridge:
            declared.append(f"the mean loss is {ground.smoothness:.6g}-smooth {within}")
        most = ground.condition.gap_at(ground.lipschitz)
        if ground.start_gap < (most if known is None else min(most, known)):
            declared.append(f"the mean loss at the start is at most {ground.start_gap:.6g} above its least value")
        if not ground.consistent:
            declared.append(
                "gamma, smoothness and start_gap contradict each other wherever the gap is attained "
                f"(gamma^2 L1 F0^-e = {ground.stretch:.3g} is below 1/2): the gap is loose, or they are wrong"
            )
        if course.regime is not None and course.rounds:
            declared.append("forced: the noise allows no target below the start's gap, so nothing is claimed")
        return tuple(declared)


def _without_use(course: SpiderSchedule, regime: Regime, gap: float) -> Invalid:
    """Return the refusal of a schedule that certifies nothing."""
    if regime == "too_many_rounds":
        return Invalid(
            f"{regime}: {course.wanted} rounds or more are needed, for gamma^2 smoothness is large.",
            FieldError("/optimizer/condition", "is too weak for this smoothness: raise the ridge, or take adaptive_gd"),
        )
    target = "no target is" if course.floor is None else f"the smallest target, {course.floor:.4g}, is not"
    return Invalid(
        f"{regime}: {target} below {gap:.4g}, what is known of the start's excess.",
        FieldError("/privacy", "raise the target, or bring more units"),
        FieldError("/optimizer/variant", "calibrated certifies much smaller excesses"),
        FieldError("/optimizer/kind", "adaptive_gd needs no condition"),
        FieldError("/optimizer/force", "true runs all the same where there are rounds, and certifies nothing"),
    )
