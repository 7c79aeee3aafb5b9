"""One job of a cell: a fresh data set, the real planner, a real oracle with its lattice, and what it should find."""

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.trust.exact import minimum, sandwich_of
from benchmarks.trust.populations import NAMES, population
from benchmarks.trust.rival import objective_perturbation
from benchmarks.trust.shapes import DataSet, Outcome, draw
from core.data.columns import BinaryColumn, Column, NumberColumn
from core.inference.estimate import Estimate
from core.losses.categorical import Multinomial
from core.losses.squares import Squared
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import fit_and_infer
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.modelling import encoded_loss
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency
from core.queries.sums import make_problem

Array = NDArray[np.float64]
TERMS: Final = plan_orders(Decimal(8), Decimal("1e-7"))
POPULATION_UNITS: Final = 400_000
"""Of a synthetic population whose own estimate is what jobs with a wrong model ought to cover."""
POPULATION_SEED: Final = 99


@dataclass(frozen=True)
class Cell:
    """The content of a row of the grid; its jobs differ in their data set and their noise."""

    shape: str
    units: int
    dimension: int
    """Coefficients, the intercept among them."""
    mu: float
    outcome: Outcome
    wide: float = 1.0
    adjacency: Adjacency = Adjacency.ZERO_OUT
    least_squares: bool = False

    @property
    def name(self) -> str:
        """Return all of it as a text."""
        one = self.outcome
        parts = [
            one.kind,
            self.shape,
            f"n={self.units}",
            f"p={self.dimension}",
            f"mu={self.mu:g}",
            f"base={one.base:g}",
        ]
        parts += [one.noise] * (one.noise != "normal") + [f"lacks a {one.lacking}"] * (one.lacking != "nothing")
        parts += [f"bounds x{self.wide:g}"] * (self.wide != 1)
        parts += ["least squares"] * self.least_squares + [self.adjacency.value] * (self.adjacency != "zero_out")
        return " ".join(parts)


@dataclass(frozen=True)
class Job:
    """The findings of one job, in declared units, beside the truth; shapes (p,)."""

    estimate: Array
    error: Array
    """Standard errors, of withheld coefficients too."""
    noise: Array
    """Of these the privacy part's deviation."""
    flagged: NDArray[np.bool_]
    truth: Array | None
    nonprivate: Array
    """The same weighted equation solved without noise."""
    nonprivate_error: Array
    plain_error: Array
    """Of the unweighted non-private estimate."""
    foreseen: Array
    """Standard errors by the plan's own formula."""
    rival: Array
    """Standard errors of objective perturbation to first order."""
    words: tuple[str, ...]


def declared_features(bounds: tuple[tuple[float, float], ...], two_valued: tuple[bool, ...]) -> tuple[Column, ...]:
    """Return what an owner would declare of the features x1, x2, ..."""
    return tuple(
        BinaryColumn(name=f"x{place}", type="binary", values=("no", "yes"))
        if two
        else NumberColumn(name=f"x{place}", type="number", lower=lower, upper=upper)
        for place, ((lower, upper), two) in enumerate(zip(bounds, two_valued, strict=True), 1)
    )


def declared_columns(data: DataSet, outcome: Outcome) -> tuple[Column, ...]:
    """Return what an owner would declare."""
    columns = declared_features(data.bounds, data.two_valued)
    if outcome.kind == "logistic":
        return (*columns, BinaryColumn(name="y", type="binary", values=("no", "yes")))
    return (*columns, NumberColumn(name="y", type="number", lower=data.target_bounds[0], upper=data.target_bounds[1]))


def planned(cell: Cell, data: DataSet) -> PlannedJob:
    """Return a cell's job with nothing open, as the service plans it."""
    model: dict[str, object] = {"kind": cell.outcome.kind, "target": "y"}
    if cell.least_squares:
        model["loss"] = {"kind": "squared"}
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": model,
            "optimizer": {"kind": "whitened_newton"},
            "privacy": {"mu": Decimal(str(cell.mu))},
        }
    )
    columns = declared_columns(data, cell.outcome)
    return plan_job(spec, columns=columns, units=cell.units, adjacency=cell.adjacency, terms=TERMS)


def encoded(plan: PlannedJob, data: DataSet) -> tuple[Array, Array]:
    """Return features and target as trainers see them."""
    lower, upper = np.array(data.bounds).T
    values = np.clip(data.features, lower, upper)
    given = {f"x{place + 1}": values[:, place] for place in range(values.shape[1])}
    given = {
        name: one.astype(int) if two else one for (name, one), two in zip(given.items(), data.two_valued, strict=True)
    }
    features = np.empty((len(values), plan.design.dimension))
    plan.design.encode_columns(given, features)
    coding = plan.design.target
    target = (np.clip(data.target, *data.target_bounds) - coding.centre) / coding.scale
    return features, target


def run(cell: Cell, seed: tuple[int, ...]) -> Job:
    """Draw a data set, run its job at a real oracle, and solve the same equation without noise.

    Args:
        cell: of the grid.
        seed: of the data set; the noise is the system's own, as a job's is.
    """
    data = draw(np.random.default_rng(seed), cell.shape, cell.units, cell.dimension - 1, cell.outcome, wide=cell.wide)
    plan = planned(cell, data)
    features, target = encoded(plan, data)
    estimate = trained(plan, features, target)
    return compared(plan, data, (features, target), estimate, whole(cell))


@lru_cache(maxsize=2)
def whole(cell: Cell) -> tuple[Array, Array] | None:
    """Return a cell's population, as trainers would see it, where its own estimate is the truth."""
    if cell.shape in NAMES:
        found = population(cell.shape)
        data = DataSet(found.features, found.target, found.bounds, found.two_valued, found.target_bounds, None)
    elif cell.outcome.lacking != "nothing":
        draws = np.random.default_rng(POPULATION_SEED)
        data = draw(draws, cell.shape, POPULATION_UNITS, cell.dimension - 1, cell.outcome, wide=cell.wide)
    else:
        return None
    return encoded(planned(cell, data), data)


def trained(plan: PlannedJob, features: Array, target: Array) -> Estimate:
    """Run a planned job at a real oracle, whose privacy filter refuses what was not priced."""
    problem = make_problem(
        torch.from_numpy(features.copy()),
        torch.from_numpy(target.copy()),
        torch.ones(len(target), dtype=torch.bool),
        encoded_loss(plan.spec.model, plan.design),  # type: ignore[arg-type] # no network is asked for
        plan.spec.model.weights,  # type: ignore[union-attr] # as above
    )
    oracle = FullOracle(problem, plan.facts, CountingFilter(_priced(plan)), SystemGenerator())
    return fit_and_infer(plan.spec.optimizer, plan.spec.inference, oracle).value.estimate


def _priced(plan: PlannedJob) -> Event:
    counted: dict[Event, int] = {}
    for event in plan.schedule:
        counted[event] = counted.get(event, 0) + 1
    return compose(counted)


def compared(
    plan: PlannedJob,
    data: DataSet,
    records: tuple[Array, Array],
    estimate: Estimate,
    everybody: tuple[Array, Array] | None = None,
) -> Job:
    """Put an estimate beside the truth and beside what the same records say without noise.

    Args:
        plan: of the job.
        data: that the job was run on.
        records: the same, encoded.
        estimate: the job's result.
        everybody: the population, encoded, whose own solution of the same weighted equation is the truth.
    """
    assert estimate.checks is not None, "the method checks itself"
    assert estimate.sandwich is not None, "and has a covariance"
    settings, learned = plan.spec.optimizer, estimate.checks.learned
    assert isinstance(settings, WhitenedNewtonPlan), "as planned"
    loss = settings.loss
    assert not isinstance(loss, Multinomial), "several classes have cells of their own"
    to_declared, offset = plan.design.to_declared()
    covariance, sampling = estimate.sandwich.covariance.numpy(), estimate.sandwich.plain.numpy()
    own, own_covariance = minimum(loss, learned, records, estimate.theta.numpy())
    plain, plain_covariance = minimum(loss, learned, records, estimate.theta.numpy(), weighted=False)
    error, plain_error = errors_of(to_declared, covariance), errors_of(to_declared, plain_covariance)
    curvature, bound = sandwich_of(loss, learned)
    foreseen = plain_error * settings.widening(plan.facts, curvature, bound, learned.variance_ratio or 1.0)
    if isinstance(loss, Squared):  # records that the noise hides are in the plain error, and not in what was learned
        foreseen = np.array(settings.learned_errors(plan.facts, learned, estimate.theta.numpy(), to_declared))
    withheld = np.zeros(plan.design.dimension, dtype=np.bool_)
    rival = objective_perturbation(plan.facts, settings, learned, records, (plain, plain_covariance))
    truth = data.truth
    if everybody is not None:
        truth = to_declared @ minimum(loss, learned, everybody, own)[0] + offset
    withheld[list(estimate.checks.withheld)] = True
    return Job(
        estimate=to_declared @ estimate.theta.numpy() + offset,
        error=error,
        noise=errors_of(to_declared, covariance - sampling),
        flagged=withheld,
        truth=truth,
        nonprivate=to_declared @ own + offset,
        nonprivate_error=errors_of(to_declared, own_covariance),
        plain_error=plain_error,
        foreseen=foreseen,
        rival=errors_of(to_declared, rival),
        words=(*estimate.checks.job, *(word for words in estimate.checks.coefficients for word in words)),
    )


def errors_of(matrix: Array, covariance: Array) -> Array:
    """Return standard errors of what a matrix makes of numbers with a covariance."""
    found: Array = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", matrix, covariance, matrix), 0.0))
    return found
