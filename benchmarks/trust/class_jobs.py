"""One job of a multinomial cell: a fresh data set, the real planner, a real oracle, and what it should find.

Also the same equations without noise, in NumPy from the formulas, independent of problems and questions.
"""

from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from benchmarks.trust.class_cells import ClassCell
from benchmarks.trust.class_shapes import POPULATIONS, ClassData, class_population, draw_classes
from benchmarks.trust.declarations import declared_features
from benchmarks.trust.jobs import TERMS, Job, errors_of, trained
from core.data.columns import CategoryColumn, Column
from core.inference.checks import Learned
from core.inference.estimate import Estimate
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.facts import Adjacency

Array = NDArray[np.float64]
DEFAULT: Final[dict[str, Any]] = {"kind": "whitened_newton"}
ITERATIONS: Final = 60
CLOSE: Final = 1e-9
LONGEST: Final = 2.0
FARTHEST: Final = 60.0


def class_columns(data: ClassData, classes: int) -> tuple[Column, ...]:
    """Return what an owner would declare."""
    values = tuple(f"c{level}" for level in range(classes))
    return (*declared_features(data.bounds, data.two_valued), CategoryColumn(name="y", type="category", values=values))


def planned_classes(cell: ClassCell, data: ClassData, optimizer: dict[str, Any] | None = None) -> PlannedJob:
    """Return a cell's job with nothing open, as the service plans it."""
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": {"kind": "multinomial", "target": "y"},
            "optimizer": optimizer or DEFAULT,
            "privacy": {"mu": Decimal(str(cell.mu))},
        }
    )
    columns = class_columns(data, cell.classes)
    return plan_job(spec, columns=columns, units=cell.units, adjacency=cell.adjacency, terms=TERMS)


def encoded_classes(plan: PlannedJob, data: ClassData) -> tuple[Array, Array]:
    """Return features and codes as trainers see them."""
    lower, upper = np.array(data.bounds).T
    values = np.clip(data.features, lower, upper)
    given = {
        f"x{place + 1}": values[:, place].astype(int) if two else values[:, place]
        for place, two in enumerate(data.two_valued)
    }
    features = np.empty((len(values), plan.design.dimension))
    plan.design.encode_columns(given, features)
    return features, data.target.astype(float)


def run_classes(cell: ClassCell, seed: tuple[int, ...]) -> Job:
    """Draw a data set, run its job at a real oracle, and solve the same equation without noise; as `jobs.run`."""
    draws = np.random.default_rng(seed)
    data = draw_classes(draws, cell.shape, cell.units, cell.features - 1, cell.classes, cell.structure, wide=cell.wide)
    plan = planned_classes(cell, data)
    records = encoded_classes(plan, data)
    return compared_classes(plan, data, records, trained(plan, *records), _everybody(cell))


@lru_cache(maxsize=2)
def _everybody(cell: ClassCell) -> tuple[Array, Array] | None:
    """Return a cell's population, encoded, where its own estimate is the truth."""
    if cell.shape not in POPULATIONS:
        return None
    whole = class_population(cell.shape)
    return encoded_classes(planned_classes(cell, whole), whole)


def compared_classes(
    plan: PlannedJob,
    data: ClassData,
    records: tuple[Array, Array],
    estimate: Estimate,
    everybody: tuple[Array, Array] | None = None,
) -> Job:
    """Put an estimate beside the truth and beside what the same records say without noise; as `jobs.compared`."""
    assert estimate.checks is not None, "the method checks itself"
    assert estimate.sandwich is not None, "and has a covariance"
    settings, learned = plan.spec.optimizer, estimate.checks.learned
    assert isinstance(settings, WhitenedNewtonPlan), "as planned"
    one, start = plan.design.to_declared()
    blocks = len(estimate.theta) // len(one)
    to_declared = np.asarray(np.kron(np.eye(blocks), one), dtype=np.float64)
    offset = np.tile(start, blocks)
    theta = estimate.theta.numpy()
    own, own_covariance, _ = class_minimum(learned, records, theta)
    _, plain_covariance, hessian = class_minimum(learned, records, theta, weighted=False)
    truth = data.truth
    if everybody is not None:
        truth = to_declared @ class_minimum(learned, everybody, own)[0] + offset
    withheld = np.zeros(len(theta), dtype=np.bool_)
    withheld[list(estimate.checks.withheld)] = True
    covariance, sampling = estimate.sandwich.covariance.numpy(), estimate.sandwich.plain.numpy()
    return Job(
        estimate=to_declared @ theta + offset,
        error=errors_of(to_declared, covariance),
        noise=errors_of(to_declared, covariance - sampling),
        flagged=withheld,
        truth=truth,
        nonprivate=to_declared @ own + offset,
        nonprivate_error=errors_of(to_declared, own_covariance),
        plain_error=errors_of(to_declared, plain_covariance),
        foreseen=np.array(settings.learned_errors(plan.facts, learned, theta, one)),
        rival=errors_of(to_declared, plain_covariance + _objective_perturbation(plan, settings, hessian)),
        words=(*estimate.checks.job, *(word for words in estimate.checks.coefficients for word in words)),
    )


def class_minimum(
    learned: Learned, records: tuple[Array, Array], start: Array, *, weighted: bool = True
) -> tuple[Array, Array, Array]:
    """Return the exact solution against class 0, its sandwich covariance, and the Hessian, in encoded units.

    Args:
        learned: the encoding and weights that a job learned.
        records: encoded features and codes.
        start: encoded units, class after class.
        weighted: with the job's weights; else with none, in columns of unit variance.
    """
    features, codes = records
    encoding = np.array(learned.encoding) if weighted else _standard(features)
    rows, units, size = features @ encoding.T, len(features), features.shape[1]
    weights = np.minimum(1, learned.weight_bound**2 / (rows**2).sum(1)) if weighted else np.ones(units)
    theta = np.linalg.solve(encoding.T, start.reshape(-1, size).T).T
    blocks = len(theta)
    seen = (codes[:, None] == np.arange(1, blocks + 1)).astype(float)
    for _ in range(ITERATIONS):
        chances = _chances(rows, theta)
        gradient = ((chances - seen) * weights[:, None]).T @ rows / units
        hessian = _hessian(rows, weights, chances)
        step = np.linalg.lstsq(hessian + 1e-10 * np.eye(blocks * size), gradient.ravel(), rcond=None)[0]
        step = step.reshape(blocks, size) * min(1.0, LONGEST / max(float(np.linalg.norm(step)), 1e-300))
        part, length = 1.0, np.linalg.norm(gradient)
        while part > 1e-3:
            ahead = _chances(rows, theta - part * step)
            if np.linalg.norm(((ahead - seen) * weights[:, None]).T @ rows) / units <= length * (1 - 1e-4 * part):
                break
            part /= 2
        theta = theta - part * step
        if np.linalg.norm(part * step) < CLOSE or np.linalg.norm(theta) > FARTHEST:
            break
    chances = _chances(rows, theta)
    hessian = _hessian(rows, weights, chances)
    scores = (((chances - seen) * weights[:, None])[:, :, None] * rows[:, None, :]).reshape(units, -1)
    inverse = np.linalg.pinv(hessian)
    back = np.kron(np.eye(blocks), encoding.T)
    covariance = back @ (inverse @ (scores.T @ scores / units) @ inverse / units) @ back.T
    forth = np.linalg.pinv(back)
    return (back @ theta.ravel()), covariance, forth.T @ hessian @ forth


def _chances(rows: Array, theta: Array) -> Array:
    """Return chances of all classes but the first, shape (n, K - 1)."""
    margins = np.column_stack((np.zeros(len(rows)), rows @ theta.T))
    found: Array = softmax(margins, axis=1)[:, 1:]
    return found


def _hessian(rows: Array, weights: Array, chances: Array) -> Array:
    """Return the mean Hessian, class after class."""
    blocks, size = chances.shape[1], rows.shape[1]
    found = np.empty((blocks, size, blocks, size))
    for one in range(blocks):
        for other in range(one, blocks):
            numbers = weights * (chances[:, one] * (one == other) - chances[:, one] * chances[:, other])
            found[one, :, other] = found[other, :, one] = rows.T @ (rows * numbers[:, None]) / len(rows)
    return found.reshape(blocks * size, blocks * size)


def _objective_perturbation(plan: PlannedJob, settings: WhitenedNewtonPlan, hessian: Array) -> Array:
    """Return the privacy part of objective perturbation's covariance, encoded units, as `benchmarks.trust.rival`.

    Columns are in [-1, 1] by their declared ranges, and a record's gradient is at most sqrt(2 p) long.
    """
    ranges = plan.facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    assert settings.mu is not None, "as planned"
    lower, upper = np.array(ranges.lower), np.array(ranges.upper)
    middle, half = (lower + upper) / 2, np.maximum((upper - lower) / 2, 1e-12)
    middle[0], half[0] = 0.0, 1.0
    back = np.diag(1 / half)
    back[0, 1:] = -middle[1:] / half[1:]
    size = len(half)
    whole = np.kron(np.eye(len(hessian) // size), back)
    moved = 2.0 if plan.facts.adjacency is Adjacency.REPLACE_ONE else 1.0
    spread = moved * np.sqrt(2 * size) / (plan.facts.units * settings.mu) * np.linalg.pinv(whole.T @ hessian @ whole)
    found: Array = whole @ (spread @ spread.T) @ whole.T
    return found


def _standard(features: Array) -> Array:
    """Return the encoding by means and deviations."""
    mean, deviation = features[:, 1:].mean(0), features[:, 1:].std(0) + 1e-12
    encoding = np.diag(np.r_[1.0, 1 / deviation])
    encoding[1:, 0] = -mean / deviation
    return encoding
