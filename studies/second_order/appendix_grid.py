"""L1: appendix E's grid, run by run, and what it says of the paper's claim that Gauss-PSGD does better in every cell.

python -m studies.second_order.appendix_grid --minutes 40  # go on with the grid; stored run by run
python -m studies.second_order L1 --full                   # all that is left of it, and the report
"""

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from math import inf, sqrt
from pathlib import Path
from statistics import mean, variance
from typing import Final

from examples.datasets import NotFetched
from studies.inference.charts import Axis, Series, line_chart
from studies.inference.results import Result, Row
from studies.second_order.appendix_e import (
    CHANGE_PARTS,
    ESCAPE,
    FRESH_PARTS,
    PLAIN_PARTS,
    SMOOTHNESS,
    Cell,
    Method,
    Run,
    key_of,
    pictures,
    run,
)
from studies.second_order.clients import Partition
from studies.second_order.runs import FOLDER, append, is_over, read

RUNS: Final = FOLDER / "l01-runs.jsonl"
EPSILONS: Final = (0.5, 1.0, 2.0)
SIZES: Final = (1, 2, 5, 10)
CLIPS: Final = (1.0, 0.1)
PARTITIONS: Final[tuple[Partition, ...]] = ("iid", "dirichlet", "shards")
METHODS: Final[tuple[Method, ...]] = ("gauss_psgd", "perturbed_spider", "dp_sgd")
NAMES: Final = {
    "gauss_psgd": "Gauss-PSGD",
    "perturbed_spider": "prior work (our reconstruction)",
    "dp_sgd": "DP-SGD, last iterate",
    "diff2": "DIFF2",
}
TITLES: Final = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "digits": "digits"}
SEEDS: Final = 5
ERRORS: Final = 2.0
"""Standard errors by which one method is above another."""
Asked = tuple[Cell, Method, int]


def grid() -> Iterator[Asked]:
    """Go through all runs, in the order in which they are made.

    One client has one partition. Reading A is for Fashion-MNIST, and one client has the same records in both.
    """
    groups: list[tuple[str, Partition, float, tuple[Method, ...]]] = [("B", "iid", 1.0, METHODS)]
    groups += [("B", "iid", 0.1, METHODS), ("B", "dirichlet", 1.0, METHODS), ("B", "shards", 1.0, METHODS)]
    groups += [("B", "iid", 1.0, ("diff2",)), ("A", "iid", 1.0, METHODS)]
    groups += [("B", "dirichlet", 0.1, METHODS), ("B", "shards", 0.1, METHODS), ("A", "iid", 0.1, METHODS)]
    groups += [("A", partition, clip, METHODS) for partition, clip in product(PARTITIONS[1:], CLIPS)]
    for reading, partition, clip, methods in groups:
        for seed, name, clients, epsilon in product(range(SEEDS), ("mnist", "fashion"), SIZES, EPSILONS):
            if (reading == "A" and name == "mnist") or (clients == 1 and (partition, reading) != ("iid", "B")):
                continue
            cell = Cell(name, reading, epsilon, clients, partition, clip)  # type: ignore[arg-type] # names of these
            for method in methods:
                yield cell, method, seed


def stand_in() -> Iterator[Asked]:
    """Go through a few runs on digits that come with a library: quick, and where images are not to be had."""
    for clients, method in product((1, 2), (*METHODS, "diff2")):
        yield Cell("digits", "B", 2.0, clients, "iid", 1.0), method, 0


def stored(path: Path) -> dict[str, Run]:
    """Return the runs there are, by key."""
    found = {}
    for told in read(path):
        curve = tuple((share, accuracy, loss) for share, accuracy, loss in told["curve"])
        picked = told["random_iterate"] and tuple(told["random_iterate"])
        one = Run(**told | {"cell": Cell(**told["cell"]), "curve": curve, "random_iterate": picked})
        found[one.key] = one
    return found


def go_on(asked: Iterable[Asked], path: Path | None, minutes: float | None = None) -> dict[str, Run]:
    """Make the runs that are not stored yet, one after the other, and return all that were asked for and are there.

    Args:
        asked: which ones.
        path: where runs are stored, each when it is done: an interrupted process goes on from there. None: nowhere.
        minutes: of this process's time, after which no further run begins; None: all of them.

    Raises:
        NotFetched: images are not here, and cannot be fetched.
    """
    known, found = stored(path) if path else {}, {}
    for cell, method, seed in asked:
        key = key_of(cell, method, seed)
        if key not in known:
            if is_over(minutes):
                continue
            began = time.process_time()
            known[key] = run(cell, method, seed)
            if path:
                append(path, asdict(known[key]))
                where = f"{cell.data} {cell.reading} {cell.partition} clip {cell.clip:g}, epsilon {cell.epsilon:g}"
                seconds = time.process_time() - began
                print(f"{where}, m {cell.clients}, seed {seed}: {method}, {seconds:.1f} s", flush=True)
        found[key] = known[key]
    return found


def appendix_e(*, full: bool) -> Result:
    """L1: all of the grid, what is stored taken from there; in small, digits that come with a library."""
    if not full:
        return report(go_on(stand_in(), None).values(), "Digits that come with a library stand in for images.")
    try:
        for name in ("mnist", "fashion"):
            pictures(name)
    except NotFetched as error:
        print(f"The images are not here: {error}", flush=True)
        return report(go_on(stand_in(), None).values(), "The images were not to be had; digits stand in for them.")
    return report(go_on(grid(), RUNS).values(), "")


def report(runs: Iterable[Run], note: str) -> Result:
    """Return what so many runs say."""
    cells = defaultdict[tuple[Cell, Method], list[Run]](list)
    for one in runs:
        cells[one.cell, one.method].append(one)
    every = [one for group in cells.values() for one in group]
    escaping = [one for one in every if one.method == "gauss_psgd"]
    whole = sum(1 for _ in grid())
    rows = [
        Row("runs of Gauss-PSGD in which any round of escape began", 0, _count(escaping, "phases"), 0),
        Row("runs of prior work in which any estimate was disturbed", 0, _count(every, "disturbed"), 0),
    ]
    rows += [row for name in ("mnist", "fashion", "digits") for row in _restarts(name, escaping)]
    rows += _judged(cells)
    rows += _accuracies(cells)
    return Result(
        "L1",
        "The paper's appendix E on images that packages ship, at the epsilon it is accounted at",
        "One hidden layer of 128 rectified units; chi = .01, kappa = .1, Gamma = 10, Q = 3, delta 1e-5, steps of .001 "
        "(MNIST) and .01 (Fashion-MNIST, digits) as printed. Declared by us: one pass, replace_one; b1 = n/"
        f"{FRESH_PARTS}, b2 = n/{CHANGE_PARTS}, M = rho = {SMOOTHNESS:g}, R = {ESCAPE:g}; DP-SGD in {PLAIN_PARTS} "
        "batches with the same step; prior work with steps of 1/M; reading B: 6,000 records in all, A: 6,000 a client.",
        tuple(rows),
        f"{note} {_said(every, whole)}".strip(),
        {name: chart for name, chart in _charts(cells) if chart},
    )


def _count(runs: Sequence[Run], name: str) -> int:
    return sum(one.counts.get(name, 0) > 0 for one in runs)


def _restarts(name: str, runs: Sequence[Run]) -> list[Row]:
    """Return how often Gauss-PSGD asked for a fresh gradient: the first one is no restart."""
    again = [one.counts["restarts"] - 1 for one in runs if one.cell.data == name]
    if not again:
        return []
    title = TITLES[name]
    return [
        Row(f"{title}: restarts of Gauss-PSGD's estimate, on average", None, mean(again)),
        Row(f"{title}: the most of any run", None, max(again)),
    ]


def _judged(cells: Mapping[tuple[Cell, Method], Sequence[Run]]) -> list[Row]:
    """Return in how many cells Gauss-PSGD is above each of the others by two standard errors of the difference."""
    rows = []
    for other in (*METHODS[1:], "diff2"):
        compared, above, below = 0, 0, 0
        for (cell, method), ours in cells.items():
            theirs = cells.get((cell, other))
            if method != "gauss_psgd" or not theirs:
                continue
            gap = _gap(ours, theirs)
            compared, above, below = compared + 1, above + (gap > ERRORS), below + (gap < -ERRORS)
        if compared:
            rows += [
                Row(f"cells in which Gauss-PSGD and {NAMES[other]} were compared", None, compared),
                Row("... with Gauss-PSGD's accuracy above by 2 standard errors", None, above),
                Row("... with Gauss-PSGD's accuracy below by 2 standard errors", None, below),
            ]
    return rows


def _gap(ours: Sequence[Run], theirs: Sequence[Run]) -> float:
    """Return the difference of final accuracies over its standard error; with one seed, that of the test images."""
    first, second = ([one.curve[-1][1] for one in runs] for runs in (ours, theirs))
    spread = sum(variance(one) / len(one) for one in (first, second) if len(one) > 1)
    counted = len(pictures(ours[0].cell.data).test_labels)
    least = sum(at * (1 - at) / counted for at in (mean(first), mean(second))) if len(first) == 1 else 0.0
    error = sqrt(spread + least)
    difference = mean(first) - mean(second)
    return difference / error if error else (inf if difference > 0 else -inf if difference < 0 else 0.0)


def _accuracies(cells: Mapping[tuple[Cell, Method], Sequence[Run]]) -> list[Row]:
    """Return each method's final accuracy, over the cells of a data set, division and clip."""
    groups = defaultdict[tuple[str, str, str, float, str], list[float]](list)
    for (cell, method), runs in cells.items():
        at = (cell.data, cell.reading, cell.partition, cell.clip)
        groups[*at, method] += [one.curve[-1][1] for one in runs]
        if method == "dp_sgd":
            groups[*at, "random"] += [one.random_iterate[0] for one in runs if one.random_iterate]
    return [
        Row(
            f"{TITLES[data]}, {reading}, {partition}, clip {clip:g}: accuracy, {_name(method)} ({len(found)} runs)",
            None,
            mean(found),
        )
        for (data, reading, partition, clip, method), found in groups.items()
    ]


def _name(method: str) -> str:
    return NAMES.get(method, "DP-SGD, iterate at random")


def _group(cell: Cell) -> str:
    """Say which runs of the grid are made together."""
    return f"reading {cell.reading}, {cell.partition}, clip {cell.clip:g}"


def _said(runs: Sequence[Run], whole: int) -> str:
    """Say what was run, what was not, and what it means."""
    counted = sum(one.cell.data != "digits" for one in runs)
    wanted = Counter(_group(cell) for cell, _, _ in grid())
    groups = Counter(_group(one.cell) for one in runs if one.cell.data != "digits")
    made = "; ".join(f"{group}: {groups[group]} of {wanted[group]}" for group in wanted if groups[group]) or "none"
    seeds = len({one.seed for one in runs})
    return (
        f"{counted} of {whole} runs of the grid were made ({made}; {seeds} seeds at most); go on with "
        "`python -m studies.second_order.appendix_grid`. Where a cell has one seed, its standard error is that of the "
        "test images. Predicted are no rounds of escape at all, for the noise of an estimate is far longer than 3 chi. "
        "Without rounds and with one step size Gauss-PSGD and prior work are one method (a test compares them): what "
        "sets them apart here is the step, 1/M against .001 and .01, which is so short that at an honest epsilon the "
        "network hardly moves. The curves that the paper draws are not to be had from the settings that it prints."
    )


def _charts(cells: Mapping[tuple[Cell, Method], Sequence[Run]]) -> Iterator[tuple[str, str]]:
    """Draw accuracy and loss against the share of the pass, divided at random, clip 1, one and ten clients."""
    for data, epsilon in product(TITLES, EPSILONS):
        for place, what in ((1, "accuracy"), (2, "loss")):
            series = [
                Series(
                    f"{NAMES[method]}, m = {clients}",
                    *_mean_curve(cells[cell, method], place),
                    dashed=clients > 1,
                    colour=list(NAMES).index(method),
                )
                for clients, method in product(SIZES, (*METHODS, "diff2"))
                for cell in [Cell(data, "B", epsilon, clients, "iid", 1.0)]  # type: ignore[arg-type] # names of these
                if clients in {SIZES[0], SIZES[-1]} and (cell, method) in cells
            ]
            if series:
                title = f"{TITLES[data]}, epsilon = {epsilon:g}: test {what}"
                highest = max(max(one.y) for one in series)
                top = min(1.0, 1.1 * highest) if place == 1 else min(1.1 * highest, 6.0)
                axes = Axis("share of the pass", 0.0, 1.0), Axis(what, 0.0, top)
                yield f"{data}-{epsilon:g}-{what}".replace(".", ""), line_chart(title, *axes, series)


def _mean_curve(runs: Sequence[Run], place: int) -> tuple[list[float], list[float]]:
    """Return shares and the mean over seeds; runs that ended early stay where they ended."""
    longest = max(runs, key=lambda one: len(one.curve)).curve
    shares = [point[0] for point in longest]
    ends = [[one.curve[min(at, len(one.curve) - 1)][place] for one in runs] for at in range(len(longest))]
    return shares, [mean(one) for one in ends]


def main() -> None:
    """Go on with the grid, and report what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="of processor time, after which no run begins")
    parser.add_argument("--to", type=Path, default=RUNS)
    told = parser.parse_args()
    try:
        runs = go_on(grid(), told.to, told.minutes)
    except NotFetched as error:
        raise SystemExit(f"The images are not here, so nothing of appendix E was run: {error}") from error
    print(f"{len(runs)} runs are there")
    whole = sum(1 for _ in grid())
    report(runs.values(), "").write(told.to.parent, "full" if len(runs) == whole else "part", time.process_time())


if __name__ == "__main__":
    main()
