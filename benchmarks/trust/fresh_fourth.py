"""Shapes about two changes: outcomes that columns nearly decide, and budgets from one to three times the budget line.

Committed, with sizes and seeds, before their first run. `TUNING` is for looking at while the checks are changed;
`JUDGING` is run when they are fixed. In both, some shapes decide outcomes (slopes of 5.4 to 13 logits a deviation of
the predictor). Some have slopes that are strong and finite, or ordinary ones beside little budget; no check ought to
take these for the former.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from benchmarks.trust.jobs import Cell
from benchmarks.trust.row import ALIASED, LOGISTIC, Row
from benchmarks.trust.shapes import REACH, Array, Columns, Maker, Outcome, usual_slopes
from benchmarks.trust.verdicts import Expected

TUNING_SEED, JUDGING_SEED = 77_104_233, 90_481_517
WIDE: Final = 12.0


def _plain(values: Array, slopes: Array, wide: float = WIDE, centre: Array | None = None) -> Columns:
    count = values.shape[1]
    middle = np.zeros(count) if centre is None else centre
    return Columns(values, ((-wide, wide),) * count, (False,) * count, slopes, middle)


def _groups(draws: np.random.Generator, units: int, count: int, apart: float, part: float = 0.5) -> Columns:
    """Return two groups of records along the diagonal of half of the columns.

    Slopes are those of the rule that tells such groups apart, so that outcomes are the groups, nearly.
    """
    half = max(2, count // 2)
    direction = np.r_[np.full(half, half**-0.5), np.zeros(count - half)]
    group = draws.random(units) < part
    values = draws.normal(size=(units, count)) + np.where(group, apart / 2, -apart / 2)[:, None] * direction
    return _plain(values, apart * direction)


def wine_like(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two groups five deviations apart: slopes of 13 a deviation of the predictor."""
    return _groups(draws, units, count, 5.0)


def groups_overlap(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two groups three deviations apart: slopes of 5.4."""
    return _groups(draws, units, count, 3.0)


def groups_near(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two groups one and a half deviations apart: slopes of 1.9."""
    return _groups(draws, units, count, 1.5)


def tails_decide(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of long tails, half of which decide outcomes: slopes of about 7."""
    values, half = draws.normal(size=(units, count)), max(1, count // 2)
    values[:, :half] = np.exp(0.8 * values[:, :half])
    slopes = np.r_[np.full(half, 5.5 / half**0.5), np.zeros(count - half)]
    centre = np.r_[np.full(half, 1.2), np.zeros(count - half)]
    return _plain(values, slopes, 40.0, centre)


def all_decide(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return normal columns that decide outcomes together: slopes of 6."""
    return _plain(draws.normal(size=(units, count)), np.resize((6.0, -6.0), count) / count**0.5, REACH)


def one_strong(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return normal columns, the first of which has a slope of 1.8."""
    return _plain(draws.normal(size=(units, count)), np.r_[1.8, np.zeros(count - 1)], REACH)


def difference_decides(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two columns correlated by .9 whose difference decides outcomes: slopes of 7."""
    values = draws.normal(size=(units, count))
    values[:, 1] = 0.9 * values[:, 0] + np.sqrt(0.19) * values[:, 1]
    slopes = np.r_[15.6, -15.6, np.zeros(count - 2)]
    return _plain(values, slopes, REACH)


def scores_decide(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return scores from 1 to 5 that decide outcomes: slopes of about 6.5."""
    values, half = draws.normal(size=(units, count)), max(2, count // 2)
    values[:, :half] = draws.choice([1.0, 2.0, 3.0, 4.0, 5.0], (units, half), p=[0.1, 0.2, 0.4, 0.2, 0.1])
    slopes = np.r_[np.full(half, 6.5 / 1.1 / half**0.5), np.zeros(count - half)]
    return _plain(values, slopes, 10.0, np.r_[np.full(half, 3.0), np.zeros(count - half)])


def mixed_decide(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return indicators of four records in ten and normal columns that decide outcomes together: slopes of about 6."""
    values, many = draws.normal(size=(units, count)), max(1, count // 3)
    values[:, :many] = draws.random((units, many)) < 0.4
    slopes = np.r_[np.full(many, 4.0), 5.0, np.zeros(count - many - 1)]
    bounds = ((0.0, 1.0),) * many + ((-REACH, REACH),) * (count - many)
    two, centre = (True,) * many + (False,) * (count - many), np.r_[np.full(many, 0.4), np.zeros(count - many)]
    return Columns(values, bounds, two, slopes, centre)


def rare_group(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return a group of 15 % of the records, four and a half deviations from the others: slopes of 8."""
    return _groups(draws, units, count, 4.5, 0.15)


def heavy_strong(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns of five degrees of freedom with slopes of 4: strong, and finite."""
    slopes = np.resize((1.0, -1.0), count) * 4.0 / (count * 5 / 3) ** 0.5
    return _plain(draws.standard_t(5, (units, count)), slopes, 30.0)


def groups_apart(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return two groups two deviations apart: slopes of 2.8."""
    return _groups(draws, units, count, 2.0)


def waiting_times(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return skewed positive columns with slopes of 1.5 in all."""
    values = draws.gamma(2.0, 1.0, (units, count))
    slopes = np.resize((1.0, -1.0, 0.5), count)
    slopes *= 1.5 / np.sqrt(2 * (slopes**2).sum())
    return Columns(values, ((0.0, 40.0),) * count, (False,) * count, slopes, np.full(count, 2.0))


def uniform(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return uniform columns with the usual slopes."""
    return _plain(np.sqrt(12) * (draws.random((units, count)) - 0.5), usual_slopes(count), REACH)


def one_factor(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns correlated by .5 each, with the usual slopes."""
    values = np.sqrt(0.5) * (draws.normal(size=(units, 1)) + draws.normal(size=(units, count)))
    return _plain(values, usual_slopes(count), REACH)


def half_alias(draws: np.random.Generator, units: int, count: int) -> Columns:
    """Return columns correlated by .5, of which the second is the first with its sign changed."""
    found = one_factor(draws, units, count)
    found.values[:, 1] = -found.values[:, 0]
    return found


FOURTH: Final[dict[str, Maker]] = {
    "wine_like": wine_like,
    "groups_overlap": groups_overlap,
    "groups_near": groups_near,
    "tails_decide": tails_decide,
    "all_decide": all_decide,
    "one_strong": one_strong,
    "difference_decides": difference_decides,
    "scores_decide": scores_decide,
    "mixed_decide": mixed_decide,
    "rare_group": rare_group,
    "heavy_strong": heavy_strong,
    "groups_apart": groups_apart,
    "waiting_times": waiting_times,
    "uniform": uniform,
    "one_factor": one_factor,
    "half_alias": half_alias,
}
_TUNED_DECIDED: Final = ("wine_like", "groups_overlap", "tails_decide", "all_decide")
_TUNED_SOUND: Final = ("groups_near", "one_strong", "normal")
_JUDGED_DECIDED: Final = ("difference_decides", "scores_decide", "mixed_decide", "rare_group")
_JUDGED_STRONG: Final = ("heavy_strong", "groups_apart")
_JUDGED_SOUND: Final = ("waiting_times", "uniform", "one_factor")


def fourth_rows() -> Iterator[Row]:
    """Yield all of them."""
    yield from tuning_rows()
    yield from judging_rows()


def tuning_rows() -> Iterator[Row]:
    """Yield what was looked at while the checks were changed."""
    sizes = ((4000, 8, 0.3, 0.5), (1500, 5, 0.5, 0.5), (10_000, 10, 0.2, 0.3), (4000, 6, 1.0, 0.5))
    for shape in _TUNED_DECIDED:
        for units, dimension, mu, base in sizes:
            yield Row(Cell(shape, units, dimension, mu, Outcome("logistic", base)), "separated", TUNING_SEED)
    for shape in _TUNED_SOUND:
        for units, dimension, mu, base in (*sizes, (600, 6, 0.3, 0.5), (2500, 16, 0.25, 0.5), (6000, 11, 0.08, 0.5)):
            yield Row(Cell(shape, units, dimension, mu, Outcome("logistic", base)), seed=TUNING_SEED)
    for units, dimension, mu in ((600, 6, 0.4), (3000, 12, 0.2), (2000, 9, 0.2)):
        yield Row(Cell("alias", units, dimension, mu, LOGISTIC), "alias", TUNING_SEED, ALIASED)


def judging_rows() -> Iterator[Row]:
    """Yield what judges the checks as they are now.

    Slopes of six to eight are long and finite: an interval that covers them is as good as a flag, so nothing is asked
    but that what is not flagged is covered, and never silent.
    """
    sizes = ((3000, 7, 0.3, 0.5), (1200, 4, 0.7, 0.5), (12_000, 12, 0.15, 0.35), (5000, 9, 0.8, 0.5))
    for shape in (*_JUDGED_DECIDED, *_JUDGED_STRONG, *_JUDGED_SOUND):
        decided: Expected = "elsewhere" if shape in (*_JUDGED_DECIDED, *_JUDGED_STRONG) else "sound"
        for units, dimension, mu, base in sizes:
            yield Row(Cell(shape, units, dimension, mu, Outcome("logistic", base)), decided, JUDGING_SEED)
    near = (
        (500, 5, 0.4, 0.5),
        (900, 8, 0.3, 0.5),
        (4000, 14, 0.15, 0.5),
        (3000, 6, 0.15, 0.2),
        (20_000, 16, 0.05, 0.5),
    )
    for shape in ("waiting_times", "uniform", "one_factor"):
        for units, dimension, mu, base in near:
            yield Row(Cell(shape, units, dimension, mu, Outcome("logistic", base)), seed=JUDGING_SEED)
    for units, dimension, mu in ((800, 7, 0.4), (4000, 14, 0.2), (2500, 5, 0.1)):
        yield Row(Cell("half_alias", units, dimension, mu, LOGISTIC), "alias", JUDGING_SEED, ALIASED)
