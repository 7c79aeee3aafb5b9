"""Intervals of descriptions cover what they say they do, on fresh data of shapes that nothing was tuned on.

Each case draws new data for every job and asks through the real oracle. Seeds of data are fixed and the noise follows
from a test's name, so a run repeats and none fails by chance. A share of intervals is compared with the least that .95
shows by the binomial law: 3e-6 each at other draws, jobs counted as one where figures of one job go together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import binom

from core.data.columns import CategoryColumn, NumberColumn, Scalar
from core.inference import description_figures as figures
from core.inference.description import Answers
from core.mechanisms.generator import SystemGenerator
from core.methods.describe import fit as describe
from core.methods.describe.layout import make_layout
from core.methods.describe.spec import Describe
from core.models.description import DescriptionModel
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.planning.describing import description_facts
from core.privacy.facts import Adjacency
from core.queries.sums.table import TableProblem

Array = NDArray[np.float64]
LEVEL = 0.95
FRACTIONS = (0.25, 0.5, 0.75)


def least(jobs: int) -> float:
    """Return the smallest share that .95 would show with probability 1 - 3e-6."""
    return float(binom.ppf(3e-6, jobs, LEVEL)) / jobs


def population(units: int) -> int:
    """Return how many records stand for the truth: 40 for each of a job's, so that their own error does not count."""
    return 40 * max(units, 10_000)


def ask(
    columns: tuple[Scalar, ...], values: Array, model: DescriptionModel, mu: float, adjacency: Adjacency
) -> Answers:
    """Run the method at the real oracle."""
    public = description_facts(columns, len(values), adjacency)
    settings = Describe(layout=make_layout(columns, model)).plan(public, mu)
    problem = TableProblem(torch.from_numpy(values.copy()), torch.ones(len(values)).bool())
    return describe.iterate(settings, FullOracle(problem, public, UnlimitedFilter(), SystemGenerator())).value


@dataclass(frozen=True)
class Shape:
    """Numbers, and where they are declared to lie."""

    draw: Callable[[np.random.Generator, int], Array]
    lower: float
    upper: float
    missing: float = 0.0

    def encoded(self, draws: np.random.Generator, count: int) -> Array:
        """Return numbers as parts of the range, some of them missing."""
        found = (self.draw(draws, count).clip(self.lower, self.upper) - self.lower) / (self.upper - self.lower)
        found[draws.random(count) < self.missing] = np.nan
        return found


def mixture(draws: np.random.Generator, count: int) -> Array:
    return np.where(draws.random(count) < 0.3, draws.normal(-6, 0.5, count), draws.gamma(2, 2, count))


SHAPES = {
    "two heaps": Shape(mixture, -10, 40),
    "zeros and amounts": Shape(lambda draws, n: np.where(draws.random(n) < 0.85, 0, draws.lognormal(1, 1, n)), 0, 500),
    "all one value": Shape(lambda _, n: np.full(n, 3.3), 0, 10),
    "bounds 100 times too wide": Shape(lambda draws, n: draws.normal(20, 3, n), -900, 900),
    "scores of a few values": Shape(lambda draws, n: draws.integers(1, 6, n).astype(float), 0, 10),
    "a third missing": Shape(lambda draws, n: draws.logistic(0, 1, n), -12, 12, missing=0.33),
}


def judged(shape: Shape, units: int, mu: float, jobs: int, adjacency: Adjacency) -> dict[str, float]:
    """Return the share of intervals that hold the truth, by figure."""
    column = NumberColumn(name="x", lower=shape.lower, upper=shape.upper)
    model = DescriptionModel(statistics=("quantiles", "means", "histograms", "missing"), bins=6)
    draws = np.random.default_rng([units, jobs])
    whole = shape.encoded(np.random.default_rng(1), population(units))
    known = np.sort(whole[np.isfinite(whole)])
    quantiles = np.quantile(known, FRACTIONS, method="inverted_cdf")
    held: dict[str, list[float]] = {"mean": [], "mean within": [], "quantiles": [], "histogram": [], "missing": []}
    for _ in range(jobs):
        answers = ask((column,), shape.encoded(draws, units)[:, None], model, mu, adjacency)
        (sums,), (counts,), (bins,) = answers.sums, answers.of("quantiles"), answers.of("histograms")
        cut = known.clip(sums.cut.centre - sums.cut.reach, sums.cut.centre + sums.cut.reach).mean()
        held["mean"].append(holds(figures.mean(sums, units, LEVEL, "population", cut=False), known.mean()))
        held["mean within"].append(holds(figures.mean(sums, units, LEVEL, "population", cut=True), cut))
        found = [figures.quantile(counts, one, units, LEVEL, "population") for one in FRACTIONS]
        held["quantiles"].append(
            np.mean([holds(one, truth, 1e-9) for one, truth in zip(found, quantiles, strict=True)])
        )
        (axis,) = bins.partition.axes
        below = np.searchsorted(known, axis.edges or (), side="left") / len(known)
        truths = np.diff(np.concatenate(([0.0], below, [1.0])))
        shares = figures.shares(bins, units, LEVEL, "population")
        held["histogram"].append(np.mean([holds(one, truth) for one, truth in zip(shares, truths, strict=True)]))
        (lost,) = figures.shares(answers.of("missing")[0], units, LEVEL, "population")
        held["missing"].append(holds(lost, 1 - len(known) / population(units), 2e-3))
    return {name: float(np.mean(some)) for name, some in held.items()}


def holds(figure: figures.Figure, truth: float, slack: float = 0.0) -> bool:
    """Say whether an interval holds a truth; a figure that is withheld claims nothing."""
    return figure.interval is None or figure.interval[0] - slack <= truth <= figure.interval[1] + slack


@pytest.mark.parametrize(
    ("units", "mu", "jobs"),
    [pytest.param(2_000, 0.5, 60, marks=pytest.mark.nightly), (200, 1.0, 60), (100_000, 0.2, 12)],
    ids=["2,000", "200", "100,000"],
)
@pytest.mark.parametrize("name", SHAPES)
def test_numbers(name: str, units: int, mu: float, jobs: int) -> None:
    found = judged(SHAPES[name], units, mu, jobs, Adjacency.ZERO_OUT)
    assert min(found.values()) >= least(jobs), found


def test_numbers_where_a_record_may_change() -> None:
    found = judged(SHAPES["two heaps"], 2_000, 0.5, 60, Adjacency.REPLACE_ONE)
    assert min(found.values()) >= least(60), found


@pytest.mark.parametrize(("units", "mu"), [(300, 1.0), (5_000, 0.3)])
def test_forty_levels_with_rare_ones(units: int, mu: float) -> None:
    """Half of the levels are rarer than one record in 2,000, some in no record; a twentieth of values is missing."""
    chances = 0.75 ** np.arange(40)
    chances /= chances.sum()
    column = CategoryColumn(name="x", values=tuple(f"v{at}" for at in range(40)))
    model, draws, held = DescriptionModel(statistics=("frequencies",)), np.random.default_rng(units), []
    widths = []
    for _ in range(60):
        values = draws.choice(40, units, p=chances).astype(float)
        values[draws.random(units) < 0.05] = np.nan
        (counts,) = ask((column,), values[:, None], model, mu, Adjacency.ZERO_OUT).counts
        shares = figures.shares(counts, units, LEVEL, "population")
        held.append(np.mean([holds(one, truth) for one, truth in zip(shares, chances, strict=True)]))
        widths.append(np.mean([np.ptp(one.interval or (0.0, 1.0)) for one in shares]))
    assert np.mean(held) >= LEVEL - 4.5 * np.std(held) / sqrt(60)
    assert np.mean(widths) < 0.1


@pytest.mark.parametrize(("units", "mu"), [(1_000, 1.0), (20_000, 0.3)])
def test_tables_and_correlations(units: int, mu: float) -> None:
    """Skewed numbers that go together, of different precision, and one that hardly varies."""
    columns = (
        NumberColumn(name="a", lower=-8, upper=8),
        NumberColumn(name="b", lower=0, upper=60),
        NumberColumn(name="c", lower=0, upper=1e6),
        CategoryColumn(name="d", values=("u", "v", "w")),
    )
    model = DescriptionModel(statistics=("correlations",), tables=(("a", "d"), ("b", "d")))

    def draw(draws: np.random.Generator, count: int) -> Array:
        shared = draws.normal(size=count)
        a, b = shared + 0.5 * draws.normal(size=count), np.exp(1 + 0.7 * shared)
        d = np.where(draws.random(count) < 0.05, 2, draws.random(count) < 1 / (1 + np.exp(-2 * shared)))
        return np.column_stack(((a.clip(-8, 8) + 8) / 16, b.clip(0, 60) / 60, 1e-4 * draws.random(count), d))

    whole, draws = draw(np.random.default_rng(0), population(units)), np.random.default_rng(units)
    held: dict[str, list[float]] = {"correlation": [], "tables": []}
    for _ in range(60):
        answers = ask(columns, draw(draws, units), model, mu, Adjacency.ZERO_OUT)
        found = answers.products
        assert found is not None, "correlations were asked for"
        ends = [(cut.centre - cut.reach, cut.centre + cut.reach) for cut in found.columns]
        truth = np.corrcoef([whole[:, at].clip(*end) for at, end in enumerate(ends)])[np.triu_indices(3, 1)]
        told = figures.correlations(found, units, LEVEL, "population")
        held["correlation"].append(np.mean([holds(one, rho, 1e-3) for one, rho in zip(told, truth, strict=True)]))
        for counts in answers.of("tables"):
            axis, other = counts.partition.axes
            cell = 3 * np.digitize(whole[:, axis.column], axis.edges or ()) + whole[:, other.column].astype(int)
            truths = np.bincount(cell, minlength=counts.partition.cells - 1) / len(whole)
            shares = figures.shares(counts, units, LEVEL, "population")
            held["tables"].append(np.mean([holds(one, p, 1e-4) for one, p in zip(shares, truths, strict=True)]))
    for name, some in held.items():
        assert np.mean(some) >= LEVEL - 4.5 * np.std(some) / sqrt(len(some)), (name, np.mean(some))


def test_intervals_without_noise_would_be_seen() -> None:
    """Planted bug: sampling alone is counted. Such intervals hold the truth in far fewer jobs."""
    column = CategoryColumn(name="x", values=("a", "b"))
    draws, held = np.random.default_rng(2), []
    for _ in range(60):
        values = (draws.random(2_000) < 0.3).astype(float)
        model = DescriptionModel(statistics=("frequencies",))
        (counts,) = ask((column,), values[:, None], model, 0.02, Adjacency.ZERO_OUT).counts
        silent = counts.model_copy(update={"deviation": 1e-9})
        held.append(next(holds(one, 0.7) for one in figures.shares(silent, 2_000, LEVEL, "population")))
    assert np.mean(held) < 0.8


@pytest.mark.parametrize(("units", "share", "noise"), [(500, 0.01, 3.0), (500, 0.0, 2.0), (2_000, 0.9, 8.0)])
def test_exact_intervals_of_shares(units: int, share: float, noise: float) -> None:
    """The law of a count and its noise, written out: coverage is at least the level."""
    draws, held = np.random.default_rng(units), []
    for _ in range(400):
        count, lost = draws.binomial(units, share) + noise * draws.normal(), noise * draws.normal()
        lower, upper = figures._limits((1 - LEVEL) / 2, units, count, lost, units, noise)
        held.append(lower <= share <= upper)
    assert np.mean(held) >= least(400)
