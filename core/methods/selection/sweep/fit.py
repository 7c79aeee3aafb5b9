"""The best of several settings by a noised score.

Source: Papernot and Steinke (2022), Hyperparameter tuning with Renyi differential privacy, algorithm 1.
Sensitivity: those of the candidates' questions and of `MeanError`; all runs are paid for by one event.
Failure: a run that fails has the score infinity, and no run fails another. Everything depends on noised values only.
"""

from dataclasses import dataclass, replace
from math import inf

import torch
from torch.linalg import LinAlgError  # type: ignore[attr-defined] # torch's stub leaves it out

from core.base.errors import Diverged
from core.inference.estimate import Estimate
from core.inference.swept import SweepOutcome
from core.methods.m_estimation.noisy_gd import fit as noisy_gd
from core.methods.m_estimation.noisy_newton import fit as noisy_newton
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.methods.selection.sweep.spec import SweepPlan
from core.oracle import Oracle, Status
from core.oracle.runs import RunsOracle


@dataclass(frozen=True)
class _Run:
    """The release of one run."""

    place: int
    estimate: Estimate
    score: float


def iterate(plan: SweepPlan, oracle: RunsOracle) -> tuple[Estimate, Status]:
    """Make all runs and return the best that counts.

    Args:
        plan: public plan, nothing open.
        oracle: the only way to the records; no replicates.

    Returns:
        The estimate of one candidate with what is released of the sweep, or zeros with the status none where no run
        was drawn, or all of those drawn failed.
    """

    def run(own: RunsOracle, group: int) -> tuple[_Run, float]:
        places = plan.groups[group]
        place = places[own.randomness.integer(len(places))]
        found = _run(plan, own.with_ridge(plan.candidates[place].ridge), place)
        return found, found.score

    best = oracle.best_of(plan.event(), run)
    score = plan.score()
    swept = SweepOutcome(
        candidate=None,
        candidates=len(plan.candidates),
        optimizer=None,
        ridge=None,
        score=None,
        score_scale=score.sigma * score.sensitivity(oracle.facts),
        way=plan.way,
    )
    if best is None:
        return replace(_nowhere(oracle), swept=swept), Status.NONE
    chosen = plan.candidates[best.place]
    named = {"candidate": best.place, "optimizer": chosen.optimizer.model_dump(mode="json"), "ridge": chosen.ridge}
    swept = swept.model_copy(update=named | {"score": best.score})
    return replace(best.estimate, swept=swept), Status.FINISHED


def _run(plan: SweepPlan, oracle: Oracle, place: int) -> _Run:
    """Run a candidate and score it."""
    candidate, failed = plan.candidates[place].optimizer, False
    try:
        if isinstance(candidate, NoisyNewtonPlan):
            estimate, _ = noisy_newton.iterate(candidate, oracle)
        else:
            estimate, _ = noisy_gd.iterate(candidate, oracle)
    except (Diverged, LinAlgError):
        estimate, failed = _nowhere(oracle), True
    # A run that failed asks too: it takes as long.
    score = float(oracle.ask(plan.score(), estimate.theta).value[0])
    return _Run(place, estimate, inf if failed or not bool(estimate.theta.isfinite().all()) else score)


def _nowhere(oracle: Oracle) -> Estimate:
    """Return the public start as an estimate."""
    zeros = torch.zeros(oracle.facts.dimension, dtype=torch.float64)
    return Estimate(
        theta=zeros, start=zeros, family="gradient", left=torch.tensor(data=False), scale=0.0, step=0.0, steps=0
    )
