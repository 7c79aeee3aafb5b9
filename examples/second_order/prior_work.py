"""J1 and J2: the prior work, as we reconstruct it, where saddles are known; with and without a private selection.

That Gauss-PSGD does better is the paper's claim. It is tested as a hypothesis: twenty seeds in pairs, one budget of
records and one epsilon for both sides. The other side keeps a fifth of its records back, from which AboveThreshold
takes the first of its iterates that passes; what its last one and one at random are worth stands beside that, for they
need no records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import ttest_rel
from torch import Tensor

from core.catalogue.hessian_questions import Hessian
from core.catalogue.questions import Question
from core.catalogue.second_order.figures import known
from core.catalogue.second_order.gauss import GaussPsgd
from core.catalogue.second_order.perturbed import RECONSTRUCTION, PerturbedSpider
from core.catalogue.second_order.selecting import SelectModel
from core.mechanisms.generator import SimulationGenerator
from core.optimizers import perturbed_spider, select_model
from core.oracle import Status
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts
from core.problems.saddles import EggCarton, PrincipalComponent, SaddlePopulation
from examples.inference.results import Result, Row
from examples.second_order.saddles import (
    FAR,
    Seen,
    carton_settings,
    component,
    component_settings,
    facts_of,
    mu_of,
    run,
)

SEEDS = 20
KEPT = 50
HELD_PART = 5
"""One in so many records is held out."""
CARTON = (10, 8_000_000, 0.5, 0.3)
COMPONENT_UNITS = 10_000_000
COMPONENT_SPREAD, COMPONENT_DIFFERENCE_SPREAD = 0.77, 2.4
"""Of a record's gradient around the mean one near the saddle, as a length, and of its change over the distance."""
WORD_BITS = 64
PARTS = (1.0, 0.5)
"""Of 1/M, the steps."""


class HeldOut:
    """Records of a law that nothing was trained on: drawn once, and summed up, for all questions about them.

    Their signs are the bits of words, so that means of signs, and of products of two, are counts.

    Args:
        law: whose.
        units: n, a multiple of 64.
        generator: of the records.
    """

    lanes = None

    def __init__(self, law: SaddlePopulation, units: int, generator: SimulationGenerator) -> None:
        assert units % WORD_BITS == 0, "records are bits of whole words"
        self.units, self.dimension = units, law.dimension
        self._law = law
        words = [generator.bits(units // WORD_BITS) for _ in range(2 * law.dimension)]
        if isinstance(law, PrincipalComponent):
            root = law.spectrum.sqrt()
            products = [[_mean(one ^ other) for other in words[: law.dimension]] for one in words[: law.dimension]]
            self._second = -torch.tensor(products, dtype=torch.float64) * torch.outer(root, root)
        else:
            self._signs = torch.tensor([_mean(one) for one in words], dtype=torch.float64).view(2, -1)

    def slope(self, theta: Tensor) -> Tensor:
        """Return the mean gradient of these records, shape (p,)."""
        if isinstance(self._law, PrincipalComponent):
            return theta.square().sum() * theta - self._second @ theta
        assert isinstance(self._law, EggCarton), "one of the two laws"
        return theta.sin() * (1 + self._law.tau * self._signs[0]) + self._law.sigma * self._signs[1]

    def bend(self, theta: Tensor) -> Tensor:
        """Return their mean Hessian, shape (p, p)."""
        if isinstance(self._law, PrincipalComponent):
            even = torch.eye(self.dimension, dtype=torch.float64) * theta.square().sum()
            return even + 2 * torch.outer(theta, theta) - self._second
        assert isinstance(self._law, EggCarton), "one of the two laws"
        return torch.diag_embed(theta.cos() * (1 + self._law.tau * self._signs[0]))

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum of gradients or of Hessians; the law's own bounds shorten none of them."""
        del facts, other
        return self.units * (self.bend(theta) if isinstance(question, Hessian) else self.slope(theta))

    def integer_sum(self, *_: object, **__: object) -> Tensor:
        """Refuse: what is read in full is summed in floats."""
        raise AssertionError("held-out records are read in full")


def _mean(words: NDArray[np.uint64]) -> float:
    """Return the mean of signs that are the bits of words."""
    return float(2 * np.bitwise_count(words).sum() / (WORD_BITS * len(words)) - 1)


@dataclass(frozen=True)
class Point:
    """What is true of a point."""

    gradient: float
    curvature: float


@dataclass(frozen=True)
class Rival:
    """What prior work gave in one run."""

    last: Point
    random: Point
    best: Point
    """The shortest gradient among those kept that are no saddle: nobody could choose it privately."""
    selected: Point | None
    """By AboveThreshold; None: no candidate passed."""
    disturbed: int
    records: int


def truth(law: SaddlePopulation, theta: Tensor) -> Point:
    """Return what is true of a point, shape (p,)."""
    return Point(float(torch.linalg.vector_norm(law.mean_gradient(theta))), float(law.least_curvature(theta)))


def rival_settings(law: SaddlePopulation, ours: GaussPsgd, part: float) -> PerturbedSpider:
    """Return prior work with the batches, drift, trigger and wait of Gauss-PSGD's settings, and a part of 1/M.

    Its further noise is of the size of the error that is known of the law, not of the bound.
    """
    told = law.smoothness()
    figures = {
        name: getattr(ours, name)
        for name in ("mu", "batch", "difference_batch", "restart_drift", "error_radius", "spread", "difference_spread")
    }
    figures |= {"smoothness": told.smoothness, "frozen_steps": ours.round_steps, "keep_iterates": KEPT, "radius": FAR}
    figures |= {"start": ours.start, "step_size": part / told.smoothness}
    if isinstance(law, PrincipalComponent):
        figures |= {"spread": COMPONENT_SPREAD, "difference_spread": COMPONENT_DIFFERENCE_SPREAD}
    return PerturbedSpider.model_validate(figures).plan(facts_of(law), mu_of())


def rival(law: SaddlePopulation, settings: PerturbedSpider, ours: GaussPsgd, held: int, seed: int) -> Rival:
    """Run prior work once, and select among its iterates on held-out records."""
    facts = facts_of(law)
    oracle = Simulation(law, facts, SimulationGenerator(seed), sampling=settings.sampling(facts))
    estimate, _ = perturbed_spider.iterate(settings, oracle)
    state = oracle.resume({})
    points = estimate.iterates
    assert points is not None, "they are kept"
    true = [truth(law, point) for point in points]
    sharp = ours.sharpest()
    good = [one for one in true if one.curvature >= -sharp] or true
    return Rival(
        last=true[-1],
        random=true[oracle.coins.integer(len(true))],
        best=min(good, key=lambda one: one.gradient),
        selected=select(law, points, ours, held, seed),
        disturbed=int(state["disturbed"]),
        records=int(state["restarts"]) * known(settings.batch)
        + int(state["differences"]) * known(settings.difference_batch),
    )


def select(law: SaddlePopulation, points: Tensor, ours: GaussPsgd, held: int, seed: int) -> Point | None:
    """Return the first of some points that passes AboveThreshold on fresh records, at epsilon 1."""
    told, facts = law.smoothness(), facts_of(law).model_copy(update={"units": held})
    asked = SelectModel(
        mode="above_threshold",
        epsilon=1.0,
        alpha=4 * known(ours.error_radius),
        gamma_star=ours.sharpest(),
        smoothness=told.smoothness,
        candidates=len(points),
    ).plan(facts, mu_of())
    records = HeldOut(law, held, SimulationGenerator(10_000 + seed))
    oracle = Simulation(records, facts, SimulationGenerator(20_000 + seed))
    estimate, status = select_model.iterate(asked, oracle, points)
    return None if status is Status.NONE else truth(law, estimate.theta)


def rival_component(*, full: bool) -> Result:
    """J1: on the rank-one problem, from the strict saddle."""
    whole, less = (component(units) for units in _divided(COMPONENT_UNITS))
    return _compared(
        "J1",
        "Prior work where saddles are known: rank-one principal component",
        (whole, component_settings(whole)),
        (less, component_settings(less)),
        full=full,
    )


def rival_carton(*, full: bool) -> Result:
    """J2: on the egg carton, from a saddle of index 1."""
    whole, less = (EggCarton(CARTON[0], units, *CARTON[2:]) for units in _divided(CARTON[1]))
    return _compared(
        "J2",
        "Prior work where saddles are known: egg carton",
        (whole, carton_settings(whole, whole.saddle(1))),
        (less, carton_settings(less, less.saddle(1))),
        full=full,
    )


def _divided(units: int) -> tuple[int, int]:
    """Return all records, and those that are left when some are held out."""
    return units, units - units // HELD_PART


def _compared(
    key: str,
    title: str,
    ours: tuple[SaddlePopulation, GaussPsgd],
    theirs: tuple[SaddlePopulation, GaussPsgd],
    *,
    full: bool,
) -> Result:
    """Run both sides on the same seeds."""
    (whole, settings), (less, base) = ours, theirs
    held = (whole.units - less.units) // WORD_BITS * WORD_BITS
    seeds = range(SEEDS if full else 2)
    mine = [run(whole, settings, seed) for seed in seeds]
    rows = [
        Row("Gauss-PSGD: share that found a point", None, sum(_found(one) for one in mine) / len(mine)),
        Row("Gauss-PSGD: median gradient", None, median(one.gradient for one in mine)),
        Row("Gauss-PSGD: least curvature of any", None, min(one.curvature for one in mine)),
        Row("Gauss-PSGD: median records", None, median(one.records for one in mine)),
    ]
    better = []
    for part in PARTS:
        asked = rival_settings(less, base, part)
        runs = [rival(less, asked, base, held, seed) for seed in seeds]
        name = "1/M" if part == 1 else f"{part:g}/M"
        rows += _rows(name, mine, runs)
        better.append(f"at {name} {_claim(mine, runs)}")
    return Result(
        key,
        title,
        f"Prior work is {RECONSTRUCTION}. n = {whole.units:.0e}, epsilon 1, delta 1e-5, replace_one; of its records "
        f"{held:,} are held out for AboveThreshold (epsilon 1, {KEPT} iterates at most). Its batches, drift, trigger "
        f"and wait are Gauss-PSGD's, its further noise psi/sqrt(p). {len(seeds)} seeds, in pairs.",
        tuple(rows),
        "The paper claims that Gauss-PSGD does better. Of the final gradient that is "
        + "; ".join(better)
        + ". Both leave the saddle. What Gauss-PSGD has and the last iterate has not is a statement about the point; "
        "AboveThreshold gives one too, at the price of records, and stops at the first iterate that is good enough.",
    )


def _found(one: Seen) -> bool:
    return one.found.outcome == "no_escape_observed"


def _rows(name: str, mine: Sequence[Seen], runs: Sequence[Rival]) -> list[Row]:
    """Return what is shown of one step size."""
    rows = []
    chosen = [one.selected for one in runs if one.selected is not None]
    rows.append(Row(f"{name}: share in which AboveThreshold took one", None, len(chosen) / len(runs)))
    kinds = {"selected": chosen, "last": [one.last for one in runs], "random": [one.random for one in runs]}
    kinds["best, by nobody's choice"] = [one.best for one in runs]
    for kind, points in kinds.items():
        if points:
            rows.append(Row(f"{name}, {kind}: median gradient", None, median(one.gradient for one in points)))
            rows.append(Row(f"{name}, {kind}: least curvature of any", None, min(one.curvature for one in points)))
    pairs = [(one.gradient, two.last.gradient) for one, two in zip(mine, runs, strict=True)]
    share = sum(one < two for one, two in pairs) / len(pairs)
    rows += [
        Row(f"{name}: share of seeds in which Gauss-PSGD's gradient is shorter than the last one's", None, share),
        Row(f"{name}: median disturbances", None, median(one.disturbed for one in runs)),
        Row(f"{name}: median records", None, median(one.records for one in runs)),
    ]
    return [*rows, *_tests(name, mine, runs)]


def _tests(name: str, mine: Sequence[Seen], runs: Sequence[Rival]) -> list[Row]:
    """Return the paired tests of the paper's claim, that our gradients are shorter; small p-values are for it."""
    rows = []
    for kind in ("selected", "last"):
        pairs = [(one.gradient, at.gradient) for one, two in zip(mine, runs, strict=True) if (at := getattr(two, kind))]
        if len(pairs) > 1:
            ours, theirs = zip(*pairs, strict=True)
            rows.append(Row(f"{name}, {kind}: p-value of the claim, paired t", None, _p_value(ours, theirs)))
    return rows


def _p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the one-sided p-value of equal means against ours being smaller."""
    return float(ttest_rel(ours, theirs, alternative="less").pvalue)


def _claim(mine: Sequence[Seen], runs: Sequence[Rival]) -> str:
    """Say in words what the pairs with the last iterates tell of the claim."""
    ours, theirs = [one.gradient for one in mine], [one.last.gradient for one in runs]
    p_value = _p_value(ours, theirs)
    if p_value < 0.01:  # noqa: PLR2004 - the usual level
        return f"supported against the last iterate (p = {p_value:.2g})"
    if p_value > 0.99:  # noqa: PLR2004 - its other side
        return f"refuted against the last iterate, whose gradients are shorter (p = {p_value:.2g})"
    return f"not supported against the last iterate (p = {p_value:.2g})"
