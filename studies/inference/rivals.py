"""E9, E13 and E14: weights against clipping, sufficient statistics and objective perturbation (figures 12 to 17).

Objective perturbation cannot be asked for through an oracle: it solves a problem to convergence on bare records. It
stands here, on synthetic records, for comparison only.
"""

from collections.abc import Callable
from functools import partial
from math import log, sqrt

import numpy as np
import torch
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.special import expit
from torch import Tensor

from core.losses.losses import Clip, Huber, Logistic, Loss, Mallows, Squared, Weights
from core.losses.losses_torch import record_weights
from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatisticsPlan
from core.privacy.conversions import gdp_epsilon
from studies.inference.charts import Axis, Series, line_chart
from studies.inference.designs import D3, Records, coins, uniform, with_intercept
from studies.inference.results import Result, Row
from studies.inference.studies import FAR, KNOWN, MALLOWS, blocks, descent, study

TRUTH = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)
SCALE = 0.75
REPETITIONS = {True: 400, False: 150}
FARTHEST, NODES = 9.0, 700
"""Of Gauss-Legendre quadrature on [-9, 9] and [0, 9]; twice as many nodes change the limit by less than 1e-6."""
Draw = Callable[[SimulationGenerator, int, int], Records]


def estimates(
    draw: Draw, units: int, repetitions: int, seed: int, loss: Loss, weights: Weights, run: tuple[int, float, float]
) -> Tensor:
    """Return noisy gradient descent's estimates, shape (R, p); `run` is K, step size and mu."""
    parts = []
    for replicates, generator in blocks(repetitions, 4 * units, seed):
        oracle = study(draw(generator, replicates, units), loss, weights).oracle(generator.seed + 500)
        parts.append(iterate(descent(*run), oracle)[0].theta)
    return torch.cat(parts)


def mean_error(theta: Tensor) -> float:
    """Return the mean distance from the truth."""
    return float(torch.linalg.vector_norm(theta - TRUTH, dim=-1).mean())


def d3_linear(generator: SimulationGenerator, replicates: int, units: int) -> Records:
    """Draw D3 with normal errors."""
    return D3.linear(generator, replicates, units)


def d3_logistic(generator: SimulationGenerator, replicates: int, units: int) -> Records:
    """Draw D3 with coins."""
    return D3.logistic(generator, replicates, units)


MEDIANS = {
    ("linear", "Mallows"): (
        (0.94, 0.77, 1.14),
        (0.965, 0.85, 1.06),
        (1.0, 0.93, 1.07),
        (0.997, 0.96, 1.04),
        (1.003, 0.97, 1.025),
    ),
    ("linear", "clip"): (
        (0.96, 0.82, 1.08),
        (0.955, 0.87, 1.04),
        (1.0, 0.945, 1.045),
        (0.998, 0.96, 1.03),
        (0.997, 0.97, 1.02),
    ),
    ("logistic", "Mallows"): (
        (0.459, 0.11, 0.82),
        (0.451, 0.29, 0.63),
        (0.496, 0.37, 0.62),
        (0.485, 0.41, 0.56),
        (0.488, 0.44, 0.53),
    ),
    ("logistic", "clip"): (
        (0.616, 0.35, 0.85),
        (0.561, 0.43, 0.71),
        (0.636, 0.55, 0.72),
        (0.621, 0.55, 0.68),
        (0.635, 0.59, 0.68),
    ),
}
"""Median and quartiles: of the paper's figure for linear, of reference simulations for logistic regression."""
STEPS_BY_UNITS = {250: 50, 500: 50, 1000: 75, 2000: 75, 4000: 100}
CLIPPED_LIMIT = (1.806, 1.274, -1.278, 0.636)


def mallows_or_clip(*, full: bool) -> Result:  # noqa: ARG001 - one length is enough; all experiments have one face
    """E9: the effect of clipping on a logistic model."""
    repetitions = 400
    rows: list[Row] = []
    drawn: dict[str, list[float]] = {}
    for (model, name), seen in MEDIANS.items():
        loss: Loss = KNOWN if model == "linear" else Logistic()
        weights: Weights = MALLOWS if name == "Mallows" else Clip(bound=1.0)
        draw, which = (d3_linear, 1) if model == "linear" else (d3_logistic, 3)
        size = 1 / (2 * 1.345) - 0.001 if model == "linear" else 1.0
        for (units, steps), (middle, low, high) in zip(STEPS_BY_UNITS.items(), seen, strict=True):
            theta = estimates(draw, units, repetitions, 9, loss, weights, (steps, size, 0.5))[:, which]
            quartiles = theta.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
            drawn.setdefault(f"{model}, {name}", []).append(quartiles[1])
            # The standard error of a median is 1.25 deviations over sqrt(R), a quartile's 1.36; the range is 1.35 wide.
            slack = 4 * 1.3 * (high - low) / 1.35 / sqrt(repetitions) + 0.005
            rows.append(Row(f"{model}, {name}, n = {units}: median", middle, quartiles[1], slack))
            rows.append(
                Row(f"{model}, {name}, n = {units}: quartile range", high - low, quartiles[2] - quartiles[0], slack)
            )
    rows += [
        Row(f"limit of clipped logistic regression, beta_{number}", at, ours, 0.006)
        for number, (at, ours) in enumerate(zip(CLIPPED_LIMIT, clipped_limit().tolist(), strict=True), start=1)
    ]
    sizes = list(STEPS_BY_UNITS)
    series = [Series(name, sizes, values, marks=True) for name, values in drawn.items()]
    axes = Axis("n", 250, 4000, logarithmic=True), Axis("median", 0.3, 1.1)
    return Result(
        "E9",
        "Mallows weights against clipping (figures 12 and 13)",
        f"D3, mu = .5 for the estimate, K = 50 to 100, {repetitions} repetitions; beta_2 of linear (true 1), beta_4 of "
        "logistic regression (true .5).",
        tuple(rows),
        "Clipping each gradient changes the equation that is solved: its logistic limit is .63944, not .5: two "
        "integrals, done to 1e-6; the reference's is 2,000,000 draws, whose standard error is .0016. Mallows weights "
        "approach .5 from below, for K is too small at small n.",
        {"medians": line_chart("E9: medians of the estimates", *axes, series, (0.5, 1.0))},
    )


def clipped_limit(bound: float = 1.0) -> Tensor:
    """Return where logistic regression with clipped gradients goes on D3 as records grow, shape (4,), to 1e-6.

    Its features are isotropic, so the slopes keep the truth's direction: the limit is an intercept a and a length b
    along it. The mean clipped gradient vanishes where two integrals do. They run over the features' part u along the
    direction, standard normal, and over their length t across it, of density t exp(-t^2/2).
    """
    intercept, *slopes = D3.truth
    length = sqrt(sum(slope**2 for slope in slopes))
    u, over_u = leggauss(NODES)
    t, over_t = leggauss(NODES)
    u, t = FARTHEST * u[:, None], FARTHEST * (t[None, :] + 1) / 2
    density = over_u[:, None] * np.exp(-(u**2) / 2) * over_t[None, :] * t * np.exp(-(t**2) / 2)
    norm, chance = np.sqrt(1 + u**2 + t**2), expit(intercept + length * u)

    def mean_gradient(place: NDArray[np.float64]) -> list[float]:
        one = expit(place[0] + place[1] * u)
        pulled = np.minimum(one, bound / norm) * (1 - chance) - np.minimum(1 - one, bound / norm) * chance
        return [float((density * pulled).sum()), float((density * pulled * u).sum())]

    a, b = root(mean_gradient, [intercept, length], tol=1e-12).x
    return torch.tensor([a, *(b * slope / length for slope in slopes)], dtype=torch.float64)


def clipped_far_along(generator: SimulationGenerator, units: int) -> Tensor:
    """Return where exact steps with clipped gradients lead on so many records of D3, shape (4,)."""
    made = study(D3.logistic(generator, units), Logistic(), Clip(bound=1.0))
    estimate, _ = iterate(descent(150, 4.0, 1.0, start=D3.truth), made.oracle(1, noiseless=True))
    return estimate.theta


def bounded_rows(generator: SimulationGenerator, replicates: int, units: int, largest: float, *, flat: bool) -> Tensor:
    """Return features (1, z), z uniform on a cube or normal, shortened to a norm of `largest`."""
    z = 4 * uniform(generator, replicates, units, 3) - 2 if flat else generator.normal(replicates, units, 3)
    norms = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return with_intercept(z * (largest / norms).clamp(max=1.0))


def bounded_linear(generator: SimulationGenerator, replicates: int, units: int) -> Records:
    """Draw figure 14's records: |x| <= 2 and errors within their central 95 %."""
    x = bounded_rows(generator, replicates, units, sqrt(3), flat=True)
    errors = SCALE * torch.special.ndtri(0.025 + 0.95 * uniform(generator, replicates, units))
    return x, x @ TRUTH + errors


def unbounded_linear(generator: SimulationGenerator, replicates: int, units: int) -> Records:
    """Draw figure 15's records: normal features without an intercept."""
    x = generator.normal(replicates, units, 4)
    return x, x @ TRUTH + SCALE * generator.normal(replicates, units)


X_MOST, Y_MOST = 2.0, 1 + sqrt(2) + sqrt(0.5) + SCALE * 1.959964


def statistics(draw: Draw, units: int, repetitions: int, seed: int, *, rescaled: bool) -> Tensor:
    """Return estimates from noised X'X and X'y; rescaled by the records themselves as figure 15 does, not privately."""
    x_most, y_most = (1.0, 1.0) if rescaled else (X_MOST, Y_MOST)
    settings = SufficientStatisticsPlan(
        mu=1.0, curvature_share=0.5, clip=x_most * y_most, eigenvalue_floor=1e-3, radius=FAR
    )
    parts = []
    for replicates, generator in blocks(repetitions, 4 * units, seed):
        x, y = draw(generator, replicates, units)
        if rescaled:
            norms = torch.linalg.vector_norm(x, dim=-1).amax(-1)
            largest = torch.maximum(norms, y.abs().amax(-1))
            x, y = x / largest[:, None, None], y / largest[:, None]
        made = study((x, y), Squared(), Clip(bound=x_most * y_most), bounds=(x_most, y_most))
        parts.append(iterate(settings, made.oracle(generator.seed + 500))[0].theta)
    return torch.cat(parts)


def least_squares(draw: Draw, units: int, repetitions: int, seed: int) -> Tensor:
    """Return ordinary least squares."""
    parts = []
    for replicates, generator in blocks(repetitions, 4 * units, seed):
        x, y = draw(generator, replicates, units)
        parts.append(torch.linalg.solve(x.mT @ x, (x.mT @ y.unsqueeze(-1)).squeeze(-1)))
    return torch.cat(parts)


UNITS = (250, 500, 1000, 2000, 4000, 8000)
LINEAR_SEEN = {
    ("bounded", "robust"): (0.116, 0.075, 0.049, 0.032, 0.022, 0.016),
    ("bounded", "clip"): (0.114, 0.074, 0.048, 0.031, 0.021, 0.015),
    ("bounded", "sufficient statistics"): (0.259, 0.136, 0.073, 0.042, 0.025, 0.016),
    ("bounded", "least squares, non-private"): (0.083, 0.061, 0.042, 0.028, 0.020, 0.015),
    ("unbounded", "robust"): (0.208, 0.116, 0.070, 0.043, 0.027, 0.018),
    ("unbounded", "clip"): (0.216, 0.120, 0.070, 0.043, 0.026, 0.018),
    ("unbounded", "sufficient statistics"): (6.5, 0.64, 0.31, 0.164, 0.088, 0.052),
}
FIRST_STABLE = 1000
"""Below so many units floors decide what sufficient statistics say where features have no bound."""


def linear_rivals(*, full: bool, units: tuple[int, ...] = UNITS) -> Result:
    """E13: linear benchmarks."""
    repetitions = REPETITIONS[full]
    rows: list[Row] = []
    drawn: dict[str, list[float]] = {}
    huber, weights = Huber(scale=SCALE), Mallows(bound=2.0, power=1)
    for (scenario, name), seen in LINEAR_SEEN.items():
        draw = bounded_linear if scenario == "bounded" else unbounded_linear
        longest = 4.0 if scenario == "bounded" else 1.0
        for count in units:
            steps = round(6 * log(count))
            run = {
                "robust": partial(estimates, loss=huber, weights=weights, run=(steps, SCALE / longest, 1.0)),
                "clip": partial(estimates, loss=Squared(), weights=Clip(bound=2.69), run=(steps, SCALE / longest, 1.0)),
                "sufficient statistics": partial(statistics, rescaled=scenario == "unbounded"),
            }.get(name, least_squares)
            error = mean_error(run(draw, count, repetitions, 13))
            drawn.setdefault(f"{scenario}: {name}", []).append(error)
            at = seen[UNITS.index(count)]
            shaky = scenario == "unbounded" and name == "sufficient statistics" and count < FIRST_STABLE
            rows.append(Row(f"{scenario}, {name}, n = {count}", at, error, None if shaky else 0.15 * at))
    series = [
        Series(name.replace("sufficient statistics", "SSP").replace("least squares, non-private", "OLS"), units, values)
        for name, values in drawn.items()
    ]
    axes = Axis("n", units[0], units[-1], logarithmic=True), Axis("mean error", 0.01, 2, logarithmic=True)
    return Result(
        "E13",
        "Linear benchmarks (figures 14 and 15)",
        f"mu = 1, beta = (1, -1, .5, -.5), K = 6 log n, {repetitions} repetitions; mean distance from the truth. "
        "Robust: Huber, scale .75, linear Mallows weights at 2; clip: squared loss, gradients clipped at 2.69.",
        tuple(rows),
        "Sufficient statistics have the noise that replacing a record needs, sqrt(2) times the printed one, and an "
        "eigenvalue floor, which the paper does not have: where features have no bound it keeps errors at small n "
        "from exploding. Rescaling by the largest row, as figure 15 does, is not private.",
        {"errors": line_chart("E13: mean error, mu = 1", *axes, series)},
    )


def objective_perturbation(
    records: Records, weights: Tensor, zeta: float, bent: float, mu: float, generator: SimulationGenerator
) -> Tensor:
    """Return the minimiser of logistic loss + ridge + random linear term, shape (R, p), by exact Newton steps.

    Source: Kifer, Smith and Thakurta (2012), algorithm 1: b ~ N(0, zeta^2 (8 log(2/delta) + 4 eps)/eps^2), ridge
    2 lambda/eps, both over n; (eps, delta) from mu with delta = 1/(2 n). Their neighbours gain or lose a record.
    """
    x, y = records
    replicates, units, size = x.shape
    delta = 1 / (2 * units)
    epsilon = gdp_epsilon(mu, delta)
    tilt = generator.normal(replicates, size) * zeta * sqrt(8 * log(2 / delta) + 4 * epsilon) / epsilon
    ridge = 2 * bent / epsilon
    theta = x.new_zeros(replicates, size)
    for _ in range(30):
        chance = torch.sigmoid((x @ theta.unsqueeze(-1)).squeeze(-1))
        slope = (x.mT @ ((chance - y) * weights).unsqueeze(-1)).squeeze(-1) + ridge * theta + tilt
        hessian = x.mT @ (x * (chance * (1 - chance) * weights).unsqueeze(-1)) + ridge * torch.eye(size)
        move = torch.linalg.solve(hessian, slope)
        length = torch.linalg.vector_norm(move, dim=-1, keepdim=True)
        theta = theta - move * (2.0 / length).clamp(max=1.0)
    return theta


def perturbed(draw: Draw, units: int, repetitions: int, seed: int, longest: float | None, mu: float = 0.5) -> Tensor:
    """Return objective perturbation's estimates; without a bound on |x|, with squared Mallows weights."""
    parts = []
    for replicates, generator in blocks(repetitions, 4 * units, seed):
        records = draw(generator, replicates, units)
        if longest is None:
            norms = torch.linalg.vector_norm(records[0], dim=-1)
            parts.append(objective_perturbation(records, record_weights(norms, MALLOWS), sqrt(2), 0.5, mu, generator))
        else:
            ones = torch.ones_like(records[1])
            parts.append(objective_perturbation(records, ones, longest, longest**2 / 4, mu, generator))
    return torch.cat(parts)


def logistic_rows(longest: float | None, generator: SimulationGenerator, replicates: int, units: int) -> Records:
    """Draw figures 16's and 17's records: (1, z), z normal and shortened so that |x| <= longest."""
    largest = torch.inf if longest is None else sqrt(longest**2 - 1)
    x = bounded_rows(generator, replicates, units, largest, flat=False)
    return x, coins(generator, torch.sigmoid(x @ TRUTH))


LOGISTIC_UNITS = (500, 1000, 2000, 4000, 8000)
LOGISTIC_SEEN = {
    ("|x| <= 2", "robust"): (0.453, 0.258, 0.160, 0.103, 0.067),
    ("|x| <= 2", "objective perturbation"): (0.442, 0.256, 0.149, 0.096, 0.065),
    ("|x| <= 4", "robust, step 1/3"): (0.428, 0.316, 0.259, 0.218, 0.186),
    ("|x| <= 4", "robust, step 4/9"): (0.422, 0.257, 0.189, 0.142, 0.110),
    ("|x| <= 4", "robust, step 1"): (0.602, 0.316, 0.182, 0.108, 0.068),
    ("|x| <= 4", "objective perturbation"): (0.648, 0.348, 0.183, 0.106, 0.065),
    ("unbounded", "robust"): (0.495, 0.278, 0.171, 0.103, 0.067),
    ("unbounded", "clip"): (0.749, 0.419, 0.269, 0.200, 0.181),
    ("unbounded", "objective perturbation"): (0.553, 0.280, 0.164, 0.100, 0.067),
}


def logistic_rivals(*, full: bool, units: tuple[int, ...] = LOGISTIC_UNITS) -> Result:
    """E14: logistic benchmarks."""
    repetitions = REPETITIONS[full]
    rows: list[Row] = []
    drawn: dict[str, list[float]] = {}
    cases: dict[str, tuple[float | None, float]] = {
        "|x| <= 2": (2.0, 2.0),
        "|x| <= 4": (4.0, 3.0),
        "unbounded": (None, sqrt(2)),
    }
    sizes = {"robust, step 1/3": 1 / 3, "robust, step 4/9": 4 / 9, "robust, step 1": 1.0, "clip": 4.0}
    for (scenario, name), seen in LOGISTIC_SEEN.items():
        longest, bound = cases[scenario]
        draw = partial(logistic_rows, longest)
        size = sizes.get(name, 2.0 if longest is None else 1.0)
        weights: Weights = Clip(bound=bound) if name == "clip" else Mallows(bound=bound, power=1)
        for count in units:
            if name == "objective perturbation":
                theta = perturbed(draw, count, repetitions, 14, longest)
            else:
                run = (round(6 * log(count)), size, 0.5)
                theta = estimates(draw, count, repetitions, 14, Logistic(), weights, run)
            drawn.setdefault(f"{scenario}: {name}", []).append(mean_error(theta))
            at = seen[LOGISTIC_UNITS.index(count)]
            rows.append(Row(f"{scenario}, {name}, n = {count}", at, drawn[f"{scenario}: {name}"][-1], 0.15 * at))
    series = [
        Series(name.replace("objective perturbation", "objective"), units, values) for name, values in drawn.items()
    ]
    axes = Axis("n", units[0], units[-1], logarithmic=True), Axis("mean error", 0.05, 1, logarithmic=True)
    return Result(
        "E14",
        "Logistic benchmarks (figures 16 and 17)",
        f"mu = .5, beta = (1, -1, .5, -.5), K = 6 log n, {repetitions} repetitions; mean distance from the truth. "
        "Linear Mallows weights at 2, 3 and sqrt(2); clip at sqrt(2); objective perturbation with delta = 1/(2 n).",
        tuple(rows),
        "Objective perturbation is proved for neighbours that gain or lose a record, so the comparison favours it. "
        "That gradient methods beat it at |x| <= 4 holds up to n = 1000; it depends on step and delta, which are not "
        "printed.",
        {"errors": line_chart("E14: mean error, mu = .5", *axes, series)},
    )
