"""Noisy Newton steps, then gradient steps with the last matrix: the method's name, assumptions, price and predictions.

Source: Avella-Medina, Bradshaw and Loh (2023), equation (9), Theorems 3 and 4, Remark 6, for the Newton steps. Pooling,
unequal shares, the gradient steps behind them and their average are Farthing's: gradient steps cost p answers where a
Hessian costs p^2, and noise of the matrix only slows them down.
"""

from collections.abc import Sequence
from itertools import zip_longest
from math import sqrt
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from core.base.errors import contradiction
from core.inference.settings import Inference, PlannedInference, Shares
from core.losses.assumption import Assumption
from core.methods.base import Card, Plan
from core.methods.m_estimation.noisy_newton.options import NewtonOptions, Share, WarmStartPlan
from core.methods.m_estimation.noisy_newton.shapes import (
    CAREFUL_DAMPING,
    curvature_questions,
    gradient_parts,
    gradient_questions,
    newton_weights,
    planned_shape,
    pooled_deviations,
    spectral_noise,
    steady_floor,
)
from core.methods.m_estimation.noisy_newton.widths import newton_covariance
from core.methods.m_estimation.predicted_covariance import Array, Noised, Pooled
from core.methods.m_estimation.widths import PredictsWidths
from core.models.outlook import Outlook
from core.privacy.arithmetic import (
    CONFIDENCE,
    LARGEST_FLOOR_PART,
    PLANNED_RADIUS,
    Damping,
    Floor,
    MatrixNoise,
    Mu,
    Radius,
    Start,
    Steps,
    fill,
    matrix_floor,
    noise_norm,
    required_curvature_bound,
)
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Secant
from farthing.schemas.estimates import Bound

PURE_STEPS = 8
DAMPED_STEPS = 17
NOISY_HESSIAN = 0.01
"""Above this ratio of the spectral noise of a Hessian to its public bound, memoryless steps are damped."""
FLOOR_MULTIPLE = 0.75
MEMORYLESS_CURVATURE_SHARE = 0.35

Memory = Annotated[float, Field(ge=0, le=1)]
Growth = Annotated[float, Field(ge=1, le=8)]
LastShare = Annotated[float, Field(gt=0, le=1)]


class NoisyNewton(NewtonOptions):
    """theta <- theta - damping * floored(matrix)^-1 (gradient + noise), `steps` times from a public start.

    The first `hessians` steps ask for a Hessian each. A step's matrix pools its noised Hessian with the earlier ones,
    by precision and `memory`. Later steps ask for gradients alone and keep the last matrix, undamped. The estimate is
    the mean of the last `averaged` iterates.

    Of mu^2 the Hessians take `curvature_share`, the gradients the rest. Within both, each Newton step takes `growth`
    times the share of the step before. `last_gradient_share` is a part of the gradients' share. The gradients after the
    last Hessian divide it equally; where every step asks for a Hessian, the last gradient takes it. Values that are
    neither given nor planned are the paper's. Every step asks for a Hessian of its own, all shares are equal, and the
    last iterate is the estimate. With a `curvature_share` of one half each answer is worth mu/sqrt(2 steps).

    A ridge is added to gradients and matrices without noise. With an unknown residual scale the answered Hessians are
    multiplied by that scale. Each step divides by the current one, which is kept above its public floor. The shares of
    a line search, a Lipschitz estimate or gradient steps in front are subtracted from mu^2 first.
    """

    offers_intervals: ClassVar = True
    inverts_hessians: ClassVar = True

    cited: ClassVar = "Avella-Medina, Bradshaw and Loh, 2023"
    takes_terms: ClassVar = True
    kind: Literal["noisy_newton"] = "noisy_newton"
    steps: Steps | None = Field(default=None, description="of both kinds; null: planned")
    hessians: Steps | None = Field(
        default=None, description="number of first steps that ask for a Hessian; all of them do in the paper"
    )
    memory: Memory | None = Field(
        default=None,
        description=(
            "factor on the weight of an earlier noised Hessian at each later step. 0: a step uses its own alone, "
            "as in the paper. 1: all count by their precision. null: planned"
        ),
    )
    growth: Growth | None = Field(
        default=None, description="of mu^2 from one Newton step to the next; 1: equal shares; null: planned"
    )
    averaged: Steps | None = Field(
        default=None, description="iterates, the last ones, whose mean is the estimate; null: planned"
    )
    damping: Damping | None = Field(default=None, description="1 is the pure Newton step; null: planned")
    mu: Mu | None = Field(default=None, description="for the estimate alone; null: the job's share")
    curvature_share: Share | None = Field(default=None, description="the Hessians' part of mu^2; null: planned")
    last_gradient_share: LastShare | None = Field(
        default=None,
        description="of what the gradients take, the part of those after the last Hessian, or of the last one where "
        "none comes after; null: planned",
    )
    eigenvalue_floor: Floor | None = Field(
        default=None,
        description="smallest eigenvalue of the last matrix, in encoded units; that of an earlier one is as much "
        "higher as its noise; null: planned",
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

    def with_inference(self, inference: Inference) -> Self:
        """Pool no matrices for the printed correction, which is one for the printed Newton's method."""
        return fill(self, memory=0.0) if inference.intervals and inference.correction == "printed" else self

    def planned_shares(self, facts: Facts, mu: float) -> Shares:
        """Return the shares of a pooled run's shape; the paper's run has none of its own."""
        if self.memory == 0:
            return super().planned_shares(facts, mu)
        shape = planned_shape(facts, mu)
        estimate = 1 - shape.final_part - shape.score_part
        return Shares(estimate=estimate, curvature=shape.final_part, score=shape.score_part)

    def equally(self, plan: Plan) -> Self:
        """Return the settings with the same kinds of steps, every gradient and Hessian worth the same."""
        assert isinstance(plan, NoisyNewtonPlan), "it is a plan of these settings"
        hessians, late = plan.hessians, plan.late_steps
        gradients = hessians + late
        return fill(
            self,
            steps=plan.steps,
            hessians=hessians,
            averaged=plan.averaged,
            growth=1.0,
            curvature_share=hessians / (hessians + gradients),
            last_gradient_share=late / gradients if late else 1 / gradients,
        )

    def plan(self, facts: Facts, mu: float) -> "NoisyNewtonPlan":
        """Fill what is open, from public facts alone (`docs/explanation/plans.md` derives the constants)."""
        if self.steps is not None:
            self.refuse_endless(self.steps - self.warm_steps, late_steps=1)
        worth = self.newton_mu(self.mu or mu)
        run = self._memoryless_run(facts, worth) if self.memory == 0 else self._pooled_run(facts, mu)
        settings, late = self.filled_options(facts, run.hessians), run.steps - self.warm_steps - run.hessians
        settings.refuse_endless(run.hessians, late)
        weights = newton_weights(run.hessians, run.growth)
        curvatures = curvature_questions(worth, run.curvature_share, weights, self.matrix_noise)
        deviation = pooled_deviations(curvatures, run.memory, facts)[-1]
        part = LARGEST_FLOOR_PART if self.memory == 0 else 1.0
        floor = matrix_floor(deviation, facts.dimension, part * required_curvature_bound(facts), FLOOR_MULTIPLE)
        if facts.scale is not None and settings.scale_step != "newton":
            parts = gradient_parts(weights, late, run.last_gradient_share)
            floor = max(floor, steady_floor(gradient_questions(worth, run.curvature_share, parts)[-1], facts))
        return settings.closed(NoisyNewtonPlan, mu=mu, radius=PLANNED_RADIUS, eigenvalue_floor=floor, **run._asdict())

    def _pooled_run(self, facts: Facts, mu: float) -> "_Run":
        """Return the shape of a run with gradient steps behind its Newton steps."""
        shape = planned_shape(facts, mu)
        estimate = 1 - shape.final_part - shape.score_part
        steps, hessians, growth = self.steps, self.hessians, self.growth or shape.growth
        if steps is None:
            hessians = hessians or shape.hessians
            steps = self.warm_steps + hessians + shape.gradients
        hessians = hessians or min(steps - self.warm_steps, shape.hessians)
        late, gradients = steps - self.warm_steps - hessians, estimate - shape.curvature_part
        last = 1 - shape.early_part / gradients if late > 0 else newton_weights(hessians, growth)[-1]
        return _Run(
            steps=steps,
            hessians=hessians,
            memory=self.memory or shape.memory,
            growth=growth,
            averaged=self.averaged or max(1, late * shape.averaged // shape.gradients),
            damping=self.damping or self._planned_damping(shape.damping),
            curvature_share=self.curvature_share or shape.curvature_part / estimate,
            last_gradient_share=self.last_gradient_share or last,
        )

    def _memoryless_run(self, facts: Facts, worth: float) -> "_Run":
        """Return the paper's run, for Newton steps of this worth: a Hessian at every step, used at that step alone."""
        growth, share = self.growth or 1.0, self.curvature_share or MEMORYLESS_CURVATURE_SHARE
        pure = self.hessians or (PURE_STEPS if self.steps is None else self.steps - self.warm_steps)
        curvatures = curvature_questions(worth, share, newton_weights(pure, growth), self.matrix_noise)
        noise = spectral_noise(pooled_deviations(curvatures, 0.0, facts)[-1], facts)
        damping = self.damping or self._planned_damping(CAREFUL_DAMPING if noise > NOISY_HESSIAN else 1.0)
        count = DAMPED_STEPS if self.careful or damping != 1 else PURE_STEPS
        steps = self.steps or count + self.warm_steps
        hessians = self.hessians or steps - self.warm_steps
        last = 0.5 if steps - self.warm_steps > hessians else newton_weights(hessians, growth)[-1]
        return _Run(
            steps=steps,
            hessians=hessians,
            memory=0.0,
            growth=growth,
            averaged=self.averaged or 1,
            damping=damping,
            curvature_share=share,
            last_gradient_share=self.last_gradient_share or last,
        )

    def _planned_damping(self, usual: float) -> float:
        """Return the damping of steps that nothing else damps; switching needs one to switch from."""
        if self.step_rule == "switching":
            return min(usual, CAREFUL_DAMPING)
        return 1.0 if self.careful else usual

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="noisy_newton",
            title="Noisy Newton",
            paper="Avella-Medina, Bradshaw, Loh: Differentially private inference via noisy optimization (2023)",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded (the weights see to it)", checked="static"),
                Assumption(text="each unit's Hessian is a bounded rank-one matrix", checked="static"),
                Assumption(text="the start lies where damped steps converge", checked="declared"),
                Assumption(text="adaptive steps: the loss is self-concordant with a public constant", checked="static"),
                Assumption(text="noised Hessians are positive definite after flooring", checked="runtime"),
            ),
            returns="coefficients, and unchecked private intervals where the job accepts them",
        )


class NoisyNewtonPlan(NoisyNewton, PredictsWidths):
    """Noisy Newton with nothing open."""

    steps: Steps
    hessians: Steps
    memory: Memory
    growth: Growth
    averaged: Steps
    damping: Damping
    mu: Mu
    curvature_share: Share
    last_gradient_share: LastShare
    eigenvalue_floor: Floor
    radius: Radius
    warm_start: WarmStartPlan | None = None

    def check(self, inference: Inference) -> None:
        """Refuse numbers of steps and shares that do not fit each other.

        Raises:
            Invalid: with JSON pointers.
        """
        if self.late_steps < 0:
            raise contradiction("/optimizer/hessians", "is more than the steps there are; lower it")
        if self.averaged > max(1, self.late_steps):
            raise contradiction("/optimizer/averaged", "is more than the steps after the last Hessian; lower it")
        if self.last_gradient_share == 1 and self.steps != 1:
            raise contradiction("/optimizer/last_gradient_share", "leaves nothing for the earlier steps; lower it")
        if self.late_steps and inference.intervals and inference.correction == "printed":
            raise contradiction("/inference/correction", "is printed for Newton steps alone; ask for no others")

    def pool(self, facts: Facts) -> Pooled:
        """Return what intervals take of the Hessians: all by memory, or the later half where there is none."""
        memory, count, squares = self.memory, 0.0, 0.0
        for step, question in enumerate(self.curvatures()):
            kept = memory if memory > 0 else float(2 * step > self.hessians)
            precision = (question.sigma * question.sensitivity(facts)) ** -2
            count, squares = kept * count + precision, kept**2 * squares + precision
        return Pooled(count, sqrt(squares) / count, self.matrix_deviations(facts)[-1])

    def covariance(self, outlook: Outlook, facts: Facts, inference: PlannedInference, noised: Noised) -> Array:
        """Return the sandwich with what the noise of the steps adds."""
        return newton_covariance(self, outlook, facts, inference, noised)

    def curvature_known(self, facts: Facts) -> float:
        """Return what pooled Hessians say of the last, or all of the second half where they are not pooled."""
        if self.memory:
            return float(self.matrix_deviations(facts)[-1] ** -2)
        return (self.hessians - self.hessians // 2) * self.curvatures()[-1].precision(facts)

    @property
    def late_steps(self) -> int:
        """Number of last steps that ask for a gradient alone."""
        return self.steps - self.warm_steps - self.hessians

    def gradients(self) -> tuple[Gradient, ...]:
        """Return every step's gradient question, in order: the very values that are priced and asked."""
        weights = newton_weights(self.hessians, self.growth)
        parts = gradient_parts(weights, self.late_steps, self.last_gradient_share)
        own = gradient_questions(self.newton_mu(self.mu), self.curvature_share, parts)
        return (*self.warm_gradients(self.mu), *own)

    def curvatures(self) -> tuple[Curvature, ...]:
        """Return every Newton step's Hessian question, in order."""
        weights = newton_weights(self.hessians, self.growth)
        return curvature_questions(self.newton_mu(self.mu), self.curvature_share, weights, self.matrix_noise)

    def questions(self) -> tuple[Gradient | Curvature | Secant, ...]:
        """Return every question that some step asks, each once."""
        first: tuple[Gradient | Curvature | Secant, ...] = (*self.gradients(), *self.curvatures())
        return tuple(dict.fromkeys((*first, *self.lipschitz_questions(self.mu), *self.comparisons(self.mu))))

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return each step's events, gradient first, in the order they are drawn.

        Answers decide when a line search compares. All possible comparisons are priced behind the first Newton step,
        where most take place; unused ones are given back. An attempt that is lost while later steps still compare loses
        the draws paid ahead of their turn. If the run needs all the rest too, the job fails, since it never draws more
        than was priced.
        """
        del facts  # a multiplier of the sensitivity means the same for every scope
        curvatures = (None,) * self.warm_steps + self.curvatures()
        events = [question.event() for question in self.lipschitz_questions(self.mu)]
        for step, (gradient, curvature) in enumerate(zip_longest(self.gradients(), curvatures)):
            events += [question.event() for question in (gradient, curvature) if question is not None]
            if step == self.warm_steps:
                events += [question.event() for question in self.comparisons(self.mu)]
        return events

    def passes(self, facts: Facts) -> int:
        """Return two for each gradient and comparison, and p for each matrix."""
        matrices = len(self.curvatures()) + len(self.lipschitz_questions(self.mu))
        return 2 * (len(self.schedule(facts)) - matrices) + facts.dimension * matrices

    def matrix_deviations(self, facts: Facts) -> tuple[float, ...]:
        """Return the standard deviation of the noise on an entry of each Newton step's matrix, pooled ones included."""
        return pooled_deviations(self.curvatures(), self.memory, facts)

    def floors(self, facts: Facts) -> tuple[float, ...]:
        """Return the eigenvalue floor of each Newton step's matrix: in proportion to its noise, at most its bound."""
        deviations = self.matrix_deviations(facts)
        most = max(self.eigenvalue_floor, required_curvature_bound(facts))
        floors = [min(most, self.eigenvalue_floor * one / deviations[-1]) for one in deviations]
        if facts.scale is None or self.scale_step == "newton":
            return tuple(floors)
        gradients = self.gradients()[self.warm_steps :][: len(floors)]
        return tuple(max(pair) for pair in zip(floors, (steady_floor(one, facts) for one in gradients), strict=True))

    def bound(self, facts: Facts) -> Bound:
        """Predict the distance to the non-private estimate, over directions above the eigenvalue floor.

        Close to the minimiser theta_{k+1} - theta_hat = (1 - damping)(theta_k - theta_hat) - damping * H^-1 noise up to
        second order (the proof of Theorem 3). The distance ends below R (1 - damping)^K plus the largest noise of a
        step divided by the smallest eigenvalue. Gradient steps with the last matrix are such steps, undamped, and a
        mean is no farther than the farthest of its iterates. An unknown scale is taken to be where it starts.
        """
        asked = self.gradients()[self.warm_steps :]
        gradient = asked[-1] if self.late_steps else max(asked, key=lambda one: one.sigma)
        deviation = gradient.sigma * gradient.sensitivity(facts) * (1.0 if facts.scale is None else facts.scale.start)
        forgotten = 0.0 if self.late_steps else (1 - self.damping) ** self.hessians
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


class _Run(NamedTuple):
    """Planned numbers of steps, and shares of mu^2; see `NoisyNewton`."""

    steps: int
    hessians: int
    memory: float
    growth: float
    averaged: int
    damping: float
    curvature_share: float
    last_gradient_share: float
