"""C1 and D1: certificates on populations with known saddles, held against the truth. C2 and D2: plain gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import mean, median

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from studies.clipped.reports import seen, within
from studies.inference.charts import Axis, Series, line_chart
from studies.inference.designs import uniform
from studies.inference.results import Result, Row
from studies.second_order import runs as stored
from studies.second_order.populations import EggCarton, SaddlePopulation
from studies.second_order.saddles import (
    Seen,
    carton_settings,
    component,
    component_settings,
    exact_descent,
    plain,
    run,
)

CARTON = (10, 8_000_000, 0.5, 0.3)
COMPONENT_UNITS = 10_000_000
PLAIN_UNITS = 4_000_000
CARTON_BATCHES = (4000, 10_000, 40_000)
COMPONENT_BATCHES = (1000, 2000, 4000, 10_000, 20_000, 40_000, 100_000)
SEEDS = 10
RUNS = stored.FOLDER / "c-runs.jsonl"
AWAY, ESCAPED = 0.1, 0.03
"""In the egg carton, from its saddle; in the rank-one problem along the first component, as far as C1's rounds."""
SIMULATED = {4000: (2.7e5, 0.0073), 10_000: (7.1e5, 0.0036), 40_000: (3.6e6, 0.024)}
"""By the batch: records until that far away, and the gradient at the end, by independent simulators."""


def found(runs: Sequence[Seen]) -> list[Seen]:
    """Return the runs that returned a point which no round left."""
    return [one for one in runs if one.found.outcome == "no_escape_observed"]


def principal_component(*, full: bool) -> Result:
    """C1: from a strict saddle of the rank-one problem."""
    law = component(COMPONENT_UNITS)
    seeds, rows = range(20 if full else 3), []
    for mode in ("fresh", "rewind", "continue") if full else ("fresh",):
        runs = [run(law, component_settings(law, round_mode=mode), seed) for seed in seeds]
        certain = found(runs)
        least = min(one.curvature for one in certain)
        rows += [
            Row(f"{mode}: share that found a point", 0.95, len(certain) / len(runs), 0.2),
            Row(f"{mode}: least curvature of any such point (at least .4)", 0.499, least, 0.02),
            within(f"{mode}: longest gradient of any, at most alpha", 0, max(one.gradient for one in certain), 0.028),
            seen(f"{mode}: median gradient", 0.0063, median(one.gradient for one in certain)),
            seen(f"{mode}: median records", 6.9e6, median(one.records for one in certain)),
            seen(f"{mode}: median fresh gradients", 51, median(one.found.restarts for one in certain)),
        ]
    stayed = float(law.least_curvature(exact_descent(law, law.stationary(1), 2000)))
    rows.append(Row("exact gradient descent, 2,000 steps: curvature where it stays", -0.5, stayed, 1e-9))
    return Result(
        "C1",
        "Escape from a strict saddle, and the certificate: rank-one principal component",
        f"Sigma = diag(1, .5, .05 x 18), n = 1e7, epsilon 1, delta 1e-5, replace_one; start at the second component; "
        f"{len(seeds)} seeds. alpha = .028, gamma_star = .43, alpha-strict is the start.",
        tuple(rows),
        "No run may end at the saddle. Rounds that rewind or continue do as well here, for the drift asks for a fresh "
        "gradient just before.",
    )


def egg_carton(*, full: bool) -> Result:
    """D1: from saddles of index 1 and 3 and from anywhere."""
    law = EggCarton(*CARTON)
    count = 10 if full else 2
    starts: dict[str, Callable[[int], Tensor]] = {
        "a saddle of index 1": lambda _: law.saddle(1),
        "a saddle of index 3": lambda _: law.saddle(3),
        "anywhere": lambda seed: 2 * torch.pi * uniform(SimulationGenerator(500 + seed), 10),
    }
    settings: GaussPsgdPlan = carton_settings(law, law.saddle(1))
    planned = {
        "kappa": (0.00144, settings.restart_drift),
        "chi": (0.1037, settings.error_radius),
        "gamma_star": (0.7887, settings.sharpest()),
        "R": (0.1315, settings.escape_distance),
        "Gamma": (32, settings.round_steps),
    }
    rows = [Row(f"planned {name}", at, float(ours or 0), 0.0005 * at) for name, (at, ours) in planned.items()]
    runs: list[Seen] = []
    for name, start in starts.items():
        mine = [run(law, carton_settings(law, start(seed)), seed) for seed in range(count)]
        runs += mine
        rows.append(seen(f"from {name}: median records", 3.7e6, median(one.records for one in mine)))
    certain = found(runs)
    true = [one for one in certain if one.curvature >= -settings.sharpest() and one.gradient <= one.found.alpha]
    rows += [
        Row("share that found a point", 1.0, len(certain) / len(runs), 1 / 30),
        Row("share of these that are what is claimed", 1.0, len(true) / len(certain), 0.0),
        seen("longest gradient of any", 0.128, max(one.gradient for one in certain)),
        seen("least curvature of any", 0.992, min(one.curvature for one in certain)),
        seen("most records of any", 6.9e6, max(one.records for one in runs)),
    ]
    return Result(
        "D1",
        "The strict preset where constants hold everywhere: egg carton",
        f"p = 10, sigma = .3, tau = .5, n = 8e6, epsilon 1, b1 = 1e5, b2 = 1000, Q = 8; {count} seeds for each start.",
        tuple(rows),
        "What is certified is a gradient of at most .41 and a curvature of at least -.79: coarse, and right each time.",
    )


@dataclass(frozen=True)
class Plain:
    """The results of one run of plain private gradients."""

    gradient: float
    """Length of the mean gradient at the end."""
    curvature: float
    """Least eigenvalue of the mean Hessian there."""
    left: int
    """Records until it was away from the saddle; all of them where it never was."""


def plain_run(
    law: SaddlePopulation, start: Tensor, batch: int, size: float, seed: int, away: Callable[[Tensor], float]
) -> Plain:
    """Return what one pass does; `away` is above 1 where a point is away from the saddle."""
    path = plain(law, start, batch, size, seed)
    steps = next((step for step, at in enumerate(path) if away(at) > 1), len(path) - 1)
    gradient = float(torch.linalg.vector_norm(law.mean_gradient(path[-1])))
    return Plain(gradient, float(law.least_curvature(path[-1])), steps * batch)


def component_run(batch: int, seed: int) -> Plain:
    """Return one pass from the saddle of the rank-one problem."""
    law = component(PLAIN_UNITS)
    size = 0.5 / law.smoothness().smoothness
    return plain_run(law, law.stationary(1), batch, size, seed, lambda at: float(at[0].abs()) / ESCAPED)


def component_grid(seeds: int) -> dict[int, list[Plain]]:
    """Return so many passes for each batch of the grid: those that are stored, and those that are missing, stored."""
    found = {(int(one.pop("batch")), int(one.pop("seed"))): Plain(**one) for one in stored.read(RUNS)}
    for seed, batch in product(range(seeds), COMPONENT_BATCHES):
        if (batch, seed) not in found:
            found[batch, seed] = component_run(batch, seed)
            stored.append(RUNS, {"batch": batch, "seed": seed} | asdict(found[batch, seed]))
    return {batch: [found[batch, seed] for seed in range(seeds)] for batch in COMPONENT_BATCHES}


def plain_component(*, full: bool) -> Result:
    """C2: plain private gradients on the rank-one problem, over a grid of batches."""
    seeds = SEEDS if full else 2
    grid = component_grid(seeds) if full else {at: [component_run(at, seed) for seed in range(2)] for at in SIMULATED}
    rows: list[Row] = []
    for batch, runs in grid.items():
        rows += _plain_rows(batch, runs, f"until {ESCAPED:g} along the first component", SIMULATED.get(batch))
    lengths = {batch: median(one.gradient for one in runs) for batch, runs in grid.items()}
    away = [batch for batch, runs in grid.items() if all(one.curvature > 0 for one in runs)]
    rows += [
        Row("the batch whose median gradient is the shortest", None, float(min(lengths, key=lengths.__getitem__))),
        Row(
            "... of those with which all curvatures are positive at the end",
            None,
            float(min(away, key=lengths.__getitem__)),
        ),
    ]
    return Result(
        "C2",
        "Plain private stochastic gradients: rank-one principal component",
        f"One pass over 4e6 records, the same noise for a record and step size as in C1; {seeds} seeds for each of "
        f"{len(grid)} batches.",
        tuple(rows),
        "Their noise leaves saddles too. With a good batch they end at shorter gradients, from fewer records, than "
        "Gauss-PSGD does (C1: .0070 from 6.9 million); with a large one they have not left the saddle when the records "
        "end. The shortest gradient of all is at the saddle: nothing that they tell says which it was. They lack a "
        "certificate, and no more is claimed.",
        {"batches": _chart(grid, 4 * component_settings(component(COMPONENT_UNITS)).error_radius)},
    )


def plain_carton(*, full: bool) -> Result:
    """D2: the same in the egg carton."""
    law = EggCarton(CARTON[0], PLAIN_UNITS, *CARTON[2:])
    start, seeds = law.saddle(1), 10 if full else 2
    rows: list[Row] = []

    def from_start(at: Tensor) -> float:
        return float(torch.dist(at, start)) / AWAY

    for batch in CARTON_BATCHES:
        runs = [plain_run(law, start, batch, 1 / 3, seed, from_start) for seed in range(seeds)]
        rows += _plain_rows(batch, runs, "until .1 away from the saddle", None)
    return Result(
        "D2",
        "Plain private stochastic gradients: egg carton",
        f"One pass over 4e6 records, the same noise for a record and step size as in D1; {seeds} seeds.",
        tuple(rows),
        "Their noise leaves this saddle with every one of these batches, and they end at far shorter gradients than "
        "Gauss-PSGD (D1), from about as many records. That they have left it nothing tells: they lack a "
        "certificate, and no more is claimed.",
    )


def _plain_rows(batch: int, runs: Sequence[Plain], until: str, elsewhere: tuple[float, float] | None) -> list[Row]:
    """Report gradients, curvatures and records until the saddle is left."""
    left, gradient = median(one.left for one in runs), median(one.gradient for one in runs)
    told = {f"batch {batch:,}: median records {until}": left, f"batch {batch:,}: median gradient at the end": gradient}
    rows = [
        Row(what, None, value) if elsewhere is None else seen(what, other, value)
        for (what, value), other in zip(told.items(), elsewhere or (0.0, 0.0), strict=True)
    ]
    bends, where = [one.curvature for one in runs], f"batch {batch:,}"
    negative = mean(bend < 0 for bend in bends)
    return [
        *rows,
        Row(f"{where}: least curvature at the end", None, min(bends)),
        Row(f"{where}: share of runs that end where a curvature is negative", None, negative),
    ]


def _chart(grid: Mapping[int, Sequence[Plain]], alpha: float) -> str:
    """Draw the gradient at the end and the share of records until the saddle is left against the batch."""
    batches = [float(batch) for batch in grid]
    gradients = [median(one.gradient for one in runs) for runs in grid.values()]
    shares = [median(one.left for one in runs) / PLAIN_UNITS for runs in grid.values()]
    return line_chart(
        "Plain private gradients from a strict saddle, one pass",
        Axis("batch", min(batches), max(batches), logarithmic=True),
        Axis("median", 1e-3, 1.0, logarithmic=True),
        [
            Series("gradient at the end", batches, gradients, marks=True),
            Series("share of the pass until it left", batches, shares, marks=True),
            Series("alpha of C1's certificate", batches, [alpha] * len(batches), dashed=True),
        ],
    )
