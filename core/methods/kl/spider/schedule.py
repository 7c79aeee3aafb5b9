"""KL-Spider's rounds: every figure is public arithmetic of declared constants, so all is known before a record is read.

Round k aims at an excess of at most Phi_k. It asks one gradient, then takes at most T_k steps of one fixed length along
a noised estimate. Noised differences update the estimate. The round ends early where the estimate is so short that the
KL condition certifies Phi_k. Noise is given as multipliers of the true sensitivity, which are the same under both
adjacencies. `replaced`, the paper's missing factor, is 2 where a unit changes into any other and 1 where it is zeroed.
It scales the targets that this noise allows.

Two forms. `proved`: the paper's own, run at the budget 32 rho/(17 replaced^2), since at the printed values K gradients
and the differences cost up to 17/32 replaced^2 times it. Rounds and steps are whole numbers: T_k is rounded up, with
exactly T_k updates (printed: one more, and one unused difference). The failure probability covers twice as many
estimates. At kappa = 2 a round is one gradient and no difference, so rho may be spent on gradients alone. `calibrated`,
not the paper's: the same argument with exact quantiles of the noise and the budget divided so that the worst estimate
is least noised.

Two smoothness constants, not the paper's either: steps follow the mean loss's, caps of differences the larger one of a
single unit's loss; with `ratio` 1 they are one. A cap `ratio` times as long is paid for by a budget that shrinks from
32/17 to 32/(16 + ratio^2), or by a division of it that gives differences more; estimates err no more than before.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 1, theorem 4, lemmas 5, 6, 19 and 20, corrected.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, repeat
from math import ceil, exp, fsum, log, log1p, sqrt
from typing import Final, Literal

from core.methods.kl.concentration import noise_radius
from core.methods.kl.condition import KlCondition
from core.privacy.events import Event, Gaussian
from core.queries.gradients import Gradient, GradientDifference

Variant = Literal["proved", "calibrated"]
Regime = Literal["target_above_F0", "trivial_regime", "too_many_rounds"]

MOST_ROUNDS: Final = 50_000
"""Schedules beyond this are not made: a loop has a bound."""
ROUNDING: Final = 1e-9
"""Largest rounding error by which a quotient may exceed a whole number and still count as it."""
INFLATION: Final = 1 - 1e-12
"""Of a budget that equal charges would add up to exactly: rounded sums then stay below it."""
LARGEST_EXPONENT: Final = 700.0


@dataclass(frozen=True)
class SpiderConstants:
    """Public facts about the records, the loss and the start."""

    units: int
    """n."""
    dimension: int
    """d."""
    replaced: int
    """2 where a unit changes into any other, 1 where it is zeroed: a clipped mean moves by replaced * lipschitz / n."""
    lipschitz: float
    """L0, the clip of one unit's gradient."""
    smoothness: float
    """L1 of the mean loss, its ridge included: sets steps and rounds."""
    ratio: float
    """One unit's smoothness over that: sets caps."""
    condition: KlCondition
    """Of the mean loss; kappa at most 2."""
    gap: float
    """F0, cut at (gamma L0)^kappa, which the condition implies as a bound."""

    @property
    def start_gap(self) -> float:
        """min(F0, (gamma L0)^kappa)."""
        return min(self.gap, self.condition.gap_at(self.lipschitz))

    @property
    def stretch(self) -> float:
        """gamma^2 L1 F0^-e with e = (2 - kappa)/kappa: a condition number, at least 1/2 wherever the gap is attained.

        Smooth losses have |grad F|^2 <= 2 L1 (F - F*); with the condition at an excess of F0 that is at least 1/2.
        """
        return self.condition.gamma**2 * self.smoothness * exp(-self.condition.flatness * log(self.start_gap))

    @property
    def consistent(self) -> bool:
        """Whether some loss can have all of these constants with its gap attained."""
        return self.stretch >= 0.5 * (1 - ROUNDING)

    def steps_to(self, target: float) -> int:
        """T = max(1, ceil((F0/target)^e)): one at kappa = 2, whatever rounding does."""
        exponent = self.condition.flatness * (log(self.start_gap) - log(target))
        return max(1, ceil(exp(min(exponent, LARGEST_EXPONENT)) - ROUNDING))


@dataclass(frozen=True)
class SpiderRound:
    """One gradient, then at most `steps` steps, each but the last followed by a difference."""

    target: float
    """Phi_k, the excess that the round certifies."""
    steps: int
    """T_k."""
    threshold: float
    """An estimate shorter than this ends the round: 7/8 of Phi_k^(1/kappa)/gamma."""
    step: float
    """The exact length of each step, Phi_k^(1/kappa)/(4 gamma L1)."""
    cap: float
    """Largest change of one unit's gradient over a step."""
    gradient_sigma: float
    """Noise of the gradient over its sensitivity; one for all rounds."""
    difference_sigma: float | None
    """Noise of a difference over its sensitivity; None where there is no difference, for one step needs none."""


@dataclass(frozen=True)
class SpiderSchedule:
    """All rounds, or why there is none."""

    regime: Regime | None
    """Why no round is certified; None: all is well."""
    rounds: tuple[SpiderRound, ...]
    """Empty in such a regime, unless the rounds were forced."""
    wanted: int
    """K, the number of rounds that the target asks for, made or not."""
    failure: float | None
    """beta', of one estimate."""
    floor: float | None
    """Value that the last round would certify; F0 or more in the trivial regime."""

    @property
    def certified(self) -> float | None:
        """The excess that the last round certifies; None where there is no guarantee."""
        return self.rounds[-1].target if self.rounds and self.regime is None else None

    @property
    def answers(self) -> int:
        """The most answers that may be asked."""
        return sum(one.steps for one in self.rounds)

    @property
    def travel(self) -> float:
        """B: no iterate is ever farther from the start, for every step's length is known."""
        return fsum(one.steps * one.step for one in self.rounds)

    def events(self) -> list[Event]:
        """Return what each answer may cost, in the order that they are asked in the worst case."""
        return list(chain.from_iterable(_events(one) for one in self.rounds))

    def extremes(self, clip: float | None) -> tuple[Gradient | GradientDifference, ...]:
        """Return the gradient's question, and the differences' with most and with least noise and cap."""
        if not self.rounds:
            return ()
        pairs = [(one.difference_sigma, one.cap) for one in self.rounds if one.difference_sigma is not None]
        ends = {(end(sigma for sigma, _ in pairs), end(cap for _, cap in pairs)) for end in (max, min) if pairs}
        differences = [GradientDifference(sigma=sigma, cap=cap, clip=clip) for sigma, cap in sorted(ends, reverse=True)]
        return (Gradient(sigma=self.rounds[0].gradient_sigma, clip=clip), *differences)

    def rho(self) -> float:
        """Return what all answers together may cost, in zero-concentrated terms."""
        costs = chain.from_iterable(
            chain([one.gradient_sigma], repeat(one.difference_sigma or 0.0, one.steps - 1)) for one in self.rounds
        )
        # fsum rounds once; a plain sum of tens of thousands of charges would drift.
        return fsum(1 / (2 * sigma**2) for sigma in costs)


@lru_cache(maxsize=8)  # one may hold tens of thousands of rounds
def spider_schedule(
    ground: SpiderConstants,
    rho: float,
    failure: float,
    variant: Variant,
    force: bool,  # noqa: FBT001 - a setting's own name
) -> SpiderSchedule:
    """Return the rounds that together cost at most rho.

    Args:
        ground: public.
        rho: the budget, in zero-concentrated terms.
        failure: beta, the probability that the certificate is false.
        variant: `proved` or `calibrated`.
        force: make rounds where they certify no more than the start does.
    """
    make = proved if variant == "proved" else calibrated
    budget = proved_budget(ground, rho) if variant == "proved" else rho
    schedule = make(ground, budget, failure)
    return schedule if force or schedule.regime is None else replace(schedule, rounds=())


def proved_budget(ground: SpiderConstants, rho: float) -> float:
    """Return the budget that the paper's formulas are run at, so that what they really cost is at most rho.

    K gradients cost replaced^2/2 of it and differences less than (replaced ratio)^2/32.
    """
    if ground.condition.flatness == 0:
        return 2 * rho / ground.replaced**2 * INFLATION
    return 32 * rho / ((16 + ground.ratio**2) * ground.replaced**2)


def resolution(ground: SpiderConstants, budget: float) -> float:
    """Return x0 = gamma L0 sqrt(d)/(n sqrt(budget)), whose kappa-th power is what privacy costs at best."""
    gamma, root = ground.condition.gamma, sqrt(ground.dimension / budget)
    return gamma * ground.lipschitz * root / ground.units


def rounds_needed(ground: SpiderConstants, budget: float) -> float:
    """Return (1 + 64 stretch) log(F0/x0^kappa), the number of rounds of the proved form before it is rounded up."""
    halvings = log(ground.start_gap) - ground.condition.kappa * log(resolution(ground, budget))
    return (1 + 64 * ground.stretch) * halvings


def proved(ground: SpiderConstants, budget: float, failure: float) -> SpiderSchedule:
    """Return the paper's rounds, corrected, for its formulas run at a budget; see `proved_budget`.

    In a trivial regime the rounds are there, aim at F0 and certify nothing.
    """
    kappa, gap = ground.condition.kappa, ground.start_gap
    needed = rounds_needed(ground, budget)
    if needed <= 0:
        return SpiderSchedule("target_above_F0", (), 0, None, None)
    count = max(1, ceil(needed))
    noise = resolution(ground, budget) * sqrt(count)
    # exp(shrunk) is 1/T at the target noise^kappa: all estimates of a round share its beta.
    shrunk = min(0.0, (2 - kappa) * (log(noise) - log(gap) / kappa))
    each = failure / (2 * count) * exp(shrunk)
    floor = _power(32 * noise * sqrt(-log(each)), kappa)
    gradient = sqrt(count / budget) / ground.replaced

    def difference(steps: int) -> float:
        return 4 * sqrt(steps * count / budget) / (ground.replaced * ground.ratio)

    if count > MOST_ROUNDS:
        return SpiderSchedule("too_many_rounds", (), count, each, floor)
    contraction = log1p(1 / (64 * ground.stretch))
    plain = _rounds(ground, count, contraction, floor, gradient)
    rounds = tuple(_with_noise(one, difference(one.steps)) for one in plain)
    return SpiderSchedule("trivial_regime" if floor >= gap else None, rounds, count, each, floor)


def calibrated(ground: SpiderConstants, rho: float, failure: float) -> SpiderSchedule:
    """Return the rounds of the calibrated form: the same argument and guarantee with its constants worked out.

    An estimate's error is normal. Under the best division of rho, its variance is at most (1 + ratio/4)^2 times that of
    a gradient with all of rho. Over K Tmax estimates none is longer than `noise_radius` at beta/(K Tmax) times that. A
    step lowers the loss by 13/256 Phi_k^(2/kappa)/(gamma^2 L1), where the paper keeps 4/256.
    """
    gap, contraction = ground.start_gap, log1p(13 / (256 * ground.stretch))
    count = _least_count(ground, rho, failure)
    if count is None:
        return SpiderSchedule("too_many_rounds", (), MOST_ROUNDS, None, None)
    each, floor = _reach(ground, rho, failure, count)
    # At kappa = 2 there is no difference, and gradients get all of rho.
    shares = ground.ratio if ground.condition.flatness else 0.0
    spendable = rho * INFLATION
    # Gradients take 4/(4 + shares) of the budget, differences the rest.
    gradient = sqrt(count * (4 + shares) / (8 * spendable))

    def difference(steps: int) -> float:
        return sqrt(count * (steps - 1) * (4 + shares) / (2 * shares * spendable))

    plain = _rounds(ground, count, contraction, floor, gradient)
    rounds = tuple(one if one.steps == 1 else _with_noise(one, difference(one.steps)) for one in plain)
    return SpiderSchedule("trivial_regime" if floor >= gap else None, rounds, count, each, floor)


def _least_count(ground: SpiderConstants, rho: float, failure: float) -> int | None:
    """Return the first K whose contraction reaches what its noise certifies; None: beyond MOST_ROUNDS.

    The floor is not quite monotone in K, for Tmax is a whole number, so the first K is looked for one by one. With the
    largest Tmax, that of K = 1, it is monotone and larger: no K before the first that reaches that one does.
    """
    steps = _most_steps(ground, rho, failure, 1)
    low, high = 1, MOST_ROUNDS + 1
    while low < high:
        middle = (low + high) // 2
        if _reached(ground, middle, _floor(ground, rho, failure / (middle * steps), middle)):
            high = middle
        else:
            low = middle + 1
    within = range(low, MOST_ROUNDS + 1)
    return next((count for count in within if _reached(ground, count, _reach(ground, rho, failure, count)[1])), None)


def _reached(ground: SpiderConstants, count: int, floor: float) -> bool:
    """Say whether so many rounds come down to a floor, or it is above the start."""
    return log(ground.start_gap) - count * log1p(13 / (256 * ground.stretch)) <= log(floor)


def _reach(ground: SpiderConstants, rho: float, failure: float, count: int) -> tuple[float, float]:
    """Return beta' and the excess that K rounds certify."""
    each = failure / (count * _most_steps(ground, rho, failure, count))
    return each, _floor(ground, rho, each, count)


def _most_steps(ground: SpiderConstants, rho: float, failure: float, count: int) -> int:
    """Return Tmax, no less than any round's steps: that of a floor below the one that counts."""
    return ground.steps_to(min(_floor(ground, rho, failure / count, count), ground.start_gap))


def _floor(ground: SpiderConstants, rho: float, each: float, count: int) -> float:
    """Return (8 gamma times the longest error of an estimate)^kappa."""
    worst = 1 + ground.ratio / 4 if ground.condition.flatness else 1.0
    deviation = worst * ground.replaced * ground.lipschitz / ground.units * sqrt(count / (2 * rho))
    return _power(8 * ground.condition.gamma * noise_radius(ground.dimension, each) * deviation, ground.condition.kappa)


def _rounds(
    ground: SpiderConstants, count: int, contraction: float, floor: float, gradient_sigma: float
) -> list[SpiderRound]:
    """Return the rounds, without their differences' noise: targets fall by exp(-contraction) down to the floor."""
    gamma, kappa = ground.condition.gamma, ground.condition.kappa
    lowest = min(log(floor), log(ground.start_gap))
    height, rounds = log(ground.start_gap), []
    for _ in range(count):
        height = max(height - contraction, lowest)
        slope = exp(height / kappa) / gamma
        step = slope / (4 * ground.smoothness)
        rounds.append(
            SpiderRound(
                target=exp(height),
                steps=ground.steps_to(exp(height)),
                threshold=7 / 8 * slope,
                step=step,
                cap=ground.ratio * ground.smoothness * step,
                gradient_sigma=gradient_sigma,
                difference_sigma=None,
            )
        )
    return rounds


def _with_noise(one: SpiderRound, sigma: float) -> SpiderRound:
    """Return a round with its differences' noise, where it has differences."""
    return replace(one, difference_sigma=sigma if one.steps > 1 else None)


def _events(one: SpiderRound) -> list[Event]:
    """Return what a round's answers cost, all of them."""
    gradient: list[Event] = [Gaussian(sigma=one.gradient_sigma)]
    if one.difference_sigma is None:
        return gradient
    return gradient + [Gaussian(sigma=one.difference_sigma)] * (one.steps - 1)


def _power(base: float, exponent: float) -> float:
    """Return base^exponent by way of logarithms, as large as a float can be at most."""
    return exp(min(exponent * log(base), LARGEST_EXPONENT))
