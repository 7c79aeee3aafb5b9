"""DP-Clipped-SGD as it is used: Poisson samples of expected size, momentum or Adam, averages; no theorem.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang (2016); the algorithm is the one that Vatan Khah,
Chezhegov, Farahmand, Horvath and Gorbunov (preprint) analyse at batches of one, without momentum.
"""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import AdjacencyMismatch, FieldError, Invalid
from core.losses.assumption import Assumption
from core.methods.base import Card, Plan, Spec
from core.methods.clipped.rules import Adam, Average, LearningRateSchedule, NoMean, Rule, Sgd, TailMean
from core.methods.kl.repeats import Repeats
from core.privacy.arithmetic import PLANNED_RADIUS, AnyStart, Radius
from core.privacy.calibration import Fits, smallest_sigma
from core.privacy.events import Event, Sampled, compose
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost
from core.queries.gradients import Gradient
from core.queries.sampling import PoissonSampling
from farthing.schemas.estimates import Bound

RATE_UNIT: Final = 2**64
"""A Poisson rate is a whole number of these parts."""
PLANNED_PART: Final = 0.02
"""Of all units, in a planned batch."""
LEAST_BATCH: Final = 256
PLANNED_EPOCHS: Final = 20
"""Expected number of times that a unit is sampled in all, where the number of steps is open."""
PLANNED_TRAVEL: Final = 0.5
"""Where no curvature is known: distance that steps of full length would cover in a line, momentum included."""
ADAM_STEPS: Final = (0.05, 0.001)
"""Planned for losses of known curvature, and for others."""
TAIL_PART: Final = 0.5
"""Of all steps, whose iterates are averaged where a loss's curvature is known."""
PLANNING_ORDERS: Final = range(2, 33)
"""Where a plan without a scope compares prices with those of a mu."""

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ClippedSgd(Spec):
    """theta <- theta - step of a rule along (sum of clipped gradients of a Poisson sample + noise) / expected size.

    Every step draws its own sample, each unit with probability q = batch/n, clips each unit's whole gradient to `clip`
    and divides by the expected size. All later steps are post-processing: momentum, Adam, the learning rate schedule,
    the average.
    """

    federates: ClassVar = True
    spends_mu: ClassVar = False
    mu: ClassVar[None] = None
    """Sampled answers have a price at every Renyi order and no mu."""

    cited: ClassVar = "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar and Zhang, 2016"
    of_networks: ClassVar = ()
    kind: Literal["clipped_sgd"] = "clipped_sgd"
    steps: Annotated[int, Field(ge=1, le=200_000)] | None = Field(
        default=None, description="K; null: planned, so that a unit is sampled about twenty times"
    )
    batch: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="EXPECTED units in a sample; each is in it with probability batch/n; null: planned"
    )
    sigma: PositiveNumber | None = Field(
        default=None,
        description="noise on a sum of clipped gradients over the clip (z of the literature); null: the smallest that "
        "the privacy target allows",
    )
    clip: PositiveNumber | None = Field(
        default=None,
        description="lambda, longest gradient of a unit, longer ones are shortened; null: the model's own bound",
    )
    step_size: PositiveNumber | None = Field(default=None, description="gamma; null: planned from the curvature bound")
    rule: Rule = Field(default=Sgd(), description="sgd, with momentum where wanted, or adam")
    learning_rate_schedule: LearningRateSchedule = Field(
        default="constant", description="cosine: step sizes fall to zero as half a wave"
    )
    warm_up: Annotated[int, Field(ge=0)] = Field(default=0, description="steps over which step sizes rise linearly")
    average: Average | None = Field(
        default=None,
        description="of iterates, which one is returned: none, tail, or ema; null: the second half's mean where the "
        "curvature is known, else none",
    )
    start: AnyStart = Field(
        default="zeros", description="in encoded units, never from the records; random: at distance 1 from zero"
    )
    radius: Radius | None = Field(default=None, description="iterates are projected onto this ball around zero")

    def plan(self, facts: Facts, mu: float) -> "ClippedSgdPlan":
        """Fill what is open; noise that no target has said, for a price of rho = mu^2/2 at small Renyi orders.

        A batch is 2 % of all units, at least 256; with K steps a unit is sampled K batch/n times, planned 20. Steps are
        1/(curvature bound and ridge) times (1 - momentum), or where no curvature is known so long that gradients of
        full length travel 1/2.

        Raises:
            AdjacencyMismatch: units may change into any other.
            Invalid: figures contradict each other.
        """
        rho = mu**2 / 2
        # A mu-GDP release costs rho times the order at each Renyi order.
        return self._with_noise(
            facts, lambda event: all(cost(event, order) <= rho * order for order in PLANNING_ORDERS)
        )

    def calibrated(self, facts: Facts, fits: Fits) -> "ClippedSgdPlan":
        """Return the plan with the smallest noise whose K sampled answers a target allows.

        Raises:
            AdjacencyMismatch: units may change into any other.
            Invalid: the target does not allow the noise that was given, or none that integers carry.
        """
        plan = self._with_noise(facts, fits)
        if self.sigma is not None and not fits(plan.drawn(facts)):
            raise Invalid(
                "The given noise costs more than the privacy target allows.",
                FieldError("/optimizer/sigma", "raise it, or leave it out to have it planned"),
            )
        return plan

    def _with_noise(self, facts: Facts, fits: Fits) -> "ClippedSgdPlan":
        """Fill all that is open, the noise with the least that fits."""
        _refuse_unfit(self, facts)
        batch = self.batch or min(facts.units, max(LEAST_BATCH, ceil(PLANNED_PART * facts.units)))
        steps = self.steps or max(1, ceil(PLANNED_EPOCHS * facts.units / batch))
        known = (facts.curvature_bound or facts.smoothness) is not None
        average = self.average or (TailMean(steps=max(1, ceil(TAIL_PART * steps))) if known else NoMean())
        if isinstance(average, TailMean) and average.steps > steps:
            raise _wrong("/optimizer/average/steps", "is more than the steps there are; lower it")
        if self.warm_up >= steps:
            raise _wrong("/optimizer/warm_up", "leaves no step of full size; lower it")
        clip = self.clip or facts.gradient_bound
        parts = rate_parts(batch, facts)
        sigma = self.sigma or smallest_sigma(lambda sigma: _draws(parts, sigma, steps), fits)
        return self.closed(
            ClippedSgdPlan,
            batch=batch,
            steps=steps,
            sigma=sigma,
            clip=clip,
            step_size=self._planned_step(facts, clip),
            average=average,
            radius=PLANNED_RADIUS,
        )

    def _planned_step(self, facts: Facts, clip: float) -> float:
        """Return a step size that no theorem stands behind."""
        bent = facts.curvature_bound or facts.smoothness
        if isinstance(self.rule, Adam):
            # Adam divides by the gradient's own size, hence a curvature's value says nothing here.
            return ADAM_STEPS[bent is None]
        # Momentum repeats each gradient 1/(1 - momentum) times in all; the step shrinks by as much.
        left = 1 - self.rule.momentum
        if bent is None:
            return PLANNED_TRAVEL * left / clip
        start = 1.0 if facts.scale is None else facts.scale.start
        return left / (bent + facts.ridge * start)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="clipped_sgd",
            title="Clipped stochastic gradient descent",
            paper="Abadi et al.: Deep learning with differential privacy (2016); Vatan Khah, Chezhegov, Farahmand, "
            "Horvath, Gorbunov: Differentially private Clipped-SGD (preprint), whose theorems are about "
            "one_pass_clipped_sgd",
            native="Renyi DP of Poisson samples",
            adjacency=(Adjacency.ZERO_OUT,),
            assumptions=(
                Assumption(text="each unit's gradient is clipped as a whole, before it is summed", checked="static"),
                Assumption(text="each step samples units anew, at the very rate that is priced", checked="static"),
                Assumption(text="a unit of the scope is zeroed, not changed into another", checked="static"),
            ),
            returns="parameters, or a mean of iterates; no intervals and no certificate",
        )


class ClippedSgdPlan(ClippedSgd, Plan):
    """Clipped stochastic gradient descent with nothing open."""

    steps: Annotated[int, Field(ge=1, le=200_000)]
    batch: Annotated[int, Field(ge=1)]
    sigma: PositiveNumber
    clip: PositiveNumber
    step_size: PositiveNumber
    average: Average
    radius: Radius

    def parts(self, facts: Facts) -> int:
        """Return k of the rate k/2^64 with which a unit is in a sample."""
        return rate_parts(self.batch, facts)

    def sampling(self, facts: Facts) -> PoissonSampling:
        """Return that every question has a Poisson sample of its own."""
        return PoissonSampling(parts=self.parts(facts))

    def questions(self) -> tuple[Gradient]:
        """Return the question of every step."""
        return (Gradient(sigma=self.sigma, clip=self.clip),)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return one sampled answer a step."""
        return Repeats(Sampled(numerator=self.parts(facts), sigma=self.sigma), self.steps)

    def drawn(self, facts: Facts) -> Event:
        """Return all that a run draws, as one event."""
        return _draws(self.parts(facts), self.sigma, self.steps)

    def bound(self, facts: Facts) -> Bound:
        """Say that nothing is promised: Poisson samples have no bounded jump, and no theorem covers the rules."""
        del facts
        return Bound(
            quantity="distance of the private from the non-private estimate, in encoded units",
            value=None,
            confidence=None,
            trivial=2 * self.radius,
            vacuous=True,
            source="none: no theorem covers Poisson samples; one_pass_clipped_sgd has a certificate",
        )

    def passes(self, facts: Facts) -> int:
        """Return products with all rows: a sample's are two, of its share of them."""
        return ceil(2 * self.steps * self.parts(facts) / RATE_UNIT)


def rate_parts(batch: int, facts: Facts) -> int:
    """Return k of the rate k/2^64 with which a unit is in a sample of about so many."""
    # Rounded down once: sampling and price both take this integer and agree exactly.
    return batch * RATE_UNIT // facts.units


def _draws(parts: int, sigma: float, steps: int) -> Event:
    """Return so many sampled answers as one event."""
    return compose({Sampled(numerator=parts, sigma=sigma): steps})


def _refuse_unfit(settings: ClippedSgd, facts: Facts) -> None:
    """Refuse scopes and figures that samples do not fit.

    Raises:
        AdjacencyMismatch: units may change into any other.
        Invalid: a batch has more units than there are.
    """
    if facts.adjacency is Adjacency.REPLACE_ONE:
        raise AdjacencyMismatch(
            "Poisson samples are not offered where one unit may change into any other: no price is known that two"
            " accountants agree on.",
            FieldError("/optimizer", "use one_pass_clipped_sgd or a full-batch method, or a scope with zero_out"),
        )
    if settings.batch is not None and settings.batch > facts.units:
        raise _wrong("/optimizer/batch", f"is more than the {facts.units} units there are; lower it")
    # A clip above the bound shortens nothing and only adds noise.
    if settings.clip is not None and settings.clip > facts.gradient_bound:
        detail = f"is above {facts.gradient_bound:.6g}, the model's own bound; lower it, or raise the weights' bound"
        raise _wrong("/optimizer/clip", detail)


def _wrong(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
