"""C1 and D1: certificates on populations with known saddles, held against the truth. C2 and D2: plain gradients."""

from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

from core.catalogue.second_order.gauss import GaussPsgd
from core.mechanisms.generator import SimulationGenerator
from core.problems.saddles import EggCarton, SaddlePopulation
from examples.clipped.reports import seen, within
from examples.inference.designs import uniform
from examples.inference.results import Result, Row
from examples.second_order.saddles import (
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
PLAIN_BATCHES = (4000, 10_000, 40_000)
AWAY = 0.1


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
    settings: GaussPsgd = carton_settings(law, law.saddle(1))
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


def plain_component(*, full: bool) -> Result:
    """C2: what plain private gradients do there."""
    law = component(PLAIN_UNITS)
    start, size = law.stationary(1), 0.5 / law.smoothness().smoothness
    return _plain("C2", "rank-one principal component", law, start, size, PLAIN_BATCHES, full=full)


def plain_carton(*, full: bool) -> Result:
    """D2: the same in the egg carton."""
    law = EggCarton(CARTON[0], PLAIN_UNITS, *CARTON[2:])
    return _plain("D2", "egg carton", law, law.saddle(1), 1 / 3, PLAIN_BATCHES, full=full)


def _plain(
    key: str, name: str, law: SaddlePopulation, start: Tensor, size: float, batches: Sequence[int], *, full: bool
) -> Result:
    """Report gradients, curvatures and records until the saddle is left, for batches of several sizes."""
    seeds, rows = range(10 if full else 2), []
    for batch in batches:
        paths = [plain(law, start, batch, size, seed) for seed in seeds]
        left = [next((i for i, at in enumerate(one) if _away(at, start) > AWAY), len(one)) * batch for one in paths]
        ends = [one[-1] for one in paths]
        gradients = [float(torch.linalg.vector_norm(law.mean_gradient(end))) for end in ends]
        rows += [
            Row(f"batch {batch:,}: median gradient at the end", None, median(gradients)),
            Row(f"batch {batch:,}: least curvature at the end", None, min(float(law.least_curvature(x)) for x in ends)),
            Row(f"batch {batch:,}: median records until .1 away from the saddle", None, median(left)),
        ]
    return Result(
        key,
        f"Plain private stochastic gradients: {name}",
        f"One pass over 4e6 records, the same noise for a record and step size as above; {len(seeds)} seeds.",
        tuple(rows),
        "Their noise leaves saddles too. With a good batch they end at shorter gradients from fewer records, with a "
        "bad one they may still be near the saddle at the end, and nothing tells which it was: they lack a "
        "certificate, and no more is claimed.",
    )


def _away(theta: Tensor, start: Tensor) -> float:
    return float(torch.linalg.vector_norm(theta - start))
