"""J1 and J2: the prior work, as we reconstruct it, where saddles are known; with and without a private selection.

That Gauss-PSGD does better is the paper's claim. It is tested as a hypothesis: twenty seeds in pairs, one budget of
records and one epsilon for both sides. The other side keeps a fifth of its records back; on these AboveThreshold
selects the first of its iterates that passes. The worth of its last iterate and of a random one stands beside that, for
they need no records.
"""

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.methods.second_order.perturbed_spider import fit as perturbed_spider
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider, PerturbedSpiderPlan
from core.methods.selection.select_model import fit as select_model
from core.methods.selection.select_model.spec import SelectModel
from core.oracle import Status
from core.oracle.simulation import Simulation
from core.privacy.facts import Facts
from core.queries.gradients import Question
from core.queries.hessians import Hessian
from studies.second_order.populations import EggCarton, PrincipalComponent, SaddlePopulation
from studies.second_order.runs import FOLDER, append, is_over, read
from studies.second_order.saddles import (
    FAR,
    carton_settings,
    component,
    component_settings,
    facts_of,
    mu_of,
    run,
)

RUNS: Final = FOLDER / "j-runs.jsonl"
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
        law: of the records.
        units: n, a multiple of 64.
        generator: of the records.
    """

    replicates = None

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
        """Refuse: records that are read in full are summed in floats."""
        raise AssertionError("held-out records are read in full")


def _mean(words: NDArray[np.uint64]) -> float:
    """Return the mean of signs that are the bits of words."""
    return float(2 * np.bitwise_count(words).sum() / (WORD_BITS * len(words)) - 1)


@dataclass(frozen=True)
class Point:
    """The truth about a point."""

    gradient: float
    curvature: float


@dataclass(frozen=True)
class Rival:
    """The results of prior work in one run."""

    last: Point
    random: Point
    best: Point
    """The shortest gradient among those kept that are no saddle: nobody could choose it privately."""
    selected: Point | None
    """By AboveThreshold; None: no candidate passed."""
    disturbed: int
    records: int


@dataclass(frozen=True)
class Ours:
    """The results of Gauss-PSGD."""

    at: Point
    found: bool
    """Whether no round left the point."""
    records: int


@dataclass(frozen=True)
class MethodPair:
    """Both sides on one seed; prior work with each of the step sizes."""

    seed: int
    ours: Ours
    rivals: tuple[Rival, ...]


def truth(law: SaddlePopulation, theta: Tensor) -> Point:
    """Return what is true of a point, shape (p,)."""
    return Point(float(torch.linalg.vector_norm(law.mean_gradient(theta))), float(law.least_curvature(theta)))


def rival_settings(law: SaddlePopulation, ours: GaussPsgdPlan, part: float) -> PerturbedSpiderPlan:
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


def rival(law: SaddlePopulation, settings: PerturbedSpiderPlan, ours: GaussPsgdPlan, held: int, seed: int) -> Rival:
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
        random=true[oracle.randomness.integer(len(true))],
        best=min(good, key=lambda one: one.gradient),
        selected=select(law, points, ours, held, seed),
        disturbed=int(state["disturbed"]),
        records=int(state["restarts"]) * settings.batch + int(state["differences"]) * settings.difference_batch,
    )


def select(law: SaddlePopulation, points: Tensor, ours: GaussPsgdPlan, held: int, seed: int) -> Point | None:
    """Return the first of some points that passes AboveThreshold on fresh records, at epsilon 1."""
    told, facts = law.smoothness(), facts_of(law).model_copy(update={"units": held})
    asked = SelectModel(
        mode="above_threshold",
        epsilon=1.0,
        alpha=4 * ours.error_radius,
        gamma_star=ours.sharpest(),
        smoothness=told.smoothness,
        candidates=len(points),
    ).plan(facts, mu_of())
    records = HeldOut(law, held, SimulationGenerator(10_000 + seed))
    oracle = Simulation(records, facts, SimulationGenerator(20_000 + seed))
    estimate, status = select_model.iterate(asked, oracle, points)
    return None if status is Status.NONE else truth(law, estimate.theta)


@dataclass(frozen=True)
class Case:
    """A law with all of its records, and with those that are left when some are held out; settings for both."""

    key: str
    title: str
    whole: SaddlePopulation
    settings: GaussPsgdPlan
    less: SaddlePopulation
    base: GaussPsgdPlan

    @property
    def held(self) -> int:
        """Records that are held out."""
        return (self.whole.units - self.less.units) // WORD_BITS * WORD_BITS


def on_component() -> Case:
    """Return J1: the rank-one problem, from the strict saddle."""
    whole, less = (component(units) for units in (COMPONENT_UNITS, _left(COMPONENT_UNITS)))
    title = "Prior work where saddles are known: rank-one principal component"
    return Case("J1", title, whole, component_settings(whole), less, component_settings(less))


def on_carton() -> Case:
    """Return J2: the egg carton, from a saddle of index 1."""
    whole, less = (EggCarton(CARTON[0], units, *CARTON[2:]) for units in (CARTON[1], _left(CARTON[1])))
    title = "Prior work where saddles are known: egg carton"
    settings, base = (carton_settings(law, law.saddle(1)) for law in (whole, less))
    return Case("J2", title, whole, settings, less, base)


def _left(units: int) -> int:
    return units - units // HELD_PART


def pair(case: Case, seed: int) -> MethodPair:
    """Run both sides on the same seed."""
    one = run(case.whole, case.settings, seed)
    ours = Ours(Point(one.gradient, one.curvature), one.found.outcome == "no_escape_observed", one.records)
    asked = [rival_settings(case.less, case.base, part) for part in PARTS]
    return MethodPair(seed, ours, tuple(rival(case.less, one, case.base, case.held, seed) for one in asked))


def pairs(case: Case, seeds: Iterable[int], path: Path | None = None, minutes: float | None = None) -> list[MethodPair]:
    """Return the pairs of some seeds; with a path they are stored, and taken from there.

    Args:
        case: on which law.
        seeds: which ones.
        path: of the stored ones.
        minutes: of processor time, after which none is begun any more.
    """
    kept = {one["seed"]: _read(one) for one in (read(path) if path else ()) if one["case"] == case.key}
    for seed in seeds:
        if seed in kept or is_over(minutes):
            continue
        kept[seed] = pair(case, seed)
        if path:
            append(path, {"case": case.key, **asdict(kept[seed])})
            print(f"{case.key}, seed {seed}", flush=True)
    return [kept[seed] for seed in seeds if seed in kept]


def _read(told: dict[str, Any]) -> MethodPair:
    """Return a pair as it was stored."""

    def point(at: dict[str, float] | None) -> Point | None:
        return None if at is None else Point(**at)

    names = ("last", "random", "best", "selected")
    rivals = tuple(Rival(**one | {name: point(one[name]) for name in names}) for one in told["rivals"])
    ours = Ours(**told["ours"] | {"at": Point(**told["ours"]["at"])})
    return MethodPair(told["seed"], ours, rivals)


def main() -> None:
    """Make and store pairs for so long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="of processor time, after which none is begun")
    parser.add_argument("--to", type=Path, default=RUNS)
    told = parser.parse_args()
    for seed in range(SEEDS):
        for case in (on_component(), on_carton()):
            pairs(case, [seed], told.to, told.minutes)


if __name__ == "__main__":
    main()
