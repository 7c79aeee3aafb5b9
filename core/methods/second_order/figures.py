"""The settings of methods on SPIDER's estimates and what follows from them once they are filled; letters as in `gauss`.

All answers of a pass are about disjoint batches, so that a pass has one price, however many answers there are.
"""

from collections.abc import Sequence
from math import ceil, frexp, ldexp, log, log1p, sqrt
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

from pydantic import Field

from core.methods.base import Plan, Request
from core.methods.second_order.escape import rounds_for
from core.methods.second_order.estimation import Errors
from core.methods.second_order.presets import THETA, gamma_star, round_chance
from core.methods.second_order.theory import reserved
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

MOST_EPOCHS: Final = 32
MOST_STEPS: Final = 1_000_000
MOST_CHUNKS: Final = 97
CAP_PARTS: Final = 128
"""Of the next power of two, that caps are rounded up to."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Preset = Literal["strict", "curved", "fast"]
PLANNED_PRESETS: Final[tuple[Preset, ...]] = ("strict", "curved")
RoundMode = Literal["fresh", "rewind", "continue"]
V = TypeVar("V")


def known(value: V | None) -> V:
    """Return a figure that planning has filled."""
    assert value is not None, "plan first"
    return value


class SpiderFigures(Plan):
    """Figures of every method whose gradients are fresh ones, or noised changes of the last one; all public."""

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

    @property
    def multiplier(self) -> float:
        """z, the noise over the sensitivity: that of all passes together is worth `mu`."""
        return sqrt(self.epochs) / known(self.mu)

    def fresh(self) -> Gradient:
        """Return the question for a fresh gradient."""
        return Gradient(sigma=self.multiplier, batch=known(self.batch), clip=self.clip)

    def change(self, distance: float) -> GradientDifference | None:
        """Return the question for a change over a distance; None for none, whose change is exactly 0.

        Its cap is M times the distance, rounded up by a 64th at most: caps of few shapes have few laws of noise, each
        of which takes as long to make as ten answers do.
        """
        part, exponent = frexp(known(self.smoothness) * distance)
        # `part` is at least 1/2, hence rounding to 128ths adds at most a 64th; up, lest it cut.
        cap = ldexp(ceil(part * CAP_PARTS) / CAP_PARTS, exponent)
        if cap == 0:
            return None
        return GradientDifference(sigma=self.multiplier, batch=known(self.difference_batch), cap=cap, clip=self.clip)

    def clip_at(self, facts: Facts) -> float:
        """Return G."""
        return facts.gradient_bound if self.clip is None else self.clip

    def bent_by(self, facts: Facts) -> float:
        """Return the smoothness of the mean loss, its ridge included."""
        return known(self.smoothness) + facts.ridge

    def errors(self, facts: Facts) -> Errors:
        """Return what the error of an estimate follows from, the batches filled."""
        unit = self.change(1.0)
        assert unit is not None, "over a distance"
        # Over a short distance a unit's change is at most M times it; the other bound, 2 G, only cuts long ones.
        replaced = 2 if facts.adjacency is Adjacency.REPLACE_ONE else 1
        return Errors(
            dimension=facts.dimension,
            batch=known(self.batch),
            difference_batch=known(self.difference_batch),
            spread=self.clip_at(facts) if self.spread is None else self.spread,
            difference_spread=known(self.smoothness) if self.difference_spread is None else self.difference_spread,
            noise=self.multiplier * self.fresh().sensitivity(facts),
            difference_noise=self.multiplier * replaced * known(self.smoothness) / known(self.difference_batch),
            clients=self.sites or 1,
        )

    @property
    def every(self) -> int | None:
        """Estimates from one fresh gradient to the next; None: the drift decides."""
        return None

    def questions(self) -> tuple[Gradient | GradientDifference | GradientNorm, ...]:
        """Return a fresh gradient's question and that for a change over distance 1; all have one price."""
        unit = self.change(1.0)
        assert unit is not None, "over a distance"
        return self.fresh(), unit

    def sampling(self, facts: Facts) -> Sampling:
        """Return that batches are disjoint, of two sizes."""
        # A dict keeps the order and drops a size that both questions share.
        sizes = tuple(dict.fromkeys((known(self.batch), known(self.difference_batch))))
        return StreamSampling(batches=sizes, chunk=self._chunk(facts), passes=self.epochs)

    def _chunk(self, facts: Facts) -> int:
        """Return the units that one chunk of the schedule stands for."""
        return -(-facts.units // (MOST_CHUNKS // self.epochs))

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the price of each pass, and chunks that cost nothing: with each the state before it is stored."""
        rest = -(-facts.units // self._chunk(facts)) - 1
        one: tuple[Event, ...] = (Gaussian(sigma=self.multiplier), *[NOTHING] * rest)
        return one * self.epochs

    def passes(self, facts: Facts) -> int:
        """Return four products for each time the records are gone through: a change is that of two gradients."""
        del facts  # the same for every scope
        return 4 * self.epochs

    def _most_restarts(self, facts: Facts) -> int:
        return max(1, self.epochs * facts.units // known(self.batch))


class EscapeFigures(SpiderFigures):
    """Further figures of methods with rounds of escape."""

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
    rounds: Annotated[int, Field(ge=1, le=100_000)] | None = Field(default=None, description="Q")

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

    def sharpest(self) -> float:
        """Return gamma_star."""
        return gamma_star(known(self.error_radius), known(self.hessian_smoothness))

    def bends_down(self, facts: Facts) -> float:
        """Return how far down the mean loss may bend at all, so that a gamma_star from there on excludes nothing.

        Of a convex loss it is the smoothness, which shows the value of its rounds.
        """
        return max(0.0, facts.weak_convexity - facts.ridge) if facts.weak_convexity else self.bent_by(facts)

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

    def descent(self, facts: Facts) -> tuple[int, int]:
        """Return about how many steps a descent takes, and how many of them ask for a fresh gradient at most.

        See `sizing`; a gradient G long becomes 3 chi, and at least half as long, twice: a saddle lies on the way.
        """
        eta, chi = known(self.step_size), known(self.error_radius)
        shortened = -log1p(-min(1 / 2, eta * self.sharpest()))
        steps = 2 * max(1, ceil(log(max(2.0, self.clip_at(facts) / (3 * chi))) / shortened))
        gap = facts.start_gap if self.start_gap is None else self.start_gap
        if gap is None:
            return steps, steps
        return steps, int(min(steps, 1 + 2 * eta * gap / known(self.restart_drift)))

    def reserve(self, facts: Facts, room: float | None) -> float:
        """Return the units that a planned run leaves: a multiple of the needed ones, or that and a descent."""
        if room is not None:
            return room * self.needed()[0]
        return self.needed()[0] + max(self.needed()[0], self.descent_units(facts))

    def descent_units(self, facts: Facts) -> int:
        """Return what a descent may read, at worst."""
        steps, fresh = self.descent(facts)
        return fresh * known(self.batch) + (steps - fresh) * known(self.difference_batch)

    def chance(self, facts: Facts) -> float:
        """Return p_round: of leaving an alpha-strict saddle in one round by the noise of one fresh gradient alone.

        [derived] Where the distance is planned, the Hessian may change by a quarter of gamma_star on the way.
        """
        kept = 1.0 if self.preset == "fast" else 1 - THETA
        return round_chance(
            self.errors(facts),
            known(self.step_size),
            known(self.escape_distance),
            known(self.round_steps),
            kept * self.sharpest(),
        )

    def phase_units(self) -> int:
        """Return what a phase without an escape reads at most: every certificate takes as many units."""
        return known(self.rounds) * (known(self.batch) + (known(self.round_steps) - 1) * known(self.difference_batch))

    def needed(self) -> tuple[float, str]:
        """Return the units without which a job is refused, and what they are for, with the figures."""
        batch, steps, changes = known(self.batch), known(self.round_steps), known(self.difference_batch)
        units = reserved(known(self.rounds), batch, steps, changes)
        return units, (
            f"a certificate must be affordable twice, 2 Q (b1 + Gamma b2) = 2 * {self.rounds} * ({batch} + {steps} * "
            f"{changes}) = {units:.0f} units"
        )

    def most_steps(self, facts: Facts) -> int:
        """Return how many steps a job has at most, batches filled: more than there are units for."""
        return 2 * (self.epochs * facts.units // min(known(self.batch), known(self.difference_batch)))

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows of these filled settings, beside themselves; alpha is worth nothing above G."""
        errors = self.errors(facts)
        shown: dict[str, float | int | None] = {
            "gradient_noise": errors.noise,
            "difference_noise_per_distance": errors.difference_noise,
            "units_at_most": self.epochs * facts.units,
        }
        if not self.escapes:
            return shown
        drift = known(self.restart_drift)
        chance = self.chance(facts)
        down = {"units_of_a_descent": self.descent_units(facts)} if self.descends else {}
        return (
            shown
            | down
            | {
                "error": errors.size(drift),
                "error_limit": errors.radius(drift, self._most_restarts(facts), self.failure),
                "alpha": 4 * known(self.error_radius),
                "alpha_trivial": self.clip_at(facts),
                "gamma_star": self.sharpest(),
                "gamma_star_trivial": self.bends_down(facts),
                "chance_of_escape_per_round": chance,
                "rounds_for_missed": rounds_for(self.missed, chance) if chance > 0 else None,
                "units_of_a_certificate": self.phase_units(),
            }
        )
