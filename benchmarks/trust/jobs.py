"""One job of a cell: a fresh data set, the real planner, a real oracle with its lattice, and what it should find."""

from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.trust.declarations import declared_columns, sampling_of
from benchmarks.trust.exact import minimum, sandwich_of
from benchmarks.trust.plain import counted_widening, plain_fit
from benchmarks.trust.populations import NAMES, population
from benchmarks.trust.predicted import log_losses
from benchmarks.trust.rival import objective_perturbation
from benchmarks.trust.shapes import DataSet, Outcome, draw
from benchmarks.trust.three_sites import fit_together
from core.inference.estimate import Estimate
from core.losses.categorical import Multinomial
from core.losses.squares import Squared
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import Fitted, fit_and_infer
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.modelling import encoded_loss
from core.oracle import Oracle, PrivacyFilter, Release
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
WEIGHTED: Final = "weighted"
"""The word beside a coefficient whose weighted equation has another solution than the unweighted one."""
FRESH_UNITS: Final = 4000
"""Records that predictions are judged on."""


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
    sites: int = 1
    """Of a federation, each with as many records; 1: none."""

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
        parts += [f"{self.sites} sites"] * (self.sites > 1)
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
    plain_truth: Array | None = None
    """Of the unweighted equation, which `glm` solves, in the whole population; None: not known."""
    plain: Array | None = None
    """The unweighted equation solved on the job's records; None: not solved."""
    noted: NDArray[np.bool_] | None = None
    """Coefficients that are flagged, or noted to be of a weighted equation alone; None: those that are flagged."""
    forecast: Array | None = None
    """Standard errors of counted least squares by `counted_widening`; None: another model."""
    losses: tuple[float, float] | None = None
    """Mean log loss on new records, of predictions and of the base rate; None: the model is not logistic."""


def planned(cell: Cell, data: DataSet) -> PlannedJob:
    """Return a cell's job with nothing open, as the service plans it."""
    columns = declared_columns(data, cell.outcome)
    return plan_job(spec_of(cell, data), columns=columns, units=cell.units, adjacency=cell.adjacency, terms=TERMS)


def spec_of(cell: Cell, data: DataSet) -> JobSpec:
    """Return a cell's job as an analyst sends it."""
    model: dict[str, object] = {"kind": cell.outcome.kind, "target": "y"}
    if cell.outcome.kind == "linear":
        model["loss"] = {"kind": "squared" if cell.least_squares else "huber"}
    if data.interactions:
        model["interactions"] = [[f"x{place + 1}" for place in term] for term in data.interactions]
    if data.sampling is not None:
        model["sampling_weights"] = "weight"
    return JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "model": model,
            "optimizer": {"kind": "whitened_newton"},
            "privacy": {"mu": Decimal(str(cell.mu))},
        }
    )


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
    data = drawn(cell, seed)
    plan, records, sampling = planned(cell, data), *_records(cell, data)
    release = fitted(plan, records, sampling, cell.sites)
    found = compared(plan, data, records, release.value.estimate, whole(cell), sampling)
    found = replace(found, plain_truth=plain_truth(cell) if data.truth is None else data.truth)
    if cell.least_squares:
        found = replace(found, forecast=found.plain_error * counted_widening(plan, cell.mu, records, cell.sites))
    if cell.outcome.kind == "logistic":
        fresh = encoded(plan, drawn(replace(cell, units=FRESH_UNITS), (*seed, FRESH_UNITS)))
        found = replace(found, losses=log_losses(plan, release, fresh, float(records[1].mean())))
    return found


def drawn(cell: Cell, seed: tuple[int, ...] | int) -> DataSet:
    """Return a fresh data set of a cell, of as many records as all its sites have."""
    draws, units = np.random.default_rng(seed), cell.units * cell.sites
    return draw(draws, cell.shape, units, cell.dimension - 1, cell.outcome, wide=cell.wide)


def _records(cell: Cell, data: DataSet) -> tuple[tuple[Array, Array], Array | None]:
    """Return encoded features and target, and sampling weights over their upper bound."""
    plan = planned(cell, data)
    return encoded(plan, data), sampling_of(plan.design, data)


@lru_cache(maxsize=2)
def whole(cell: Cell) -> tuple[Array, Array] | None:
    """Return a cell's population, as trainers would see it, where its own estimate is the truth.

    Where means are known they stand for outcomes, except for counts, whose equation is not linear in them.
    """
    data = all_records(cell)
    if data is None:
        return None
    if data.mean is not None and cell.outcome.kind != "poisson":
        data = replace(data, target=data.mean)
    return encoded(planned(cell, data), data)


@lru_cache(maxsize=2)
def plain_truth(cell: Cell) -> Array | None:
    """Return the unweighted estimate of a cell's whole population, in declared units; None where it has none.

    A robust regression has none: its scale is learned.
    """
    data = all_records(cell)
    if data is None or (cell.outcome.kind == "linear" and not cell.least_squares):
        return None
    plan = planned(cell, data)
    records = encoded(plan, data if data.mean is None else replace(data, target=data.mean))
    to_declared, offset = plan.design.to_declared()
    found: Array = to_declared @ plain_fit(cell.outcome.kind, records)[0] + offset
    return found


def all_records(cell: Cell) -> DataSet | None:
    """Return a cell's population, where its own estimate is the truth; None where the truth is known without one."""
    if cell.shape in NAMES:
        found = population(cell.shape)
        return DataSet(found.features, found.target, found.bounds, found.two_valued, found.target_bounds, None)
    one_of_them = drawn(cell, 1)
    if cell.outcome.lacking == "nothing" and (one_of_them.truth is not None or one_of_them.mean is None):
        return None
    return drawn(replace(cell, units=POPULATION_UNITS, sites=1), POPULATION_SEED)


def trained(plan: PlannedJob, features: Array, target: Array) -> Estimate:
    """Run a planned job at a real oracle, whose privacy filter refuses what was not priced."""
    return fitted(plan, (features, target)).value.estimate


def fitted(
    plan: PlannedJob, records: tuple[Array, Array], sampling: Array | None = None, sites: int = 1
) -> Release[Fitted]:
    """Run a planned job at a real oracle, or at so many of them that federate.

    Args:
        plan: of the job, or of each site's.
        records: encoded features and target; a site has every so manieth of them.
        sampling: their weights, 0 to 1.
        sites: of the federation; 1: none.
    """

    def oracle(place: int, payments: PrivacyFilter) -> FullOracle:
        features, target = (one[place::sites] for one in records)
        problem = make_problem(
            torch.from_numpy(features.copy()),
            torch.from_numpy(target.copy()),
            torch.ones(len(target), dtype=torch.bool),
            encoded_loss(plan.spec.model, plan.design),  # type: ignore[arg-type] # no network is asked for
            plan.spec.model.weights,  # type: ignore[union-attr] # as above
            sampling=None if sampling is None else torch.from_numpy(sampling[place::sites].copy()),
        )
        return FullOracle(problem, plan.facts, payments, SystemGenerator())

    def fit(asked: Oracle) -> Release[Fitted]:
        return fit_and_infer(plan.spec.optimizer, plan.spec.inference, asked)

    if sites > 1:
        return fit_together(sites, fit, oracle, lambda: CountingFilter(_priced(plan)))
    return fit(oracle(0, CountingFilter(_priced(plan))))


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
    sampling_weights: Array | None = None,
) -> Job:
    """Put an estimate beside the truth and beside what the same records say without noise.

    Args:
        plan: of the job.
        data: that the job was run on.
        records: the same, encoded.
        estimate: the job's result.
        everybody: the population, encoded, whose own solution of the same weighted equation is the truth.
        sampling_weights: of the records.
    """
    assert estimate.checks is not None, "the method checks itself"
    assert estimate.sandwich is not None, "and has a covariance"
    settings, learned = plan.spec.optimizer, estimate.checks.learned
    assert isinstance(settings, WhitenedNewtonPlan), "as planned"
    loss = settings.loss
    assert not isinstance(loss, Multinomial), "several classes have cells of their own"
    to_declared, offset = plan.design.to_declared()
    covariance, sampling = estimate.sandwich.covariance.numpy(), estimate.sandwich.plain.numpy()
    start, beside = estimate.theta.numpy(), sampling_weights
    own, own_covariance = minimum(loss, learned, records, start, sampling=beside)
    plain, plain_covariance = minimum(loss, learned, records, start, weighted=False, sampling=beside)
    error, plain_error = errors_of(to_declared, covariance), errors_of(to_declared, plain_covariance)
    curvature, bound = sandwich_of(loss, learned)
    foreseen = plain_error * settings.widening(plan.facts, curvature, bound, learned.variance_ratio or 1.0)
    if isinstance(loss, Squared):  # records that the noise hides are in the plain error, and not in what was learned
        foreseen = np.array(settings.learned_errors(plan.facts, learned, estimate.theta.numpy(), to_declared))
    withheld = np.zeros(plan.design.dimension, dtype=np.bool_)
    rival = objective_perturbation(plan.facts, settings, learned, records, (plain, plain_covariance), beside)
    truth = data.truth
    if everybody is not None:
        truth = to_declared @ minimum(loss, learned, everybody, own)[0] + offset
    withheld[list(estimate.checks.withheld)] = True
    words = [estimate.checks.words(place) for place in range(len(withheld))]
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
        words=tuple(word for own_words in words for word in own_words),
        plain=to_declared @ plain + offset,
        noted=withheld | np.array([WEIGHTED in own_words for own_words in words]),
    )


def errors_of(matrix: Array, covariance: Array) -> Array:
    """Return standard errors of what a matrix makes of numbers with a covariance."""
    found: Array = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", matrix, covariance, matrix), 0.0))
    return found
