"""DP-Clipped-SGD with a certificate: one pass over disjoint batches of fixed size, at the price of a single answer.

Each unit is read by one step at most, in a public order that the records have no part in. Changing a unit changes one
step's sum; the steps before it have the same law, and those after it follow from noised answers and from other units.
The whole trajectory therefore costs as much as one Gaussian answer, for any number of steps. That argument is ours, as
are the certificates of the average (`core.methods.clipped.one_pass.refined`). The two theorems are those of the paper.

Letters: lambda is `clip`, gamma `step_size`, K `steps`, b `batch`, L `smoothness`, R `distance`, Delta `start_gap`.
`moment` has alpha and sigma, the order and the size of a central moment of gradients. The noise multiplier is 1/mu. No
step depends on beta but those that a certificate chooses.

Source: Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov, Differentially private Clipped-SGD: high-probability
convergence with arbitrary clipping level (preprint), algorithm 1, theorems 4.1 and 4.4.
"""

from collections.abc import Sequence
from functools import partial
from math import inf, sqrt
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import ErrorBound
from core.losses.assumption import Assumption
from core.methods.base import Card, Plan, Spec
from core.methods.clipped.one_pass.guarantee import Guarantee, Run
from core.methods.clipped.one_pass.refined import refined_convex, refined_nonconvex
from core.methods.clipped.one_pass.search import lowest
from core.methods.clipped.one_pass.theory import paper_convex, paper_nonconvex
from core.methods.m_estimation.noisy_gd.spec import planned_steps
from core.privacy.arithmetic import PLANNED_RADIUS, AnyStart, Mu, Radius
from core.privacy.events import NOTHING, Event, Gaussian
from core.privacy.facts import Adjacency, Facts, Frozen
from core.queries.gradients import Gradient
from core.queries.sampling import StreamSampling
from farthing.schemas.estimates import Bound

PAYMENTS: Final = 97
"""Chunks of a run at most; the first pays for all of it."""
NOISE_MARGIN: Final = 1.02
"""Planned noise over that of exact arithmetic; the oracle's integer lattice adds less than this."""
LONGEST_SEARCH: Final = 1e6
"""Clips are compared up to so many times the smallest that a certificate says anything of."""
PLANNED_BATCHES: Final = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
"""Numbers of steps that are compared where a certificate chooses the batch."""
BELOW: Final = 1 - 1e-12
"""A planned step size is no larger than the theorem's, however it is rounded."""

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Moment(Frozen):
    """E |gradient of a unit - mean gradient|^order is at most size^order, at every parameter; the population's."""

    order: Annotated[float, Field(gt=1, le=2)] = Field(
        description="alpha: 2 is a variance, less allows infinite ones; below the tail index, and not next to it"
    )
    size: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(description="sigma, in encoded units")


class OnePass(NamedTuple):
    """Figures of one pass."""

    mu: float
    batch: int
    steps: int
    clip: float

    def question(self) -> Gradient:
        """Return the question of every step."""
        return Gradient(sigma=1 / self.mu, batch=self.batch, clip=self.clip)

    def deviation(self, facts: Facts) -> float:
        """Return the noise on each coordinate of a batch's mean, the lattice's margin included (sigma_omega)."""
        question = self.question()
        return NOISE_MARGIN * question.sigma * question.sensitivity(facts)


class OnePassClippedSgd(Spec):
    """theta <- theta - step_size * (mean clipped gradient of the next batch + noise), once through the records.

    The average of all iterates is returned, the start included and no iterate that no gradient was asked at: exactly
    `steps` updates, N = steps + 1 points. Where the loss is not convex, one of them chosen at random. Never the best:
    to know it takes the records. A batch that is lost with a worker is skipped, and the certificate counts what was
    really taken.
    """

    federates: ClassVar = True

    cited: ClassVar = "Vatan Khah, Chezhegov, Farahmand, Horvath and Gorbunov, preprint"
    kind: Literal["one_pass_clipped_sgd"] = "one_pass_clipped_sgd"
    mu: Mu | None = Field(default=None, description="for the whole pass; null: the job's share")
    batch: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="units in a step, exactly; null: planned, with the certificate where there is one"
    )
    steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="K; null: as many batches as there are units for"
    )
    clip: PositiveNumber | None = Field(
        default=None, description="lambda; null: the clip with the best certificate, at most the model's own bound"
    )
    step_size: PositiveNumber | None = Field(
        default=None,
        description="gamma; null: the certificate's, or 1/L without one, which no theorem stands behind",
    )
    certificate: Literal["refined", "paper"] = Field(
        default="refined",
        description="rule of the step size. refined: ours, for the average. paper: the theorem's, for the best iterate",
    )
    beta: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.05, description="probability that the bound fails")
    smoothness: PositiveNumber | None = Field(
        default=None, description="L of the mean loss over all parameters; null: no certificate"
    )
    distance: PositiveNumber | None = Field(
        default=None, description="R, how far the start is from a minimiser, at most; for convex losses"
    )
    start_gap: PositiveNumber | None = Field(
        default=None, description="Delta, how far the start is above the least mean loss, at most; for other losses"
    )
    moment: Moment | None = Field(default=None, description="of unclipped gradients; null: no certificate")
    returns: Literal["average", "random_iterate", "last"] | None = Field(
        default=None,
        description="null: the average where the loss is convex, else an iterate chosen at random, and no record; "
        "last: as plain private gradients are compared, nothing is claimed of it",
    )
    start: AnyStart = Field(
        default="zeros", description="in encoded units, never from the records; random: at distance 1 from zero"
    )
    radius: Radius | None = Field(default=None, description="an iterate outside this ball around zero is a failure")

    def plan(self, facts: Facts, mu: float) -> "OnePassClippedSgdPlan":
        """Fill what is open: batch, clip and step size so that the certificate is smallest, where there is one.

        Raises:
            Invalid: figures contradict each other.
        """
        _refuse_unfit(self, facts)
        mu = mu if self.mu is None else self.mu
        batch = self._planned_batch(facts, mu) if self.batch is None else self.batch
        # Rounded down: units that fill no whole batch are never read.
        steps = facts.units // batch if self.steps is None else self.steps
        run = OnePass(mu, batch, steps, 0.0)
        run = run._replace(clip=self._planned_clip(facts, run) if self.clip is None else self.clip)
        return self.closed(
            OnePassClippedSgdPlan,
            mu=mu,
            batch=batch,
            steps=steps,
            clip=run.clip,
            step_size=self._planned_step(facts, run),
            returns="average" if facts.weak_convexity == 0 else "random_iterate",
            radius=PLANNED_RADIUS,
        )

    def unbounded_for(self, facts: Facts) -> tuple[str, ...]:
        """Return why there is no certificate, in words; nothing where there is one."""
        convex = facts.weak_convexity == 0
        missing = [name for name in ("smoothness", "moment") if getattr(self, name) is None]
        missing += ["distance"] * (convex and self.distance is None)
        missing += ["start_gap"] * (not convex and self.start_gap is None)
        reasons = [f"{name} is not declared" for name in missing]
        reasons += ["a ridge is added outside the clip"] * (facts.ridge > 0)
        reasons += ["the residual scale is unknown"] * (facts.scale is not None)
        return tuple(reasons)

    def promised(self, facts: Facts, run: OnePass, *, refined: bool | None = None) -> Guarantee | None:
        """Return what a theorem says of a pass with these constants; None where none says anything.

        Args:
            facts: public.
            run: its figures.
            refined: which one; None: as the settings say.
        """
        if self.unbounded_for(facts):
            return None
        assert self.smoothness is not None, "declared"
        assert self.moment is not None, "declared"
        drawn = Run(
            alpha=self.moment.order,
            sigma=self.moment.size,
            clip=run.clip,
            steps=run.steps,
            beta=self.beta,
            dimension=facts.dimension,
            noise=run.deviation(facts),
            batch=run.batch,
        )
        ours = self.certificate == "refined" if refined is None else refined
        if facts.weak_convexity == 0:
            assert self.distance is not None, "declared"
            return (refined_convex if ours else paper_convex)(self.smoothness, self.distance, drawn)
        assert self.start_gap is not None, "declared"
        return (refined_nonconvex if ours else paper_nonconvex)(self.smoothness, self.start_gap, drawn)

    def bound_with(self, facts: Facts, run: OnePass, clip: float) -> float:
        """Return what the certificate says of a pass with a clip; infinity where it says nothing."""
        found = self.promised(facts, run._replace(clip=clip))
        return inf if found is None else found.bound

    def _planned_batch(self, facts: Facts, mu: float) -> int:
        """Return b: for the given steps, for the smallest certificate, or for as many steps as noisy GD takes."""
        if self.steps is not None:
            return facts.units // self.steps
        if self.unbounded_for(facts):
            return facts.units // min(facts.units, planned_steps(facts, mu))

        def certified(batch: int) -> float:
            tried = OnePass(mu, batch, facts.units // batch, 0.0)
            return self.bound_with(facts, tried, self.clip or self._planned_clip(facts, tried))

        tried = (facts.units // steps for steps in PLANNED_BATCHES if steps <= facts.units)
        # Fewer than ten units leave nothing to compare.
        return min(tried, key=certified, default=1)

    def _planned_clip(self, facts: Facts, run: OnePass) -> float:
        """Return the clip of the smallest bound; without a certificate the model's own bound."""
        largest = facts.gradient_bound
        if self.unbounded_for(facts):
            return largest
        # The model's own bound may lie below the least clip; the search needs a range.
        least = min(self._least_clip(facts), largest)
        return lowest(partial(self.bound_with, facts, run), least, min(largest, LONGEST_SEARCH * least))

    def _least_clip(self, facts: Facts) -> float:
        """Return the clip below which the certificate says nothing, or is stretched."""
        assert self.smoothness is not None, "declared"
        if facts.weak_convexity == 0:
            assert self.distance is not None, "declared"
            return (2 * sqrt(2) if self.certificate == "refined" else 4) * self.smoothness * self.distance
        assert self.start_gap is not None, "declared"
        return 4 * sqrt(self.smoothness * self.start_gap)

    def _planned_step(self, facts: Facts, run: OnePass) -> float:
        """Return the step size of the theorem; without one the largest of descent on a smooth loss."""
        found = self.promised(facts, run)
        if found is not None:
            return found.step_size * BELOW
        start = 1.0 if facts.scale is None else facts.scale.start
        bent = self.smoothness or facts.curvature_bound or facts.smoothness
        return 1 / (2 * run.clip) if bent is None else 1 / (bent + facts.ridge * start)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="one_pass_clipped_sgd",
            title="Clipped stochastic gradient descent, one pass, certified",
            paper="Vatan Khah, Chezhegov, Farahmand, Horvath, Gorbunov: Differentially private Clipped-SGD: "
            "high-probability convergence with arbitrary clipping level (preprint)",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is clipped as a whole, before it is summed", checked="static"),
                Assumption(text="each unit is read by one step at most", checked="runtime"),
                Assumption(text="the mean loss is L-smooth", checked="declared"),
                Assumption(text="R, or Delta, and the central moment are as declared", checked="declared"),
                Assumption(text="units are independent draws of one population", checked="declared"),
                Assumption(text="the step size is at most the certificate's", checked="static"),
                Assumption(text="no iterate leaves the public radius", checked="runtime"),
            ),
            returns="the average of all iterates, with a bound on its excess risk; no intervals",
        )


_QUANTITIES: Final = {"excess_risk": "excess risk", "squared_gradient": "squared norm of the mean gradient"}
_CONDITIONS: Final = (
    "the mean loss is as smooth as declared",
    "R or Delta, and the central moment of unclipped gradients, are as declared",
    "units are independent draws of one population, whose mean loss it is about",
)


class OnePassClippedSgdPlan(OnePassClippedSgd, Plan):
    """One pass with nothing open."""

    mu: Mu
    batch: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=1, le=1_000_000)]
    clip: PositiveNumber
    step_size: PositiveNumber
    returns: Literal["average", "random_iterate", "last"]
    radius: Radius

    @property
    def run(self) -> OnePass:
        """Its figures."""
        return OnePass(self.mu, self.batch, self.steps, self.clip)

    def guarantee(self, facts: Facts, steps: int | None = None, *, refined: bool | None = None) -> Guarantee | None:
        """Return what a theorem says of it; None where none says anything.

        Args:
            facts: public.
            steps: really taken; None: the planned ones.
            refined: which one; None: as the settings say.
        """
        taken = self.steps if steps is None else steps
        return self.promised(facts, self.run._replace(steps=taken), refined=refined)

    def questions(self) -> tuple[Gradient]:
        """Return the question of every step, the very value that the schedule prices and the oracle is asked."""
        return (self.run.question(),)

    @property
    def chunk(self) -> int:
        """The number of steps in a chunk of the schedule."""
        # Rounded up: there are then no more chunks than PAYMENTS.
        return -(-self.steps // PAYMENTS)

    def sampling(self, facts: Facts) -> StreamSampling:
        """Return that batches are disjoint."""
        del facts  # their size is the same for every scope
        return StreamSampling(batches=(self.batch,), chunk=self.chunk * self.batch)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the price of the whole pass, and chunks that cost nothing: with each the state before it is stored."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        return (Gaussian(sigma=1 / self.mu), *[NOTHING] * (-(-self.steps // self.chunk) - 1))

    def bound(self, facts: Facts) -> Bound:
        """Return what is certified of these filled settings, beside what the start satisfies untrained."""
        found = None if self.returns == "last" else self.guarantee(facts)
        if found is None:
            reasons = self._unbounded_for(facts)
            return Bound(
                quantity="distance of the private from the non-private estimate, in encoded units",
                value=None,
                confidence=None,
                trivial=2 * self.radius,
                vacuous=True,
                source=f"none: {', '.join(reasons)}",
            )
        value = found.at(self.step_size)
        return Bound(
            quantity=f"{_QUANTITIES[found.quantity]} of {found.certified_for}",
            value=value,
            confidence=None if value is None else found.confidence,
            trivial=found.trivial,
            vacuous=value is None or value >= found.trivial,
            source=found.source if value is not None else f"none: the step size is above that of {found.source}",
        )

    def _unbounded_for(self, facts: Facts) -> tuple[str, ...]:
        """Return why nothing is known of what is returned."""
        if self.returns == "last":
            return ("the certificates are about the average, or an iterate chosen at random",)
        return self.unbounded_for(facts) or ("the clip is below four times the steepest slope",)

    def claim(self, facts: Facts, steps: int, noise: float, *, strayed: bool) -> ErrorBound:
        """Return what is claimed of the point that is returned.

        Args:
            facts: public.
            steps: really taken, each with an answer.
            noise: really added, its standard deviation on each coordinate of a mean.
            strayed: whether some iterate had to be brought back into the radius; the theorem's never are.
        """
        # The paper's theorem is about the best iterate, which is never returned.
        found = self.guarantee(facts, steps, refined=True)
        value = None if found is None else found.at(self.step_size)
        proved = "average" if facts.weak_convexity == 0 else "random_iterate"
        if strayed or steps == 0 or noise > self.run.deviation(facts) or self.returns != proved:
            value = None
        confidence = None if found is None or value is None else found.confidence
        untrained = None if found is None or value is None else found.trivial
        if proved == "random_iterate" and value is not None and confidence is not None:
            # Of one of many, by Markov's inequality.
            value, confidence = sqrt(value / self.beta), confidence - self.beta
            untrained = None if untrained is None else sqrt(untrained)
        return ErrorBound(
            ended_by="steps" if steps == self.steps else "lost_batches",
            quantity="excess_risk" if proved == "average" else "gradient_norm",
            value=value,
            confidence=confidence,
            conditions=() if value is None else _CONDITIONS,
            variant="practical step size" if found is None else f"{self.certificate} step size, refined certificate",
            untrained=untrained,
        )


def _refuse_unfit(settings: OnePassClippedSgd, facts: Facts) -> None:
    """Refuse batches that there are no units for, and clips that the model's own bound makes meaningless.

    Raises:
        Invalid: with JSON pointers.
    """
    if settings.batch is not None and settings.batch * (settings.steps or 1) > facts.units:
        name = "batch" if settings.steps is None else "steps"
        raise _wrong(f"/optimizer/{name}", f"takes more than the {facts.units} units there are; lower it")
    if settings.steps is not None and settings.steps > facts.units:
        raise _wrong("/optimizer/steps", f"is more than the {facts.units} units there are; lower it")
    if settings.clip is not None and settings.clip > facts.gradient_bound:
        detail = f"is above {facts.gradient_bound:.6g}, the model's own bound; lower it, or raise the weights' bound"
        raise _wrong("/optimizer/clip", detail)


def _wrong(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
