"""The figures of a cell's jobs, and the rules that they must keep."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.trust.jobs import Job

Array = NDArray[np.float64]
QUANTILE: Final = 1.959964
TINY: Final = 1e-300
SILENT: Final = 6.0
LEAST_MEAN, LEAST_WORST = 0.93, 0.88
MEAN_VARIANCE, WORST_VARIANCE = 0.07, 0.106
"""Of one job's coverage, at coverages of .93 and .88; a mean over p coefficients counts as sqrt(p) of them."""
MEAN_SLACK, WORST_SLACK = 2.0, 2.8
MOST_FLAGGED, LEAST_FLAGGED = 0.05, 0.95
LEAST_NOISE, MOST_NOISE = 0.65, 1.2
LEAST_WIDTH: Final = 0.94
MOST_OF_STORED, LEAST_OF_STORED, LEAST_SAMPLING_OF_STORED = 1.15, 0.85, 0.95
FLAGS_BEYOND_STORED: Final = 0.14
LEAST_FORESEEN, MOST_FORESEEN = 0.7, 1.35
SEEN_PART: Final = 0.25
"""A coefficient counts by itself where so many jobs have not flagged it."""
MOST_OF_RIVAL: Final = 1.5
MOST_OF_FORECAST: Final = 1.25
MOST_OF_EARLIER: Final = 1.1
MOST_LOSS: Final = 0.02
"""By which a job's log loss may pass that of the base rate: noise of the new records."""
MOST_OF_PROTOTYPE, MOST_FLAGS_OF_PROTOTYPE = 1.1, 1.2
Expected = Literal["sound", "elsewhere", "alias", "separated", "below budget", "nearly", "counted"]
"""The flags that are due.

Sound, and counted (least squares that counts its tails): next to nothing.
Elsewhere: little (many coefficients, rare outcomes).
Alias: both aliased coefficients, or those that are named. Separated: everything. Below budget: anything.
Nearly: those that are named or covered, and next to no others.
"""


@dataclass(frozen=True)
class Verdict:
    """Figures of a cell; coverages are over coefficients that are not flagged, None where all are."""

    jobs: int
    dimension: int
    truth: float | None
    truth_worst: float | None
    same: float | None
    """Coverage of the non-private estimate of the same weighted equation."""
    same_worst: float | None
    nonprivate_truth: float | None
    """Coverage of the truth by non-private intervals of the weighted equation."""
    width: float
    """Median standard error over that of the unweighted non-private estimate, in the median over coefficients."""
    least_width: float
    """Of the narrowest coefficient, beside the weighted non-private one."""
    widest: float
    foreseen: float
    """Median standard error over what the plan's own formula says with what was learned."""
    flagged: float
    flagged_named: float
    """Of the coefficients that ought to be flagged."""
    safe_named: float
    """Of these, what is flagged or covered."""
    flagged_beside: float
    """Of all others."""
    noise: float | None
    """Root mean square over jobs of (estimate - non-private)/(the job's own claimed noise), where an interval was
    given, in the median over coefficients; None where none was."""
    sampling: float
    """Median claimed sampling deviation over the weighted non-private one."""
    rival: float
    """Median standard error over objective perturbation's, to first order, in the median over coefficients."""
    silent: float
    """Part of the jobs with an unflagged coefficient farther than six of its standard errors from the truth."""
    words: dict[str, int]
    each_truth: list[float]
    """Coverage of the truth by coefficient, flagged or not."""
    each_width: list[float]
    """Median standard errors over the weighted non-private ones, by coefficient."""
    each_flagged: list[float]
    plain: float | None = None
    """Coverage of the plain truth, what `glm` finds in the whole population, where nothing is flagged or noted."""
    plain_worst: float | None = None
    nonprivate_plain: float | None = None
    """Coverage of the plain truth by the unweighted estimate's own intervals."""
    off: int = 0
    """Unflagged coefficients farther than six of their standard errors from the plain truth."""
    silent_plain: float = 0.0
    """Part of the jobs with one of them."""
    noted: float = 0.0
    """Part of the coefficients that are flagged, or noted to be of a weighted equation alone."""
    forecast: float | None = None
    """Median standard error of counted least squares over its forecast, in the median over coefficients."""
    losing: float | None = None
    """Part of the jobs whose log loss on new records passes the base rate's; None: not a logistic model."""
    gain: float | None = None
    """Median log loss less that of the base rate."""
    flagged_error: float = 0.0
    """Standard error of the part that is flagged."""


def judge(jobs: Sequence[Job], named: Sequence[int] = ()) -> Verdict:
    """Return the figures of a cell's jobs.

    Args:
        jobs: of one cell.
        named: the coefficients that ought to be flagged; none for all of them.
    """

    def all_of(name: str) -> Array:
        return np.array([getattr(job, name) for job in jobs], dtype=float)

    estimate, error, exact = all_of("estimate"), all_of("error"), all_of("nonprivate")
    exact_error, plain = (np.maximum(all_of(name), TINY) for name in ("nonprivate_error", "plain_error"))
    noise = all_of("noise")
    flagged = np.array([job.flagged for job in jobs])
    truths = [job.truth for job in jobs if job.truth is not None]
    truth = np.array(truths) if len(truths) == len(jobs) else exact
    at_truth, at_same = (np.abs(estimate - one) <= QUANTILE * error for one in (truth, exact))
    ought = list(named) or slice(None)
    beside = np.ones(estimate.shape[1], dtype=np.bool_)
    beside[ought] = not named
    away = (np.abs(estimate - truth) > SILENT * error) & ~flagged
    sampling = np.sqrt(np.maximum(error**2 - noise**2, 0.0))
    return Verdict(
        jobs=len(jobs),
        dimension=estimate.shape[1],
        truth=_mean(at_truth, ~flagged),
        truth_worst=_worst(at_truth, ~flagged),
        same=_mean(at_same, ~flagged),
        same_worst=_worst(at_same, ~flagged),
        nonprivate_truth=_mean(np.abs(exact - truth) <= QUANTILE * exact_error, ~flagged),
        width=float(np.median(np.median(error / plain, 0))),
        least_width=float(np.median(error / exact_error, 0).min()),
        widest=float(np.median(error / plain, 0).max()),
        foreseen=float(np.median(error / np.maximum(all_of("foreseen"), TINY))),
        flagged=float(flagged.mean()),
        flagged_named=float(flagged[:, ought].mean()),
        safe_named=float((flagged | at_truth)[:, ought].mean()),
        flagged_beside=float(flagged[:, beside].mean()),
        noise=_spread((estimate - exact) / np.maximum(noise, TINY), ~flagged),
        sampling=float(np.median(np.median(sampling / exact_error, 0))),
        rival=float(np.median(np.median(error / np.maximum(all_of("rival"), TINY), 0))),
        silent=float(away.any(1).mean()),
        words=dict(Counter(word for job in jobs for word in set(job.words))),
        each_truth=at_truth.mean(0).round(3).tolist(),
        each_width=np.median(error / exact_error, 0).round(3).tolist(),
        each_flagged=flagged.mean(0).round(3).tolist(),
        flagged_error=float(flagged.mean(1).std() / sqrt(len(jobs))),
        **_of_the_plain_truth(jobs, estimate, error),
        **_of_forecasts(jobs, error),
    )


def _of_the_plain_truth(jobs: Sequence[Job], estimate: Array, error: Array) -> dict[str, Any]:
    """Return the figures about what `glm` finds in the whole population; none where that is not known."""
    truths = [job.plain_truth for job in jobs if job.plain_truth is not None]
    if len(truths) < len(jobs):
        return {}
    truth = np.array(truths)
    noted = np.array([job.flagged if job.noted is None else job.noted for job in jobs])
    covered = np.abs(estimate - truth) <= QUANTILE * error
    away = (np.abs(estimate - truth) > SILENT * error) & ~noted
    plain = [job.plain for job in jobs if job.plain is not None]
    own = None
    if len(plain) == len(jobs):
        plain_error = np.array([job.plain_error for job in jobs])
        own = _mean(np.abs(np.array(plain) - truth) <= QUANTILE * plain_error, ~noted)
    return {
        "plain": _mean(covered, ~noted),
        "plain_worst": _worst(covered, ~noted),
        "nonprivate_plain": own,
        "off": int(away.sum()),
        "silent_plain": float(away.any(1).mean()),
        "noted": float(noted.mean()),
    }


def _of_forecasts(jobs: Sequence[Job], error: Array) -> dict[str, Any]:
    """Return widths over the forecast of counted least squares, and losses on new records."""
    found: dict[str, Any] = {}
    forecasts = [job.forecast for job in jobs if job.forecast is not None]
    if len(forecasts) == len(jobs):
        found["forecast"] = float(np.median(np.median(error / np.maximum(forecasts, TINY), 0)))
    losses = [job.losses for job in jobs if job.losses is not None]
    if len(losses) == len(jobs):
        worse = np.subtract(*np.array(losses).T)
        found |= {"losing": float((worse > MOST_LOSS).mean()), "gain": float(np.median(worse))}
    return found


def _mean(covered: NDArray[np.bool_], counted: NDArray[np.bool_]) -> float | None:
    return float(covered[counted].mean()) if counted.any() else None


def _worst(covered: NDArray[np.bool_], counted: NDArray[np.bool_]) -> float | None:
    """Return the coverage of the worst coefficient among those that most jobs did not flag."""
    columns = [place for place in range(counted.shape[1]) if counted[:, place].mean() >= SEEN_PART]
    return min((float(covered[counted[:, place], place].mean()) for place in columns), default=None)


def _spread(errors: Array, counted: NDArray[np.bool_]) -> float | None:
    """Return the root mean square of standardized errors, in the median over coefficients that most jobs have."""
    columns = [place for place in range(counted.shape[1]) if counted[:, place].mean() >= SEEN_PART]
    with np.errstate(over="ignore"):  # where nothing is claimed, an error is beyond any number of deviations
        each = [np.sqrt((errors[counted[:, place], place] ** 2).mean()) for place in columns]
    return float(np.median(each)) if each else None


@dataclass(frozen=True)
class Stored:
    """The earlier figures of a cell, here or in the prototype; None where there is nothing to compare with."""

    width: float | None = None
    sampling: float | None = None
    flagged: float | None = None
    prototype_width: float | None = None
    prototype_flagged: float | None = None


def broken(found: Verdict, expected: Expected = "sound", stored: Stored | None = None) -> list[str]:
    """Return the rules that a cell breaks, in words; none where it keeps them all.

    Args:
        found: its figures.
        expected: the coefficients that ought to be flagged.
        stored: the earlier figures of the same cell.
    """
    judged = max(found.jobs * (1 - found.flagged), 1.0)
    mean_slack = MEAN_SLACK * sqrt(MEAN_VARIANCE / judged / sqrt(found.dimension))
    worst_slack = WORST_SLACK * sqrt(WORST_VARIANCE / judged)
    said = []
    if found.silent > 0:
        said.append("an unflagged coefficient is more than six of its standard errors off")
    if expected in {"alias", "separated"} and found.flagged_named < LEAST_FLAGGED:
        said.append(f"only {found.flagged_named:.2f} of the coefficients that nothing identifies are flagged")
    if expected == "nearly":
        said += _of_a_nearly_empty_cell(found)
    if expected in {"sound", "elsewhere"}:
        said += _of_a_sound_cell(found, expected, stored or Stored())
    if expected == "counted":
        said += _of_counted_least_squares(found)
    said += _beside_the_plain_truth(found, expected, mean_slack, worst_slack)
    said += _beside_stored(found, stored or Stored())
    if expected == "separated" or found.truth is None or found.same is None:
        return said
    if min(found.truth, found.same) + mean_slack < LEAST_MEAN:
        said.append(f"covers {found.truth:.3f} of the truth and {found.same:.3f} of the non-private estimate")
    if min(_or_one(found.truth_worst), _or_one(found.same_worst)) + worst_slack < LEAST_WORST:
        said.append(f"covers {found.truth_worst} and {found.same_worst} of the worst coefficient")
    return said


def _of_a_nearly_empty_cell(found: Verdict) -> list[str]:
    """Return what is wrong where a class is nearly missing at an indicator's value."""
    said = []
    if found.safe_named < LEAST_FLAGGED:
        said.append(f"only {found.safe_named:.2f} of the nearly separated coefficients are flagged or covered")
    if found.flagged_beside > MOST_FLAGGED:
        said.append(f"flags {found.flagged_beside:.3f} of the coefficients beside them")
    return said


def _of_counted_least_squares(found: Verdict) -> list[str]:
    """Return what is wrong with flags, noise and widths of least squares that covers whatever the tails."""
    said = []
    if found.flagged > MOST_FLAGGED:
        said.append(f"flags {found.flagged:.3f} of coefficients that are sound")
    if found.noise is not None and not LEAST_NOISE <= found.noise <= MOST_NOISE:
        said.append(f"noise is {found.noise:.2f} of what is claimed")
    if found.forecast is not None and found.forecast > MOST_OF_FORECAST:
        said.append(f"widths are {found.forecast:.2f} of the forecast")
    if found.least_width < LEAST_WIDTH:
        said.append(f"narrower than non-private: {found.least_width:.2f}")
    return said


def _beside_the_plain_truth(found: Verdict, expected: Expected, mean_slack: float, worst_slack: float) -> list[str]:
    """Return what is wrong beside what `glm` finds in the whole population, and with predictions."""
    said = []
    if found.off > 0:
        said.append(
            f"{found.off} unflagged coefficients are more than six of their standard errors off the plain truth"
        )
    if found.losing is not None and found.losing > 0:
        said.append(f"{found.losing:.2f} of the jobs predict worse than the base rate")
    if expected == "separated" or found.plain is None:
        return said
    if found.plain + mean_slack < LEAST_MEAN:
        said.append(f"covers {found.plain:.3f} of the plain truth")
    if _or_one(found.plain_worst) + worst_slack < LEAST_WORST:
        said.append(f"covers {found.plain_worst:.3f} of the plain truth of the worst coefficient")
    return said


def _or_one(figure: float | None) -> float:
    return 1.0 if figure is None else figure


def _of_a_sound_cell(found: Verdict, expected: Expected, stored: Stored) -> list[str]:
    """Return what is wrong with widths, flags and noise where next to nothing ought to be."""
    said, flags = [], MOST_FLAGGED if expected == "sound" else stored.prototype_flagged
    if expected == "elsewhere" and flags is not None:
        one_job = 1 / found.jobs
        flags = max(MOST_FLAGGED, MOST_FLAGS_OF_PROTOTYPE * flags + 2 * sqrt(flags * (1 - flags) * one_job))
    if flags is not None and found.flagged > flags:
        said.append(f"flags {found.flagged:.3f} of coefficients that are sound")
    if found.noise is not None and not LEAST_NOISE <= found.noise <= MOST_NOISE:
        said.append(f"noise is {found.noise:.2f} of what is claimed")
    if min(found.least_width, found.sampling) < LEAST_WIDTH:
        said.append(f"narrower than non-private: {found.least_width:.2f}, its sampling part {found.sampling:.2f}")
    if not LEAST_FORESEEN <= found.foreseen <= MOST_FORESEEN:
        said.append(f"standard errors are {found.foreseen:.2f} of what is foreseen")
    if found.rival > MOST_OF_RIVAL:
        said.append(f"widths are {found.rival:.2f} of objective perturbation's leading term")
    before = stored.prototype_width
    if before is not None and found.width > MOST_OF_PROTOTYPE * before:
        said.append(f"widths of {found.width:.2f}, the prototype's {before:.2f}")
    return said


def wider(line: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a cell's width beside an earlier state's, in words; none where that was not sound.

    Args:
        line: a cell's figures.
        before: of the same cell in the earlier state.
    """
    if before["broken"] or line["expected"] == "counted" or line["width"] <= MOST_OF_EARLIER * before["width"]:
        return []
    return [f"widths of {line['width']:.2f}, {before['width']:.2f} before"]


def _beside_stored(found: Verdict, stored: Stored) -> list[str]:
    """Return what is wrong beside what the same cell came to here before."""
    said, width = [], stored.width
    if width is not None and not LEAST_OF_STORED * width <= found.width <= MOST_OF_STORED * width:
        said.append(f"widths of {found.width:.2f}, stored {width:.2f}")
    if stored.sampling is not None and found.sampling < LEAST_SAMPLING_OF_STORED * stored.sampling:
        said.append(f"a sampling part of {found.sampling:.2f}, stored {stored.sampling:.2f}")
    if stored.flagged is not None and found.flagged > stored.flagged + FLAGS_BEYOND_STORED:
        said.append(f"flags {found.flagged:.2f}, stored {stored.flagged:.2f}")
    return said
