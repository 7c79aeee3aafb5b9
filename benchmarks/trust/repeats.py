"""Do verdicts agree over noise and budgets? The same data set again and again, and the same cell at several budgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import sqrt
from typing import Final

import numpy as np

from benchmarks.trust.jobs import Job, run
from benchmarks.trust.row import Row
from benchmarks.trust.verdicts import TINY, WORST_SLACK, Verdict, judge

TIMES: Final = 10
"""Jobs on one data set."""
ALIKE: Final = 0.9
"""Part of them with one verdict from which on they agree."""
LEAST_AGREED: Final = 0.95
AT_ODDS: Final = 4.0
"""Combined standard errors between two estimates from the same records."""
RISES: Final = 0.01
"""By which the part that is flagged may rise with the budget beside its own noise."""


@dataclass(frozen=True)
class Agreement:
    """The verdicts of several jobs on each of some data sets."""

    data_sets: int
    agreed: list[float]
    """Of each coefficient: part of the data sets on which nine in ten of its verdicts, given or withheld, agree."""
    wholly: float
    """Part of the data sets on which this holds for every coefficient."""
    at_odds: int
    """Pairs of given estimates of one data set more than four combined standard errors apart."""


def agreement(data_sets: Sequence[Sequence[Job]]) -> Agreement:
    """Return how far verdicts on the same records agree.

    Args:
        data_sets: of each its jobs, equally many.
    """
    flagged = np.array([[job.flagged for job in jobs] for jobs in data_sets], dtype=float)
    part = flagged.mean(1)
    alike = np.maximum(part, 1 - part) >= ALIKE
    return Agreement(
        data_sets=len(data_sets),
        agreed=alike.mean(0).round(3).tolist(),
        wholly=float(alike.all(1).mean()),
        at_odds=sum(_apart(one, other) for jobs in data_sets for one, other in combinations(jobs, 2)),
    )


def _apart(one: Job, other: Job) -> int:
    combined = np.sqrt(np.maximum(one.error**2 + other.error**2, TINY))
    far = np.abs(one.estimate - other.estimate) > AT_ODDS * combined
    return int((far & ~one.flagged & ~other.flagged).sum())


def at_variance(found: Agreement) -> list[str]:
    """Return the rules that repeated jobs break, in words."""
    said = []
    least = min(found.agreed)
    slack = WORST_SLACK * sqrt(LEAST_AGREED * (1 - LEAST_AGREED) / found.data_sets)
    if least + slack < LEAST_AGREED:
        said.append(f"verdicts on one coefficient agree on {least:.2f} of the data sets alone")
    if found.at_odds > 0:
        said.append(f"{found.at_odds} pairs of estimates of the same records are at odds")
    return said


def repeated(row: Row, data_sets: int, times: int = TIMES) -> Agreement:
    """Run so many jobs on each of so many data sets of a cell; only the noise differs."""
    return agreement([[run(row.cell, (row.seed, number)) for _ in range(times)] for number in range(data_sets)])


def at_budgets(row: Row, budgets: Sequence[float], jobs: int) -> dict[float, Verdict]:
    """Return the figures of a cell at several budgets, on the same data sets."""
    return {
        mu: judge([run(replace(row.cell, mu=mu), (row.seed, number)) for number in range(jobs)], row.named)
        for mu in budgets
    }


def rising(found: Mapping[float, Verdict]) -> list[str]:
    """Return between which budgets more is flagged for more budget, in words; none where that is noise."""
    said = []
    for low, high in pairwise(sorted(found)):
        before, after = found[low], found[high]
        noise = WORST_SLACK * sqrt(before.flagged_error**2 + after.flagged_error**2) + RISES
        if after.flagged > before.flagged + noise:
            said.append(f"flags rise from {before.flagged:.2f} at mu {low:g} to {after.flagged:.2f} at {high:g}")
    return said
