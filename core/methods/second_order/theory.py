"""The paper's own parameters, solved as a fixed point; the result names every rule that had to step in.

Logarithms are of base 2 throughout: only then is Q large enough, and 2^mu a growth. Two forms:

`printed`. Equations 5 and 6 as they stand.

`corrected`. [derived] The guaranteed decrease has iota to the fourth power, and with it chi its second condition. The
value of mu follows from the conditions themselves instead of their closed form, whose growth condition (52, 53) lacks a
factor.

Step size, rounds, distances and noise depend on the error psi of the estimate, psi on the batches, these on the step
size. Damped iteration in logarithms finds the fixed point. Below some 10^12 records it is one that nobody can use, and
this says so, with the figures; it never rounds one up to be of use.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, equations 5 and 6, theorems 1 to 3, lemmas 6 and 7.
"""

from dataclasses import dataclass, field
from math import ceil, isfinite, log, log2, sqrt
from typing import Final, Literal

from core.methods.second_order.rates import Batches, SecondOrderConstants, theorem_batches
from core.privacy.facts import Frozen

Form = Literal["printed", "corrected"]

MOST_ITERATIONS: Final = 3000
DAMPING: Final = 0.1
SETTLED: Final = 1e-6
TINY: Final = 1e-300


class NoFixedPoint(Exception):
    """The damped iteration has not settled, or a figure is no number any more."""


class Theory(Frozen):
    """The parameters of the theorem for one problem: real numbers, except for what is counted."""

    error_radius: float
    """chi."""
    alpha: float
    gamma_star: float
    step_size: float
    """eta."""
    round_steps: int
    """Gamma."""
    rounds: int
    """Q."""
    escape_distance: float
    """R."""
    decrease: float
    """Phi, by how much an escape lowers the loss, at least."""
    log_factor: float
    """mu."""
    error: float
    """psi."""
    noise: float
    """r, on each coordinate."""
    batch: float
    difference_batch: float
    drift: float
    steps: float
    """T, which bounds the number of steps."""
    form: Form
    fired: tuple[str, ...]
    """Rules that stepped in where a formula left its range."""
    infeasible: tuple[str, ...]
    """Why nobody can run this, with the figures; empty where somebody can."""


@dataclass(frozen=True)
class Constants:
    """Values that the theorem leaves open: absolute constants of its proof, and the probability of failure."""

    failure: float = 0.05
    """omega, of the whole run."""
    scale: float = 1.0
    """s; lemma 20 needs (80 c)^2, 6400 for c = 1."""
    spare: float = 1.0
    """C."""
    form: Form = "corrected"
    log_dimension: bool = True
    """Whether the factors log d of lemma 7 are kept; the paper's error is a bound up to them."""


@dataclass
class _Rules:
    """Notes which rules stepped in."""

    fired: dict[str, None] = field(default_factory=dict)

    def log(self, argument: float, name: str, least: float = 0.0) -> float:
        """Return the base-2 logarithm of an argument, at least `least`; arguments below 1 count as 1."""
        value = log2(max(argument, 1.0))
        if argument < 1 or value < least:
            self.fired[f"{name}: its logarithm's argument is {argument:.4g}"] = None
        return max(least, value)

    def count(self, value: float, name: str) -> int:
        """Return a number of times, rounded up, at least 1."""
        if value < 1:
            self.fired[f"{name}: {value:.4g} is counted as 1"] = None
        return max(1, ceil(value))


@dataclass(frozen=True)
class _Point:
    """Everything that follows from psi and mu."""

    alpha: float
    radius: float
    step: float
    iota: float
    distance: float
    decrease: float
    length: float
    rounds: float
    steps: float
    batches: Batches
    sampling: float
    noise: float
    error: float


def theory_params(
    ground: SecondOrderConstants, epsilon: float, multiplier: float, constants: Constants = Constants()
) -> Theory:
    """Return the parameters of theorems 1 to 3, and whether anybody can use them.

    Args:
        ground: the constants of the loss and the sizes of the records.
        epsilon: the privacy target; by it theorem 2 sets its batches.
        multiplier: z, the noise over the l2 sensitivity of what is noised: that of changing one unit into another.
        constants: the values that the theorem leaves open.

    Raises:
        ValueError: the failure is not in (0, 1), epsilon is not positive, or there is no noise: none escapes then.
        NoFixedPoint: the iteration does not settle.
    """
    if not 0 < constants.failure < 1:
        raise ValueError(f"the failure probability is {constants.failure:g}, and must lie between 0 and 1")
    if epsilon <= 0:
        raise ValueError(f"epsilon is {epsilon:g}, and must be positive")
    if multiplier <= 0:
        raise ValueError("there is no noise: Gaussian noise on every coordinate is part of the algorithm")
    error, factor = ground.lipschitz, 1.0
    for _ in range(MOST_ITERATIONS):
        # Rules that step in on the way are dropped: they say nothing of the fixed point.
        point = _at(ground, epsilon, multiplier, constants, error, factor, _Rules())
        new = _log_factor(ground, constants, point, _Rules())
        settled = abs(point.error / error - 1) < SETTLED and abs(new / factor - 1) < SETTLED
        error = error ** (1 - DAMPING) * point.error**DAMPING
        factor = factor ** (1 - DAMPING) * new**DAMPING
        if not (isfinite(error) and isfinite(factor) and error > 0):
            raise NoFixedPoint(f"the error of the estimate becomes {error:.4g}")
        if settled:
            return _told(ground, epsilon, multiplier, constants, error, factor)
    raise NoFixedPoint(f"psi and mu have not settled in {MOST_ITERATIONS} iterations: {error:.4g}, {factor:.4g}")


def _at(
    ground: SecondOrderConstants,
    epsilon: float,
    multiplier: float,
    constants: Constants,
    error: float,
    factor: float,
    rules: _Rules,
) -> _Point:
    """Return what follows from psi and mu, the next psi with it."""
    s, c, rho, m, u = (
        constants.scale, constants.spare, ground.hessian_smoothness, ground.smoothness, ground.start_gap
    )  # fmt: skip
    printed = constants.form == "printed"
    iota = s * factor
    radius = 4 * sqrt(c) * s * factor**2 * error
    if not printed:
        radius = max(radius, sqrt(c) * s**1.5 * factor**2.5 * error)
    alpha = 4 * radius
    step = sqrt(rho * alpha) / (m**2 * iota**2)
    decrease = s / (8 * iota ** (3 if printed else 4)) * sqrt(alpha**3 / rho)
    saddles = 8 * iota**3 * u / s * sqrt(rho / radius**3) if printed else u / decrease
    rounds = 26 / 5 * rules.log(2 * saddles / constants.failure, "rounds")
    length = factor / (step * sqrt(rho * alpha))
    if printed:
        steps = u * s**2 * factor**4 / (2 * radius**2 * step) * rounds
    else:
        steps = u * s**3 * factor**5 / (2 * radius**2 * step) * rounds + rounds * length
    batches = theorem_batches(ground, epsilon, step, radius)
    # A batch may fall to 0 in floating point, and it divides.
    b1, b2, clients = max(batches.batch, TINY), max(batches.difference_batch, TINY), ground.clients
    depth = 1.0
    if constants.log_dimension:
        depth = rules.log(ground.dimension, "log d", least=1.0)
    g = ground.lipschitz
    sampling = depth * sqrt((g**2 / b1 + m**2 * batches.drift / b2) / clients)
    # 2: the multiplier is over the effect of changing one unit into another.
    noise = multiplier * 2 * sqrt((g**2 / b1**2 + batches.drift * m**2 / b2**2) / clients)
    return _Point(
        alpha=alpha,
        radius=radius,
        step=step,
        iota=iota,
        distance=sqrt(alpha / rho) / iota**1.5,
        decrease=decrease,
        length=length,
        rounds=rounds,
        steps=steps,
        batches=batches,
        sampling=sampling,
        noise=noise,
        error=sqrt(sampling**2 + noise**2 * ground.dimension),
    )


def _log_factor(ground: SecondOrderConstants, constants: Constants, at: _Point, rules: _Rules) -> float:
    """Return the next mu: the largest of its four terms."""
    s, c, rho = constants.scale, constants.spare, ground.hessian_smoothness
    noises: float = (c * rules.log(4 * at.steps / constants.failure, "mu, third term")) ** 0.25 / (2**0.75 * sqrt(s))
    if constants.form == "corrected":
        # iota >= ln(27 d Gamma log(R/(eta r))), and 2^mu >= 40 sqrt(2 gamma_star) R/(sqrt(eta) r).
        inner = rules.log(at.distance / (at.step * at.noise), "mu, first term", least=1.0)
        first = max(0.0, log(27 * ground.dimension * max(at.length, 1.0) * inner)) / s
        growth = 40 * sqrt(2 * sqrt(rho * at.alpha)) * at.distance / (sqrt(at.step) * at.noise)
        return max(first, rules.log(growth, "mu, second term"), noises, 1.0)
    root: float = c**0.25
    inner = rules.log(4 * root / (s * at.step * at.noise) * sqrt(at.error / rho), "mu, first term", least=1.0)
    outer = 9 * ground.dimension * inner / (root * at.step * sqrt(s * rho * at.error))
    first = rules.log(outer, "mu, first term") / s
    growth = 160 * sqrt(2) * root / (s * sqrt(at.step * at.noise)) * sqrt(at.error / rho)
    return max(first, rules.log(growth, "mu, second term"), noises, 1.0)


def _told(
    ground: SecondOrderConstants, epsilon: float, multiplier: float, constants: Constants, error: float, factor: float
) -> Theory:
    """Return the parameters at the fixed point, with the rules that fired there and what is wrong with them."""
    rules = _Rules()
    at = _at(ground, epsilon, multiplier, constants, error, factor, rules)
    # Called for its notes alone: the rules that fire at the fixed point.
    _log_factor(ground, constants, at, rules)
    rounds, length = rules.count(at.rounds, "rounds"), rules.count(at.length, "round_steps")
    sharpest = sqrt(ground.hessian_smoothness * at.alpha)
    if ground.smoothness >= sharpest:
        assert at.step <= 1 / ground.smoothness * (1 + 1e-12), "sqrt(rho alpha) <= M makes the step short enough"
    found = Theory(
        error_radius=at.radius,
        alpha=at.alpha,
        gamma_star=sharpest,
        step_size=at.step,
        round_steps=length,
        rounds=rounds,
        escape_distance=at.distance,
        decrease=at.decrease,
        log_factor=factor,
        error=error,
        noise=at.noise,
        batch=at.batches.batch,
        difference_batch=at.batches.difference_batch,
        drift=at.batches.drift,
        steps=at.steps,
        form=constants.form,
        fired=tuple(rules.fired),
        infeasible=(),
    )
    return found.model_copy(update={"infeasible": tuple(_wrong_with(found, ground))})


def _wrong_with(found: Theory, ground: SecondOrderConstants) -> list[str]:
    """Return why nobody can run these parameters, with the figures."""
    wrong = []
    if found.gamma_star > ground.smoothness:
        wrong.append(
            f"alpha = {found.alpha:.4g} is too large for (M, rho) = ({ground.smoothness:.4g}, "
            f"{ground.hessian_smoothness:.4g}): sqrt(rho alpha) = {found.gamma_star:.4g} is above M"
        )
    if found.alpha > ground.lipschitz:
        wrong.append(
            f"alpha = {found.alpha:.4g} is above G = {ground.lipschitz:.4g}, which every gradient satisfies untrained"
        )
    for name, size in (("b1", found.batch), ("b2", found.difference_batch)):
        if size < 1:
            wrong.append(f"{name} = {size:.4g} is less than one record")
        if size > ground.units:
            wrong.append(f"{name} = {size:.4g} is more than the {ground.units:.4g} records there are")
    reserve = reserved(found.rounds, found.batch, found.round_steps, found.difference_batch)
    if reserve > ground.units:
        wrong.append(
            f"a certificate takes 2 Q (b1 + Gamma b2) = {reserve:.4g} records, and there are {ground.units:.4g}"
        )
    return wrong


def reserved(rounds: int, batch: float, round_steps: int, difference_batch: float) -> float:
    """Return 2 Q (b1 + Gamma b2): twice what a phase without an escape reads, which a run must be able to pay."""
    return 2 * rounds * (batch + round_steps * difference_batch)
