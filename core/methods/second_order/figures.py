"""The settings of methods on SPIDER's estimates, and the figures of their plans; letters as in `gauss_psgd`.

All answers of a pass are about disjoint batches, so that a pass has one price, however many answers there are.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import ceil, frexp, ldexp, sqrt
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field

from core.methods.base import Plan, Request, Spec
from core.methods.second_order.estimation import Errors
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.kinds import AnyModel, PhaseRetrievalModel
from core.models.loss_geometry import hessian_smoothness
from core.models.modelling import encoded_loss
from core.models.network.model import NetworkModel
from core.privacy.arithmetic import AnyStart, Mu, Radius, fill
from core.privacy.events import NOTHING, Event, Gaussian
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference, GradientNorm
from core.queries.sampling import Sampling, StreamSampling
from farthing.schemas.estimates import Bound

MOST_EPOCHS: Final = 32
MOST_STEPS: Final = 1_000_000
MOST_ROUNDS: Final = 100_000
MOST_CHUNKS: Final = 97
CAP_PARTS: Final = 128
"""Of the next power of two, that caps are rounded up to."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Preset = Literal["strict", "curved", "fast"]
PLANNED_PRESETS: Final[tuple[Preset, ...]] = ("strict", "curved")
RoundMode = Literal["fresh", "rewind", "continue"]


class SpiderSettings(Spec):
    """Settings of every method whose gradients are fresh ones, or noised changes of the last one; all public."""

    federates: ClassVar = True
    per_client: ClassVar = frozenset({"batch", "difference_batch"})

    mu: Mu | None = Field(default=None, description="of all passes together; null: the job's share")
    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)] = Field(
        default=1, description="number of passes over the records; more than one says nothing about a population"
    )
    clip: Positive | None = Field(
        default=None, description="G, the longest gradient of a unit after clipping; null: the loss's bound"
    )
    smoothness: Positive | None = Field(
        default=None, description="M, of one unit's loss; null: the loss's own. Changes are cut to M times the distance"
    )
    spread: Positive | None = Field(
        default=None, description="of units' gradients around their mean, as a length, at most; null: the clip"
    )
    difference_spread: Positive | None = Field(
        default=None,
        description="of units' changes around their mean, over the distance, at most; null: the smoothness",
    )
    batch: Count | None = Field(default=None, description="b1, units of a fresh gradient")
    difference_batch: Count | None = Field(default=None, description="b2, units of a change")
    restart_drift: Positive | None = Field(
        default=None, description="kappa: accumulated squared movement at which a fresh gradient is asked"
    )
    step_size: Positive | None = Field(default=None, description="eta; null: planned from 1/M")
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(
        default=None, description="T, steps at most; null: as many as there are units for"
    )
    sites: Count | None = Field(
        default=None, description="m, whose answers are averaged in a federated job; null: 1. Errors shrink by its root"
    )
    start: AnyStart | None = Field(
        default=None,
        description="in encoded units, never from the records; random: at distance 1 from zero. null: zeros, or random "
        "in phase retrieval, where zero has no slope",
    )
    radius: Radius | None = Field(default=None, description="iterates are brought back into this ball around zero")

    def with_request(self, request: Request) -> Self:
        """Begin at zero, or at random where every gradient is zero there."""
        return fill(self, start="random" if isinstance(request.model, PhaseRetrievalModel) else "zeros")

    def clip_at(self, facts: Facts) -> float:
        """Return G."""
        return facts.gradient_bound if self.clip is None else self.clip

    def noise_multiplier(self, mu: float) -> float:
        """Return z, the noise over the sensitivity: that of all passes together is worth `mu`."""
        return sqrt(self.epochs) / mu

    def errors_with(self, facts: Facts, mu: float, smoothness: float, batch: int, difference_batch: int) -> Errors:
        """Return what the error of an estimate follows from.

        Args:
            facts: public.
            mu: of all passes together.
            smoothness: M, of one unit's loss.
            batch: b1, units of a fresh gradient.
            difference_batch: b2, units of a change.
        """
        multiplier = self.noise_multiplier(mu)
        fresh = Gradient(sigma=multiplier, batch=batch, clip=self.clip)
        # Over a short distance a unit's change is at most M times it; the other bound, 2 G, only cuts long ones.
        replaced = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return Errors(
            dimension=facts.dimension,
            batch=batch,
            difference_batch=difference_batch,
            spread=self.clip_at(facts) if self.spread is None else self.spread,
            difference_spread=smoothness if self.difference_spread is None else self.difference_spread,
            noise=multiplier * fresh.sensitivity(facts),
            difference_noise=multiplier * replaced * smoothness / difference_batch,
            clients=self.sites or 1,
        )


class SpiderFigures(SpiderSettings, Plan):
    """Planned figures of those methods, with nothing open but what only an analyst can declare."""

    mu: Mu
    smoothness: Positive
    batch: Count
    difference_batch: Count
    step_size: Positive
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    sites: Count
    start: AnyStart
    radius: Radius

    @abstractmethod
    def starts_again(self, drift: float, queries: int) -> bool:
        """Say whether the next estimate is a fresh one: of public figures and displacements alone.

        Args:
            drift: accumulated squared movement since the last fresh gradient, the move to come included.
            queries: estimates so far.
        """

    @property
    def multiplier(self) -> float:
        """z, the noise over the sensitivity."""
        return self.noise_multiplier(self.mu)

    def fresh(self) -> Gradient:
        """Return the question for a fresh gradient."""
        return Gradient(sigma=self.multiplier, batch=self.batch, clip=self.clip)

    def change(self, distance: float) -> GradientDifference | None:
        """Return the question for a change over a distance; None for none, whose change is exactly 0.

        Its cap is M times the distance, rounded up by a 64th at most: caps of few shapes have few laws of noise, each
        of which takes as long to make as ten answers do.
        """
        part, exponent = frexp(self.smoothness * distance)
        # `part` is at least 1/2, hence rounding to 128ths adds at most a 64th; up, lest it cut.
        cap = ldexp(ceil(part * CAP_PARTS) / CAP_PARTS, exponent)
        if cap == 0:
            return None
        return GradientDifference(sigma=self.multiplier, batch=self.difference_batch, cap=cap, clip=self.clip)

    def bent_by(self, facts: Facts) -> float:
        """Return the smoothness of the mean loss, its ridge included."""
        return self.smoothness + facts.ridge

    def errors(self, facts: Facts) -> Errors:
        """Return what the error of an estimate follows from."""
        return self.errors_with(facts, self.mu, self.smoothness, self.batch, self.difference_batch)

    def questions(self) -> tuple[Gradient | GradientDifference | GradientNorm, ...]:
        """Return a fresh gradient's question and that for a change over distance 1; all have one price."""
        unit = self.change(1.0)
        assert unit is not None, "over a distance"
        return self.fresh(), unit

    def sampling(self, facts: Facts) -> Sampling:
        """Return that batches are disjoint, of two sizes."""
        # A dict keeps the order and drops a size that both questions share.
        sizes = tuple(dict.fromkeys((self.batch, self.difference_batch)))
        return StreamSampling(batches=sizes, chunk=self._chunk(facts), passes=self.epochs)

    def _chunk(self, facts: Facts) -> int:
        """Return the units that one chunk of the schedule stands for."""
        return -(-facts.units // (MOST_CHUNKS // self.epochs))

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the price of each pass, and chunks that cost nothing: with each the state before it is stored."""
        rest = -(-facts.units // self._chunk(facts)) - 1
        one: tuple[Event, ...] = (Gaussian(sigma=self.multiplier), *[NOTHING] * rest)
        return one * self.epochs

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows of these figures, beside themselves."""
        errors = self.errors(facts)
        return {
            "gradient_noise": errors.noise,
            "difference_noise_per_distance": errors.difference_noise,
            "units_at_most": self.epochs * facts.units,
        }

    def passes(self, facts: Facts) -> int:
        """Return four products for each time the records are gone through: a change is that of two gradients."""
        del facts  # the same for every scope
        return 4 * self.epochs


class AtSmallest(Plan):
    """Plans whose bound for several sites is that of the smallest: all of them have its one figure."""

    def federated_bound(self, sites: Sequence[tuple[Plan, Facts]]) -> Bound:
        """Return the bound of the mean of all sites."""
        return self.bound(min((facts for _, facts in sites), key=lambda facts: facts.units))


class DriftFigures(SpiderFigures):
    """RoundFigures of plans whose accumulated squared movement says when a fresh gradient is asked."""

    restart_drift: Positive

    def starts_again(self, drift: float, queries: int) -> bool:
        """Say whether the movement has reached kappa."""
        del queries
        return drift >= self.restart_drift

    def most_restarts(self, facts: Facts) -> int:
        """Return how many fresh gradients there are units for."""
        return max(1, self.epochs * facts.units // self.batch)


class RoundFigures(NamedTuple):
    """RoundFigures of rounds of escape that planning fills, whichever the mode."""

    batch: int
    difference_batch: int
    restart_drift: float
    step_size: float
    error_radius: float
    escape_distance: float
    round_steps: int
    rounds: int


class EscapeSettings(SpiderSettings):
    """Further settings of methods with rounds of escape."""

    rooms: ClassVar[tuple[float, ...]] = (2.0, 1.0)
    """Room that a planned batch leaves, over what is needed at least, tried in this order where a preset is named."""
    descends: ClassVar[bool] = True
    """Whether the method moves on where the gradient is long, and after an escape; else it ends there."""

    mode: Literal["calibrated", "theory", "given"] = Field(
        default="calibrated",
        description="calibrated: ours, by a preset; theory: the theorem's, vacuous below some 1e12 records; given: all "
        "figures are yours",
    )
    preset: Preset | None = Field(
        default=None,
        description="of the calibrated mode; null: strict, or curved where strict figures allow no claim on the way of "
        "a whole descent",
    )
    form: Literal["corrected", "printed"] = Field(default="corrected", description="of the theory's equations")
    round_mode: RoundMode = Field(
        default="fresh",
        description=(
            "the gradient that a round begins with. fresh: a fresh one. rewind and continue follow the print: "
            "their rounds repeat one noise, and certificates are wrong far more often"
        ),
    )
    hessian_smoothness: Positive | None = Field(
        default=None,
        description=(
            "rho: an upper bound of the change of one unit's Hessian; null: the loss's own, where it bends down"
        ),
    )
    start_gap: Positive | None = Field(default=None, description="U, for the theory; null: the loss's own")
    failure: Probability = Field(default=0.05, description="omega, of a whole run")
    missed: Probability = Field(default=0.01, description="omega0: of leaving no saddle in all rounds of a phase")
    margin: Literal["size", "explicit"] = Field(
        default="size",
        description="chi from the error's root mean square (practical), or from a radius that no error passes (proved)",
    )
    error_radius: Positive | None = Field(default=None, description="chi; rounds begin at gradients of at most 3 chi")
    escape_distance: Positive | None = Field(default=None, description="R; by hand in the preset fast")
    round_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = Field(default=None, description="Gamma")
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] | None = Field(default=None, description="Q")

    def with_model(self, model: AnyModel, design: Design) -> Self:
        """Say how fast the loss's Hessians change, where rounds of escape rest on it and it is known."""
        if not self.escapes or isinstance(model, NetworkModel | DescriptionModel):
            return self
        found = hessian_smoothness(encoded_loss(model, design), model.weights, design.norm_bound)
        return fill(self, hessian_smoothness=found)

    @property
    def escapes(self) -> bool:
        """Whether there are rounds."""
        return True

    def tries(self) -> tuple[tuple[Preset, float | None], ...]:
        """Return presets, and what room a planned batch leaves with them, in the order in which they are tried.

        Room is over what is needed at least; None: that, and a descent or as much again.
        """
        presets = PLANNED_PRESETS if self.preset is None else (self.preset,)
        if not self.descends:
            return tuple((preset, room) for preset in presets for room in self.rooms)
        if self.preset is None:
            return tuple((preset, None) for preset in presets)
        return (self.preset, None), *((self.preset, room) for room in self.rooms)

    def most_steps(self, facts: Facts, figures: RoundFigures) -> int:
        """Return how many steps a job has at most: more than there are units for."""
        return 2 * (self.epochs * facts.units // min(figures.batch, figures.difference_batch))

    def with_given(self, figures: RoundFigures) -> RoundFigures:
        """Return figures with those of them that the settings give."""
        own = {name: getattr(self, name) for name in RoundFigures._fields}
        return figures._replace(**{name: value for name, value in own.items() if value is not None})


def bends_down(facts: Facts, smoothness: float) -> float:
    """Return how far down the mean loss may bend at all, so that a gamma_star from there on excludes nothing.

    Of a convex loss it is the smoothness, which shows the value of its rounds.
    """
    return max(0.0, facts.weak_convexity - facts.ridge) if facts.weak_convexity else smoothness + facts.ridge
