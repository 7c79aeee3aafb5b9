"""Widths of a cell's jobs beside the ends that an estimate gives to one who knows the population."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from benchmarks.trust.declarations import declared_columns
from benchmarks.trust.jobs import TERMS, Array, Cell, Job, all_records, drawn, encoded, planned, spec_of
from benchmarks.trust.plain import plain_fit, plain_means
from benchmarks.trust.shapes import DataSet
from benchmarks.trust.verdicts import QUANTILE, SEEN_PART
from core.models.assumed import Assumed
from core.planning.forecast import Asker, forecast
from farthing.schemas.estimates import Forecast

UNITS: Final = 40_000
"""Records that stand for a population, where truth needs none."""
USEFUL: Final = 2.0
NORMAL: Final = 1.4826
"""Deviation of normal errors over their median size."""


@dataclass(frozen=True)
class Foretold:
    """The widths of a cell's jobs beside its forecast, where population and correlation are assumed as they are."""

    inside: float
    """Part of the coefficients whose median width lies between both ends."""
    above: float
    """The largest median width over its upper end."""
    informative: bool
    ratio: float
    """The largest median standard error over the unweighted non-private one."""


def foretold(cell: Cell, jobs: Sequence[Job]) -> Foretold | None:
    """Return how well a cell's widths were foretold; None where no coefficient is given in three jobs of four.

    Args:
        cell: of the grid.
        jobs: its own.
    """
    seen = np.array([job.flagged for job in jobs]).mean(0) <= SEEN_PART
    found = known_forecast(cell)
    if found is None or not seen.any():
        return None
    error = np.median([job.error for job in jobs], 0)
    lowest = np.array([one.lowest for one in found.coefficients])
    highest = np.array([np.inf if one.highest is None else one.highest for one in found.coefficients])
    widths = 2 * QUANTILE * error
    return Foretold(
        inside=float(((lowest <= widths) & (widths <= highest))[seen].mean()),
        above=float((widths / highest)[seen].max()),
        informative=found.informative,
        ratio=float((error / np.median([job.plain_error for job in jobs], 0))[seen].max()),
    )


def known_forecast(cell: Cell) -> Forecast | None:
    """Return what an estimate says to one who assumes a cell's population as it is."""
    data = all_records(cell) or drawn(replace(cell, units=max(cell.units, UNITS), sites=1), 1)
    spec = spec_of(cell, data).model_copy(update={"assume": population_of(cell, data)})
    asker = Asker(spec, declared_columns(data, cell.outcome), cell.units, cell.adjacency, TERMS)
    return forecast(asker, asker.plan())


def population_of(cell: Cell, data: DataSet) -> Assumed:
    """Return the assumptions that are true of a cell."""
    values = np.clip(data.features, *np.array(data.bounds).T)
    means, deviations, names = values.mean(0), values.std(0), [f"x{place + 1}" for place in range(values.shape[1])]
    numbers = [place for place, two in enumerate(data.two_valued) if not two]
    rates = {
        names[place]: float(np.clip(means[place], 1e-6, 1 - 1e-6)) for place in set(range(len(names))) - {*numbers}
    }
    more: dict[str, Any] = {}
    weight = () if data.sampling is None else (("weight", data.sampling),)
    plan = planned(cell, data)
    features, target = encoded(plan, data)
    means_of_target = plain_means(cell.outcome.kind, features @ plain_fit(cell.outcome.kind, (features, target))[0])[0]
    residuals = target - means_of_target
    if cell.outcome.kind == "linear":
        scale = residuals.std() if cell.least_squares else NORMAL * np.median(np.abs(residuals))
        more["residual_scale"] = float(scale) * plan.design.target.scale
    else:
        more["base_rate"] = float(target.mean())
    if cell.outcome.kind == "poisson":
        more["dispersion"] = float((residuals**2).mean() / means_of_target.mean())
    return Assumed(
        means={names[place]: float(means[place]) for place in numbers} | {name: one.mean() for name, one in weight},
        deviations={names[place]: float(deviations[place]) for place in numbers}
        | {name: one.std() for name, one in weight},
        frequencies={name: (1 - rate, rate) for name, rate in rates.items()},
        explained=_explained(features),
        **more,
    )


def _explained(features: Array) -> float:
    """Return the largest R^2 of a column by the others."""
    covariance = np.atleast_2d(np.cov(features[:, 1:].T))
    alone = np.diag(covariance) * np.diag(np.linalg.pinv(covariance, hermitian=True))
    return float(np.clip(1 - 1 / np.maximum(alone, 1), 0, 0.999).max())


def misforetold(found: Foretold) -> list[str]:
    """Return the rules of a sound cell that its forecast breaks, in words."""
    said = []
    if found.inside < 1:
        said.append(
            f"{1 - found.inside:.2f} of the widths lie outside their ends, up to {found.above:.2f} of the upper"
        )
    if found.informative and found.ratio > USEFUL:
        said.append(f"called informative at {found.ratio:.2f} times the non-private width")
    return said
