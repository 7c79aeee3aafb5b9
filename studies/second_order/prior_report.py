"""The findings of J1 and J2: both sides' gradients and curvatures, and the paper's claim as a hypothesis, in pairs."""

from collections.abc import Sequence
from statistics import median

from scipy.stats import ttest_rel

from core.methods.second_order.perturbed_spider.spec import RECONSTRUCTION
from studies.inference.results import Result, Row
from studies.second_order.prior_work import (
    KEPT,
    PARTS,
    RUNS,
    SEEDS,
    Case,
    MethodPair,
    Rival,
    on_carton,
    on_component,
    pairs,
)

LEVEL = 0.01
KINDS = ("selected", "last", "random", "best")


def rival_component(*, full: bool) -> Result:
    """J1: prior work on the rank-one problem."""
    return _study(on_component(), full=full)


def rival_carton(*, full: bool) -> Result:
    """J2: prior work on the egg carton."""
    return _study(on_carton(), full=full)


def _study(case: Case, *, full: bool) -> Result:
    """Run both sides on twenty seeds, those that are stored taken from there; or on two."""
    return report(case, pairs(case, range(SEEDS), RUNS) if full else pairs(case, range(2)))


def report(case: Case, found: Sequence[MethodPair]) -> Result:
    """Return what so many pairs tell."""
    ours = [one.ours for one in found]
    rows = [
        Row("Gauss-PSGD: share that found a point", None, sum(one.found for one in ours) / len(ours)),
        Row("Gauss-PSGD: median gradient", None, median(one.at.gradient for one in ours)),
        Row("Gauss-PSGD: least curvature of any", None, min(one.at.curvature for one in ours)),
        Row("Gauss-PSGD: median records", None, median(one.records for one in ours)),
    ]
    said = []
    for place, part in enumerate(PARTS):
        name = "1/M" if part == 1 else f"{part:g}/M"
        rivals = [one.rivals[place] for one in found]
        rows += _rows(name, [one.at.gradient for one in ours], rivals)
        said.append(f"with steps of {name} {_verdict([one.at.gradient for one in ours], rivals)}")
    return Result(
        case.key,
        case.title,
        f"Prior work is {RECONSTRUCTION}. {case.whole.units:,} records, epsilon 1, delta 1e-5, replace_one; prior work "
        f"keeps {case.held:,} of them back, from which AboveThreshold (epsilon 1) selects among at most {KEPT} of its "
        "iterates. Its batches, drift, trigger and wait are those of Gauss-PSGD, its further noise is psi/sqrt(p). "
        f"{len(found)} seeds of {SEEDS}, in pairs.",
        tuple(rows),
        "The paper claims that Gauss-PSGD does better. Of the length of the final gradient that is, "
        f"{'; '.join(said)}. Gauss-PSGD says something of the very point it returns; of prior work's last "
        "iterate nothing is said, one at random may be near a saddle still, and AboveThreshold stops at the first that "
        "is good enough.",
    )


def _rows(name: str, ours: Sequence[float], rivals: Sequence[Rival]) -> list[Row]:
    """Return what is shown of one step size; small p-values are for the claim that our gradients are shorter."""
    rows = [Row(f"{name}: share in which one was selected", None, _share([one.selected is not None for one in rivals]))]
    for kind in KINDS:
        both = [(one, at) for one, two in zip(ours, rivals, strict=True) if (at := getattr(two, kind)) is not None]
        if len(both) > 1:
            mine, theirs = [one for one, _ in both], [at.gradient for _, at in both]
            rows += [
                Row(f"{name}, {kind}: median gradient", None, median(theirs)),
                Row(f"{name}, {kind}: least curvature of any", None, min(at.curvature for _, at in both)),
                Row(
                    f"{name}, {kind}: share in which ours is shorter",
                    None,
                    _share([a < at.gradient for a, at in both]),
                ),
                Row(f"{name}, {kind}: p-value of the claim, paired t-test", None, _p_value(mine, theirs)),
            ]
    return [
        *rows,
        Row(f"{name}: median disturbances", None, median(one.disturbed for one in rivals)),
        Row(f"{name}: median records", None, median(one.records for one in rivals)),
    ]


def _share(true: Sequence[bool]) -> float:
    return sum(true) / len(true)


def _p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the one-sided p-value of equal means against ours being smaller."""
    return float(ttest_rel(ours, theirs, alternative="less").pvalue)


def _verdict(ours: Sequence[float], rivals: Sequence[Rival]) -> str:
    """Say in words what the pairs tell of the claim, against the selected iterates and the last ones."""
    said = []
    for kind in ("selected", "last"):
        both = [(one, at.gradient) for one, two in zip(ours, rivals, strict=True) if (at := getattr(two, kind))]
        if len(both) < 2:  # noqa: PLR2004 - a test has a variance
            continue
        p_value = _p_value(*zip(*both, strict=True))
        verdict = "supported" if p_value < LEVEL else "refuted" if p_value > 1 - LEVEL else "undecided"
        said.append(f"{verdict} against the {kind} one (p = {p_value:.2g})")
    return " and ".join(said)
