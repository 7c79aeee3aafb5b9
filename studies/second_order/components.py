"""C3 and C4: the rank-one problem from other starts and with other gaps. F1: certificates where they belong, at minima.

A saddle whose curvature is above -gamma_star is none that a certificate excludes: it may be certified, and is counted.
"""

from collections.abc import Sequence
from statistics import median

import torch

from studies.clipped.reports import within
from studies.inference.results import Result, Row
from studies.second_order.certificates import CARTON, COMPONENT_UNITS, found
from studies.second_order.populations import EggCarton
from studies.second_order.saddles import Seen, carton_settings, component, component_settings, run

LEFT = -0.4
"""Least curvature above which a saddle is behind."""
GAPS = (0.3, 0.5, 0.8, 0.95)


def from_origin(runs: int, first: int = 0) -> list[Seen]:
    """Return runs from 0, where the least curvature is -1."""
    law = component(COMPONENT_UNITS)
    settings = component_settings(law, start=tuple([0.0] * law.dimension))
    return [run(law, settings, first + seed) for seed in range(runs)]


def with_gap(second: float, runs: int, first: int = 0) -> list[Seen]:
    """Return runs from the second component, whose eigenvalue is given: its least curvature is that less 1."""
    law = component(COMPONENT_UNITS, gap=second)
    settings = component_settings(law)
    return [run(law, settings, first + seed) for seed in range(runs)]


def two_saddles(*, full: bool) -> Result:
    """C3: from the steepest saddle, the origin, down past the other."""
    runs = from_origin(10 if full else 2)
    return Result(
        "C3",
        "From the origin of the rank-one problem",
        f"As C1, from 0, whose least curvature is -1; {len(runs)} seeds.",
        (Row("leave the saddle", 1.0, sum(one.curvature > LEFT for one in runs) / len(runs), 0.0), *_claims(runs)),
        "The steepest descent from there is towards the first component: no run stops at another.",
    )


def gaps(*, full: bool) -> Result:
    """C4: the second eigenvalue nearer and nearer to the first."""
    rows = []
    for second in GAPS:
        runs = with_gap(second, 10 if full else 1)
        certain = found(runs)
        strict = 1 - second > runs[0].found.gamma_star
        kind = "alpha-strict" if strict else "not alpha-strict"
        name = f"second eigenvalue {second:g}, a start of curvature {second - 1:.2g}, {kind}"
        stayed = sum(one.curvature < 0 for one in certain)
        rows += [
            Row(f"{name}: certified", None, float(len(certain))),
            Row(f"{name}: certified at the saddle", 0.0 if strict else None, float(stayed), 0.0 if strict else None),
            *(Row(f"{name}: {row.what}", row.reference, row.ours, row.tolerance) for row in _claims(runs)),
        ]
    return Result(
        "C4",
        "The gap between the components",
        f"As C1 with second eigenvalues {', '.join(map(str, GAPS))}, from the second component; gamma_star = .43, so "
        f"the last two starts are no saddles that a certificate excludes; {10 if full else 1} seeds each.",
        tuple(rows),
        "What a certificate excludes is never certified. Of the last two starts it says nothing; with these seeds none "
        "of them was certified either. The smaller the gap, the slower the descent: at .95 records run out.",
    )


def minima(*, full: bool) -> Result:
    """F1: begun at a minimum, a certificate comes from the first phase."""
    runs = 40 if full else 3
    law, eggs = component(COMPONENT_UNITS), EggCarton(*CARTON)
    best = component_settings(law, start=tuple(law.stationary(0).tolist()))
    bottom = carton_settings(eggs, torch.zeros(eggs.dimension, dtype=torch.float64))
    rows = [
        within(f"{name}: certified in the first phase", 0.95, first_phase_certified(seen), 1.0)
        for name, seen in (
            ("rank-one problem", [run(law, best, seed) for seed in range(runs)]),
            ("egg carton", [run(eggs, bottom, seed) for seed in range(runs)]),
        )
    ]
    return Result(
        "F1",
        "Certificates at minima",
        f"The figures of C1 and D1, begun at a minimum; {runs} seeds each.",
        tuple(rows),
        "No run needs a second phase: the minima of both laws are curved enough for their figures.",
    )


def first_phase_certified(runs: Sequence[Seen]) -> float:
    """Return how many of the runs ended with a certificate from their very first phase."""
    return sum(one.found.outcome == "no_escape_observed" and one.found.phases == 1 for one in runs) / len(runs)


def true_claims(runs: Sequence[Seen]) -> float:
    """Return how many of the points that were returned are what is claimed of them."""
    certain = found(runs)
    told = [one.gradient <= one.found.alpha and one.curvature >= -one.found.gamma_star for one in certain]
    return sum(told) / len(certain)


def _claims(runs: Sequence[Seen]) -> list[Row]:
    """Return whether what was claimed is true, and of what points."""
    certain = found(runs)
    return [
        Row("share of those certified that are what is claimed", 1.0, true_claims(runs), 0.0),
        Row("longest gradient of any certified", None, max(one.gradient for one in certain)),
        Row("least curvature of any certified", None, min(one.curvature for one in certain)),
        Row("median records", None, median(one.records for one in runs)),
    ]
