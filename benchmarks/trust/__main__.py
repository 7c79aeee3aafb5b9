"""The whole grid, in parts: `python -m benchmarks.trust [--part K --of N] [--jobs 40] [--out trust.jsonl] [--fresh]`.

`--fifth` runs the shapes of `benchmarks.trust.fresh_fifth` alone, and `--counted` those of rare amounts under both
adjacencies, at one site and at three: 1,512 jobs with `--jobs 54`. `--repeats 100` also runs ten jobs on each of 100
data sets of a cell, and `--budgets` each cell at several budgets.

Each cell's figures are a line of the file, with the commit they were made at; a part that is run again goes on where it
was interrupted. `--table` prints the file as a table. Exits with 1 where a cell breaks a rule.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.trust.class_cells import ClassRow, class_rows
from benchmarks.trust.class_jobs import run_classes
from benchmarks.trust.class_shapes import SEED
from benchmarks.trust.forecasts import foretold, misforetold
from benchmarks.trust.fresh_fifth import BUDGETS, counted_rows, fifth_rows
from benchmarks.trust.grid import rows
from benchmarks.trust.jobs import run
from benchmarks.trust.repeats import at_budgets, at_variance, repeated, rising
from benchmarks.trust.row import Row, stored_of
from benchmarks.trust.summary import MOST_SHOWN, bank, families, ladders
from benchmarks.trust.verdicts import broken, judge, wider


def main(arguments: list[str]) -> int:
    """Run a part of the grid, or print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no cell after so long")
    parser.add_argument("--most-units", type=int, default=10**9, help="leave larger cells out")
    parser.add_argument("--least-units", type=int, default=0, help="leave smaller cells out")
    parser.add_argument("--only", default="", help="only cells whose names contain it")
    parser.add_argument("--multinomial", action="store_true", help="the grid of multinomial models instead")
    parser.add_argument("--fresh", action="store_true", help="only shapes that nothing was tuned on")
    parser.add_argument("--fifth", action="store_true", help="only shapes about silent intervals")
    parser.add_argument("--counted", action="store_true", help="least squares of rare amounts, at one site and three")
    parser.add_argument("--repeats", type=int, default=0, help="data sets on each of which ten jobs are run beside")
    parser.add_argument("--budgets", action="store_true", help="run cells at several budgets beside")
    parser.add_argument(
        "--before", type=Path, help="lines of an earlier state, whose widths bound those of sound cells"
    )
    parser.add_argument("--out", type=Path, default=Path("trust.jsonl"))
    parser.add_argument("--table", action="store_true", help="print the file, a line a cell")
    parser.add_argument("--summary", action="store_true", help="print families of cells, ladders, the bank")
    asked = parser.parse_args(arguments)
    if asked.table or asked.summary:
        lines, known = read(asked.out), {row.cell.name: row for row in rows()}
        said, worse = ladders(lines, known)
        summary = [*families(lines, known), "", *said, "", *worse, "", *bank(lines, known)]
        print("\n".join(summary if asked.summary else table(lines)))
        return 0
    commit, began = commit_of(), time.monotonic()
    done = {line["cell"] for line in read(asked.out) if line["commit"] == commit and line["jobs"] >= asked.jobs}
    earlier = {} if asked.before is None else {line["cell"]: line for line in read(asked.before)}
    missed = 0
    grid: Iterable[Row | ClassRow] = class_rows() if asked.multinomial else rows()
    if asked.fifth or asked.counted:
        grid = fifth_rows() if asked.fifth else counted_rows()
    for place, row in enumerate(grid):
        left_out = not asked.least_units <= row.cell.units <= asked.most_units
        left_out = left_out or (asked.fresh and row.seed in {1, SEED})
        if place % asked.of != asked.part or left_out or row.cell.name in done or asked.only not in row.cell.name:
            continue
        if time.monotonic() - began > asked.seconds:
            break
        line = judged(row, asked.jobs) | {"commit": commit}
        if isinstance(row, Row):
            line |= beside(row, line, asked.repeats, asked.jobs if asked.budgets else 0)
        if row.cell.name in earlier:
            line["broken"] += wider(line, earlier[row.cell.name])
        missed += bool(line["broken"])
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(table([line])[-1], flush=True)
    return int(missed > 0)


def judged(row: Row | ClassRow, jobs: int) -> dict[str, Any]:
    """Run a cell and return its figures, with the rules it breaks."""
    seeds = [(row.seed, number) for number in range(jobs)]
    if isinstance(row, ClassRow):
        stored, each = None, [run_classes(row.cell, seed) for seed in seeds]
    else:
        stored, each = stored_of(row.cell), [run(row.cell, seed) for seed in seeds]
    found, forecast = judge(each, row.named), None
    said = broken(found, row.expected, stored)
    if isinstance(row, Row):
        forecast = foretold(row.cell, each)
        said += misforetold(forecast) if forecast is not None and row.expected in {"sound", "counted"} else []
    return {
        "cell": row.cell.name,
        "expected": row.expected,
        "seed": row.seed,
        **asdict(found),
        "foretold": None if forecast is None else asdict(forecast),
        "broken": said,
    }


def beside(row: Row, line: dict[str, Any], repeats: int, jobs: int) -> dict[str, Any]:
    """Return what jobs on the same data sets, and at several budgets, come to, with the rules that they break too.

    Args:
        row: of the grid.
        line: its figures.
        repeats: data sets that ten jobs are run on; 0: none.
        jobs: at each budget; 0: none.
    """
    said, found = list(line["broken"]), dict[str, Any]()
    if repeats:
        agreed = repeated(row, repeats)
        found["repeats"] = asdict(agreed)
        said += at_variance(agreed)
    if jobs:
        verdicts = at_budgets(row, BUDGETS, jobs)
        found["budgets"] = {f"{mu:g}": asdict(one) for mu, one in verdicts.items()}
        said += rising(verdicts)
    return found | {"broken": said}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines that were written before."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def commit_of() -> str:
    """Return the commit that is checked out, marked where files differ from it."""
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def table(lines: list[dict[str, Any]]) -> list[str]:
    """Return lines of a Markdown table."""
    names = (
        "cell",
        "jobs",
        "truth, worst",
        "plain truth, worst",
        "silent",
        "non-private estimate",
        "non-private's own",
        "width, widest",
        "beside o.p.",
    )
    more = ("foreseen", "forecast", "noise", "flagged", "predicts worse", "commit", "breaks")
    head = f"| {' | '.join((*names, *more))} |"
    return [head, "|" + "---|" * 16, *(_line(line) for line in lines)]


def _line(line: dict[str, Any]) -> str:
    def told(name: str) -> str:
        return "-" if line.get(name) is None else f"{line[name]:.3f}".removeprefix("0")

    def size(name: str) -> str:
        if line.get(name) is None:
            return "-"
        return f"{line[name]:.2f}" if line[name] < MOST_SHOWN else f"over {MOST_SHOWN}"

    cells = [
        line["cell"],
        str(line["jobs"]),
        f"{told('truth')}, {told('truth_worst')}",
        f"{told('plain')}, {told('plain_worst')}",
        told("silent_plain"),
        told("same"),
        told("nonprivate_truth"),
        f"{size('width')}, {size('widest')}",
        size("rival"),
        size("foreseen"),
        size("forecast"),
        size("noise"),
        told("flagged"),
        told("losing"),
        line["commit"].split("-g")[-1][:7],
        "; ".join(line["broken"]),
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
