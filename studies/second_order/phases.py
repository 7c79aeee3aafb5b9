"""N1: phase retrieval by Gauss-PSGD where nothing is said but the model and the privacy; all figures are planned.

The laws have declared ranges of -1 to 1. In one, x has two signs: its mean loss bends down by .9 at zero and up by 1.8
at its minima. In the other, x fills its ranges evenly: its mean loss bends by a third of that and less. The target y is
(.95 x1)^2 and a little noise. The point that a run returns is compared with the mean gradient and Hessian of fresh
records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import mean, median

import torch
from torch import Tensor

from core.base.errors import Invalid
from core.data.columns import NumberColumn
from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.models.kinds import PhaseRetrievalModel
from core.models.modelling import encoded_loss
from core.oracle.simulation import Simulation
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from core.queries.sums import make_problem
from studies.inference.results import Result, Row

ROOT, ERROR = 0.95, 0.08
TERMS = plan_orders(Decimal(100), Decimal("1e-6"))
FRESH = 400_000
"""Records that a point is judged by."""
CASES = (("signs", 1), ("signs", 2), ("signs", 3), ("even", 1), ("even", 2))
"""The distribution of features, and their number."""


@dataclass(frozen=True)
class Ended:
    """The end of a run, and the truth about the point it returned."""

    outcome: str
    gradient: float
    curvature: float
    taken: int


def planned(dimension: int, units: int, epsilon: str = "1") -> PlannedJob:
    """Return the job as it is planned from the model, the privacy and public counts.

    Raises:
        Invalid: this number of units allows no claim.
    """
    columns = [NumberColumn(name=f"x{place}", lower=-1, upper=1) for place in range(dimension)]
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_records",
            "model": {"kind": "phase_retrieval", "target": "y"},
            "inference": {"intervals": False},
            "privacy": {"epsilon": epsilon},
            "optimizer": {"kind": "gauss_psgd"},
        }
    )
    return plan_job(
        spec,
        columns=(*columns, NumberColumn(name="y", lower=0, upper=1)),
        units=units,
        adjacency=Adjacency.REPLACE_ONE,
        terms=TERMS,
    )


def drawn(how: str, dimension: int, units: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return encoded features, shape (n, d), and targets, shape (n,)."""
    generator = SimulationGenerator(seed)
    features = generator.uniform(units, dimension).mul_(2).sub_(1)
    if how == "signs":
        features.sign_()
    noise = (generator.uniform(units) - 1 / 2).sign().mul(ERROR)
    return features, (ROOT * features[:, 0]).square().add(noise).clamp(0, 1)


def truth(how: str, dimension: int, theta: Tensor) -> tuple[float, float]:
    """Return the length of the mean gradient and the least eigenvalue of the mean Hessian of (m^2 - y)^2/4."""
    features, target = drawn(how, dimension, FRESH, 77)
    margin = features @ theta
    slope = (features * (margin * (margin.square() - target)).unsqueeze(-1)).mean(0)
    bend = (features * (3 * margin.square() - target).unsqueeze(-1)).mT @ features / FRESH
    return float(slope.norm()), float(torch.linalg.eigvalsh(bend)[0])


def run(job: PlannedJob, how: str, seed: int) -> Ended:
    """Run a planned job once, through the simulated oracle, on records of its own."""
    settings, model, facts = job.spec.optimizer, job.spec.model, job.facts
    assert isinstance(settings, GaussPsgdPlan), "it was asked for"
    assert isinstance(model, PhaseRetrievalModel), "as above"
    features, target = drawn(how, facts.dimension, facts.units, 1000 + seed)
    problem = make_problem(
        features, target, torch.ones_like(target, dtype=torch.bool), encoded_loss(model, job.design), model.weights
    )
    oracle = Simulation(problem, facts, SimulationGenerator(seed), sampling=settings.sampling(facts))
    estimate, _ = gauss_psgd.iterate(settings, oracle)
    claim = estimate.error_bound
    assert claim is not None, "rounds tell one"
    assert claim.second_order is not None, "and how they ended"
    told = claim.second_order
    gradient, curvature = truth(how, facts.dimension, estimate.theta)
    taken = told.restarts * settings.batch + told.differences * settings.difference_batch
    return Ended(told.outcome, gradient, curvature, taken)


def planned_alone(*, full: bool) -> Result:
    """N1: the results of planning alone."""
    seeds = range(8 if full else 1)
    rows: list[Row] = []
    rows.append(Row("the fewest units of which two features' job is not refused", None, float(_fewest(2))))
    for how, dimension in CASES if full else CASES[1:2]:
        for units in (400_000, 1_000_000) if full else (400_000,):
            job = planned(dimension, units)
            runs = [run(job, how, seed) for seed in seeds]
            rows += _rows(f"{how}, d = {dimension}, n = {units:,}", job, runs)
    return Result(
        "N1",
        "Phase retrieval, with nothing said but the model and the privacy",
        f"y = ({ROOT} x1)^2 give or take {ERROR}; x of two signs, or evenly spread; epsilon 1, delta 1e-6, "
        f"replace_one; all figures are planned, and the start is at random; {len(seeds)} seeds. Claimed of a "
        f"point that no round leaves: a gradient of at most alpha, no curvature below -gamma_star. Judged by "
        f"{FRESH:,} fresh records.",
        tuple(rows),
        "The preset is curved throughout: strict figures take more than 2e7 units. No claim is false. A run without "
        "one ran out of units, on a way past more saddles than one (d = 3) or where rounds leave what is curved too "
        "little (even, d = 2), and claims nothing. Of two features or more gamma_star is above the .9 by which zero "
        "bends down, so that a claim says nothing of that saddle; no point that was found is it, but some lie where "
        "the least curvature is about 0. Smaller ones take more units, or a spread that is declared.",
    )


def _fewest(dimension: int) -> int:
    """Return about how few units allow a claim, to 5 %."""
    units = 10_000
    while True:
        try:
            planned(dimension, units)
        except Invalid:
            units = units * 21 // 20
        else:
            return units


def _rows(where: str, job: PlannedJob, runs: Sequence[Ended]) -> Iterator[Row]:
    """Report one cell."""
    assert isinstance(job.spec.optimizer, GaussPsgdPlan), "it was asked for"
    figures = job.spec.optimizer.figures(job.facts)
    alpha, sharp = float(figures["alpha"] or 0), float(figures["gamma_star"] or 0)
    found = [one for one in runs if one.outcome == "no_escape_observed"]
    yield Row(f"{where}: alpha", None, alpha)
    yield Row(f"{where}: gamma_star", None, sharp)
    yield Row(f"{where}: share that found a point", None, len(found) / len(runs))
    if found:
        false = mean(one.gradient > alpha or one.curvature < -sharp for one in found)
        yield Row(f"{where}: share of those of which the claim is false", 0.0, false, 0.05)
        yield Row(f"{where}: least curvature of any such point", None, min(one.curvature for one in found))
    yield Row(f"{where}: median records, over n", None, median(one.taken for one in runs) / job.facts.units)
