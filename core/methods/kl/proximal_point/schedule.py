"""Schedule of the proximal-point method, as figures known before a record is read.

Round t = 1..T minimises F + w_t |. - c|^2 about the point c of the round before, by T_in - 1 projected noisy gradient
steps. `weight` is w_t, and Lt is F's weak convexity, enlarged where it is too small for the method. (Weak convexity
holds with any larger constant. A convex function has Lt = 0, with which no round is strongly convex.)

Two prox weights. `paper`: w_t = Lt throughout, as printed. Its proof assumes of the returned point a fact that holds
for the round's exact minimiser only. The two differ by an excess of order x^2, x = gamma L0 sqrt(T d log)/(n
sqrt(rho)). At kappa = 2 that is the method's target; above 2 it is far larger than the target x^kappa. `scheduled`: w_t
grows as the target Phi falls, so that the round's own error falls with it,

    w = max(Lt, Phi^((2-kappa)/kappa) / (2 gamma^2)),   m = 2 gamma^2 w Phi^((kappa-2)/kappa),
    Phi <- max(Phi (1 - 1/(16 m)), floor),              floor = (sqrt(32 a) x)^kappa.

Why a round contracts. Let r bound the excess at c, P be that at the exact minimiser of the round, D its distance to c.
Strong convexity of modulus w gives P + 1.5 w D^2 <= r, and the KL condition there 2 w D >= P^(1/kappa)/gamma. The
returned point's excess is at most P + w D^2 + tau. If P > r/2 then w D^2 >= r/(4 m), so P + w D^2 <= r (1 - 1/(8 m)).
Otherwise w D^2 <= r/4 gives at most 3 r/4, and w D^2 > r/4 at most r - r/8. tau = a L0^2 d T log/(w n^2 rho) equals 2 a
x^2 r^(1 - 2/kappa)/m. Wherever r is at least the floor, tau is at most r/(16 m), so a round leaves r (1 - 1/(16 m)). At
kappa = 2 both weights are one and the same. a is the inner solver's constant, which the paper does not give.

Noise is given as multipliers of the true sensitivity, the same under both adjacencies.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithms 2 and 4, theorems 8 and 29, lemmas 9 and 10;
corrected: whole numbers of rounds and steps, each round at its own share of budget and failure probability, and the
scheduled weight. `practical` rounds and steps and `exact` noise are not the paper's.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, exp, inf, log, log1p, sqrt
from typing import Final, Literal

from core.methods.kl.condition import KlCondition

ProxWeight = Literal["scheduled", "paper"]
RoundSchedule = Literal["proved", "practical"]
Solver = Literal["printed", "practical"]
Noise = Literal["printed", "exact"]
Regime = Literal["target_above_F0", "trivial_regime", "budget_too_small", "too_many_rounds"]

MOST_ROUNDS: Final = 50_000
"""Schedules beyond this are not made: a loop has a bound."""
CONSTANT: Final = 16.0
"""a, of the inner solver's lemma, as large as a theory's constants usually are."""
PRACTICAL_CONTRACTION: Final = 0.6
"""Of the target, a practical round."""
ROUNDING: Final = 1e-9
"""Largest rounding error by which a quotient may exceed a whole number and still count as it."""
INFLATION: Final = 1 + 1e-12
"""Of noise whose charges would add up to the budget exactly: rounded sums then stay below it."""
LARGEST_EXPONENT: Final = 700.0


@dataclass(frozen=True)
class ProximalConstants:
    """Public facts about the records, the loss and the start."""

    units: int
    """n."""
    dimension: int
    """d."""
    lipschitz: float
    """L0, the clip of one unit's gradient."""
    condition: KlCondition
    """Of the mean loss, its ridge included; kappa at least 2."""
    weak_convexity: float
    """Of the mean loss, its ridge included; 0 for convex ones."""
    start_gap: float
    """F0."""
    ridge: float = 0.0
    """lambda of (lambda/2) |theta|^2, a part of the mean loss that no record has."""
    start_norm: float = 0.0
    """|w0|."""

    @property
    def convexity(self) -> float:
        """Lt as the method takes it: at least F0^((2-kappa)/kappa)/(2 gamma^2), which no theorem minds."""
        return max(self.weak_convexity, self.least_weight(self.start_gap))

    def least_weight(self, target: float) -> float:
        """Return target^((2-kappa)/kappa)/(2 gamma^2), a weight whose rounds err little enough for the target."""
        # By logarithms: kappa may be 1000, and powers of figures would overflow.
        return _exp(self.condition.flatness * log(target) - log(2) - 2 * log(self.condition.gamma))

    def resolution(self, rho: float, rounds: int = 1) -> float:
        """Return gamma L0 sqrt(rounds d)/(n sqrt(rho)), x without its logarithm."""
        root = log(rounds * self.dimension / rho) / 2
        return _exp(log(self.condition.gamma) + log(self.lipschitz) + root - log(self.units))

    def halvings(self, rho: float) -> float:
        """Return log F0 + kappa log(n sqrt(rho)/(gamma L0 sqrt(d))); 0 or less where F0 is already below the target."""
        return log(self.start_gap) - self.condition.kappa * log(self.resolution(rho))


@dataclass(frozen=True)
class ScheduleInput:
    """Request for a schedule; nothing open."""

    rho: float
    """The whole budget, in zero-concentrated terms."""
    failure: float
    """beta, the probability that the certificate is false."""
    weight: ProxWeight
    round_schedule: RoundSchedule
    """`proved`: as many rounds as the theorem takes; `practical`: a few."""
    solver: Solver
    """Number of steps of a round."""
    constant: float
    """a."""


@dataclass(frozen=True)
class ProximalRound:
    """One inner problem and the ball its iterates stay in."""

    target: float
    """Phi once the round is over."""
    weight: float
    """w_t of the term w_t |theta - c|^2."""
    pull: float
    """2 w_t + ridge: the public part of the gradient is this times the distance from the ball's centre."""
    shrinkage: float
    """2 w_t/pull, times c: the ball's centre, 1 without a ridge."""
    radius: float
    """L0/pull: the exact minimiser is in that ball, for there the public part is as long as the records' gradient."""


@dataclass(frozen=True)
class ProximalSchedule:
    """All rounds, or why there is none."""

    regime: Regime | None
    """Why no round is worth making; None: all is well."""
    rounds: tuple[ProximalRound, ...]
    floor: float | None
    """No round aims below this."""
    wanted: int
    """T_in, one more than the gradients of a round, before anything limits it."""
    reach: float
    """No iterate is ever farther from the start: the sum of the radii, without a ridge at most T L0/(2 Lt)."""

    @property
    def target(self) -> float | None:
        """The last round's."""
        return self.rounds[-1].target if self.rounds else None


def printed_rounds(ground: ProximalConstants, rho: float) -> float:
    """Return (1 + 32 F0^((kappa-2)/kappa) gamma^2 Lt) halvings, for Lt as it is, before it is rounded up."""
    stretch = ground.weak_convexity / (2 * ground.least_weight(ground.start_gap))
    return (1 + 32 * stretch) * ground.halvings(rho)


def practical_rounds(ground: ProximalConstants, rho: float) -> float:
    """Return 3 halvings + 3: enough where each round takes four tenths off, as they do and nobody has proved."""
    return 3 * ground.halvings(rho) + 3


def scheduled_rounds(ground: ProximalConstants, rho: float, failure: float, constant: float) -> int:
    """Return the least T with T >= 16 max(1, 2 gamma^2 Lt F0^((kappa-2)/kappa)) log(F0/floor), floor growing with T.

    After so many rounds, each multiplying the target by at most 1 - 1/(16 m), it is down to the floor. At most
    MOST_ROUNDS + 1, which says that it is more.
    """
    slowness = 16 * max(1.0, ground.weak_convexity / ground.least_weight(ground.start_gap))
    low, high = 1, MOST_ROUNDS + 1
    # The floor grows with T and the wanted number falls, hence bisection finds the least T.
    while low < high:
        middle = (low + high) // 2
        fall = log(ground.start_gap) - log(scheduled_floor(ground, rho, failure, constant, middle))
        if middle >= slowness * fall - ROUNDING:
            high = middle
        else:
            low = middle + 1
    return low


def scheduled_floor(ground: ProximalConstants, rho: float, failure: float, constant: float, rounds: int) -> float:
    """Return (sqrt(32 a) x)^kappa, which T rounds can certify; x with the logarithm of the inner solver's lemma."""
    logarithm = solver_logarithm(ground.units, ground.dimension, failure / rounds)
    widening = (log(32) + log(constant) + log(logarithm)) / 2
    return _exp(ground.condition.kappa * (widening + log(ground.resolution(rho, rounds))))


def solver_logarithm(units: int, dimension: int, failure: float) -> float:
    """Return log(n^2 log(2/beta)^2/(d beta)) of the inner solver's lemma, 1 at least."""
    return max(1.0, log(units**2 * log(2 / failure) ** 2 / (dimension * failure)))


def solver_error(ground: ProximalConstants, weight: float, rho: float, failure: float, constant: float) -> float:
    """Return a L0^2 d log/(w n^2 rho), what an inner solve at its own rho and beta may miss its least value by."""
    logarithm = solver_logarithm(ground.units, ground.dimension, failure)
    return constant * ground.lipschitz**2 * ground.dimension * logarithm / (weight * ground.units**2 * rho)


def printed_steps(units: int, dimension: int, rho: float, failure: float) -> int:
    """Return T_in = n^2 rho log(2/beta)^2/d, rounded up: one more than a round's gradients."""
    return _whole(units**2 * rho * log(2 / failure) ** 2 / dimension)


def practical_steps(units: int, dimension: int, rho: float) -> int:
    """Return T_in = 4 n^2 rho/d, rounded up; not the paper's, with the same rate in expectation."""
    return _whole(4 * units**2 * rho / dimension)


def printed_sigma(steps: int, rho: float, replaced: float) -> float:
    """Return the printed noise, 2 L0 sqrt(T_in/rho)/n a coordinate, over the sensitivity `replaced` L0/n.

    T_in - 1 answers cost rho (replaced/2)^2 (T_in - 1)/(2 T_in), less than half of what they may.
    """
    return 2 * sqrt(steps / rho) / replaced


def exact_sigma(steps: int, rho: float) -> float:
    """Return the multiplier with which T_in - 1 answers cost rho; not the paper's, and less than printed."""
    return sqrt((steps - 1) / (2 * rho)) * INFLATION


# Plan, bound, fit and certificate each ask for the same schedule, of up to 50,000 rounds.
@lru_cache(maxsize=64)
def proximal_schedule(ground: ProximalConstants, plan: ScheduleInput, rounds: int | None = None) -> ProximalSchedule:
    """Return all rounds.

    Args:
        ground: public.
        plan: the request.
        rounds: T, where the analyst has chosen it; None: by the rate of decrease.
    """
    if not _certifies(plan) and ground.halvings(plan.rho) <= 0:
        return ProximalSchedule("target_above_F0", (), None, 1, 0.0)
    count = rounds or _count(ground, plan)
    floor, wanted = _floor(ground, plan, count), _steps(ground, plan, count)
    regime = _regime(ground, plan, count, floor, wanted)
    if regime is not None:
        return ProximalSchedule(regime, (), floor, wanted, 0.0)
    # With the paper's weight the floor may lie above the start; targets must not rise to it.
    made = _rounds(ground, plan, count, min(floor, ground.start_gap))
    return ProximalSchedule(None, made, floor, wanted, _reach(ground, made))


def _certifies(plan: ScheduleInput) -> bool:
    """Say whether the floor is that of the theorem, which knows by itself where it is no better than the start."""
    return plan.weight == "scheduled" and plan.round_schedule == "proved"


def _regime(ground: ProximalConstants, plan: ScheduleInput, rounds: int, floor: float, steps: int) -> Regime | None:
    """Return why no round is worth making."""
    if plan.weight == "scheduled" and floor >= ground.start_gap:
        return "trivial_regime"
    if rounds > MOST_ROUNDS:
        return "too_many_rounds"
    # T_in counts the centre: 1 leaves no gradient.
    return "budget_too_small" if steps == 1 else None


def _steps(ground: ProximalConstants, plan: ScheduleInput, rounds: int) -> int:
    """Return T_in."""
    if plan.solver == "practical":
        return practical_steps(ground.units, ground.dimension, plan.rho / rounds)
    return printed_steps(ground.units, ground.dimension, plan.rho / rounds, plan.failure / rounds)


def _count(ground: ProximalConstants, plan: ScheduleInput) -> int:
    """Return T."""
    if plan.round_schedule == "practical":
        return _whole(practical_rounds(ground, plan.rho))
    if plan.weight == "scheduled":
        return scheduled_rounds(ground, plan.rho, plan.failure, plan.constant)
    return _whole(printed_rounds(replace(ground, weak_convexity=ground.convexity), plan.rho))


def _floor(ground: ProximalConstants, plan: ScheduleInput, rounds: int) -> float:
    """Return the least target: of the theorem, or (2 x)^kappa without its constants and logarithm."""
    if plan.round_schedule == "proved":
        return scheduled_floor(ground, plan.rho, plan.failure, plan.constant, rounds)
    return _exp(ground.condition.kappa * log(2 * ground.resolution(plan.rho, rounds)))


def _rounds(ground: ProximalConstants, plan: ScheduleInput, count: int, floor: float) -> tuple[ProximalRound, ...]:
    """Return the rounds, targets falling to the floor."""
    height, rounds = log(ground.start_gap), []
    for _ in range(count):
        scheduled = max(ground.convexity, ground.least_weight(exp(height)))
        weight = scheduled if plan.weight == "scheduled" else ground.convexity
        slowness = max(1.0, weight / ground.least_weight(exp(height)))
        # log1p: a slow round's fall is far below 1, where log(1 - x) loses it.
        fall = log(PRACTICAL_CONTRACTION) if plan.round_schedule == "practical" else log1p(-1 / (16 * slowness))
        height = max(height + fall, log(floor))
        pull = 2 * weight + ground.ridge
        rounds.append(ProximalRound(exp(height), weight, pull, 2 * weight / pull, ground.lipschitz / pull))
    return tuple(rounds)


def _reach(ground: ProximalConstants, rounds: tuple[ProximalRound, ...]) -> float:
    """Return the farthest that any iterate can be from the start, for every ball's centre is part of the way back."""
    farthest = 0.0
    for one in rounds:
        centre = one.shrinkage * farthest + (1 - one.shrinkage) * ground.start_norm
        farthest = max(farthest, centre + one.radius)
    return farthest


def _whole(value: float) -> int:
    """Return a positive number of rounds or steps, rounded up; a value beyond all floats is above any bound."""
    return max(1, ceil(value - ROUNDING)) if value < inf else MOST_ROUNDS + 1


def _exp(exponent: float) -> float:
    """Return e to a power, a positive float whatever the power."""
    return exp(max(-LARGEST_EXPONENT, min(exponent, LARGEST_EXPONENT)))
