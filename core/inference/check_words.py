"""Warnings of a method about its own estimate, in words."""

from typing import Final

from core.inference import tails
from core.inference.checks import Checks
from core.inference.released import Released
from core.inference.settings import UNCHECKED

_SAID: Final = {
    "not converged": "The last gradient is longer than noise explains: the steps had not arrived.",
    "too many coefficients": "Noise hides the Hessian: this budget does not carry so many coefficients.",
    "separated": "The outcome may be separated: the answers do not exclude that some combination of features predicts "
    "it without error.",
    "too few events": "Fewer than ten of the rarer outcome for each coefficient were counted, with noise.",
}
_SAID_OF_ONE: Final = {
    "not identified": "not identified: an alias of others, or no records there, or noise hides it",
    "separated": "the answers do not exclude that an outcome is missing among its records or among all others, or the "
    "estimate is extreme",
    "too few events": "fewer than ten records of its class, or of the baseline's, for each of its coefficients were "
    "counted, with noise",
    "clipped": "the noise hides how far a few large residuals move this mean: declare tighter bounds of the target, "
    "spend more budget, or estimate a location that large residuals do not move (loss huber)",
    "too uncertain": "a column of few values, or with one value in most records, leaves its effect, or the intercept, "
    "open by several logits, log rates or residual scales",
    "scale outside the plan": "the answers show no variation: the column hardly varies within its declared bounds, or "
    "noise hides it",
}
"""Answers are noised: a flag says what they do not exclude, and never that the records are so."""


def of_job(released: Released) -> list[tuple[str, str]]:
    """Return what is wrong with the whole estimate: each flag with its sentence; of unchecked intervals, that."""
    if released.checks is None:
        return [] if released.covariance is None else [("unchecked intervals", UNCHECKED)]
    return [(one, _SAID[one]) for one in released.checks.job]


def of_coefficient(released: Released, place: int) -> tuple[list[str], list[str]]:
    """Return what withholds the interval of a coefficient, and what is to be known of one that has an interval."""
    checks = released.checks
    if checks is None:
        return [], []
    flags = [f"{one}: {_SAID_OF_ONE[one].removeprefix(f'{one}: ')}" for one in checks.coefficients[place]]
    ends = checks.learned.columns[place % len(checks.learned.columns)].clamped
    cut = "this is the effect of the cut column"
    notes = [f"clamped: many records lie at the declared {end} bound, {cut}" for end in ends]
    if place in checks.far:
        kept = _kept(checks, place)
        notes.append(f"weighted: far records count less{kept and f' ({kept})'}")
    return flags, notes


def _kept(checks: Checks, place: int) -> str:
    """Return the part of a column's spread that is kept as a phrase; empty where none was counted."""
    kept = checks.kept[place]
    return "" if kept is None else f"kept {100 * kept:.0f} %"


def estimand(released: Released) -> str:
    """Return a sentence of a methods section on what weighted coefficients are, after a blank; empty without any."""
    if released.checks is None or not released.checks.far:
        return ""
    named = ", ".join(released.names[place] for place in released.checks.far)
    return (
        " Coefficients solve the weighted equation, in which far records count less. For some it may differ from the "
        f"unweighted fit by more than half a standard error: {named}."
    )


def checked(released: Released) -> list[str]:
    """Return what a method found wrong with its own estimate, and what it saw of columns; a sentence each."""
    checks, said = released.checks, [words for _, words in of_job(released)]
    if checks is None:
        return said
    said += tails.words(released)
    for name, flags in zip(released.names, checks.coefficients, strict=True):
        said += [f"The interval of {name} is withheld; {_SAID_OF_ONE[one]}." for one in flags]
    if checks.far:
        each = [f"{released.names[place]}{(kept := _kept(checks, place)) and f' ({kept})'}" for place in checks.far]
        said.append(
            f"Weighted: far records count less for {', '.join(each)}. Intervals are those of the weighted equation; "
            "if the effect is not a straight line there, a plain glm differs."
        )
    cut, beyond = checks.learned.cut, checks.learned.beyond
    if cut is not None and beyond is not None:
        said.append(
            f"Residuals are cut at {cut:.3g} residual scales. The mean of what lies beyond is {beyond:.2g} of them, as "
            "counted with noise; it was added to the intercept, and intervals allow for its error. This takes large "
            "residuals to become steadily rarer with their size: a few records far from all others are not seen."
        )
    for name, column in zip(released.design.names, checks.learned.columns, strict=True):
        for end in column.clamped:
            said.append(
                f"Many records have {name} at its declared {end} bound: where values beyond it were cut, its "
                "coefficient is that of the cut column."
            )
    ratio, error = checks.learned.score_ratio, checks.learned.score_ratio_error
    if ratio is not None and error is not None:
        said.append(
            f"Counts vary {max(ratio, 0.0):.2g} times as much as a Poisson law says (deviation of the noise "
            f"{error:.1g}); standard errors are the sandwich's and allow for it."
        )
    return said
