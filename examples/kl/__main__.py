"""Run experiments: `python -m examples.kl all|E1 E2 ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.inference.page import fill
from examples.inference.results import Result
from examples.kl import adaptive, baseline, data, sharp, spider

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "kl.md"
FOLDER = PAGE.parent / "kl"

EXPERIMENTS: dict[str, Callable[..., Result]] = {
    "E1": spider.rate,
    "E2": spider.ablation,
    "E3": adaptive.many,
    "E4": adaptive.few,
    "E5": sharp.weights,
    "E6": data.least_squares,
    "E7": data.sine,
    "E8": data.phases,
    "E9": data.stationary,
    "E10": sharp.floor_of_all,
    "E11": adaptive.printed_charges,
    "E12": baseline.against_plain_descent,
}


def main(arguments: list[str]) -> int:
    """Run what is asked for; return how many compared numbers differ by more than was expected."""
    parser = argparse.ArgumentParser(prog="python -m examples.kl", description=__doc__)
    parser.add_argument("experiments", nargs="+", choices=[*EXPERIMENTS, "all", "page"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer sizes and runs; the default")
    size.add_argument("--full", action="store_true", help="more of both; minutes an experiment")
    parser.add_argument("--to", type=Path, default=FOLDER, help="where JSON and figures go")
    asked = parser.parse_args(arguments)
    differing = 0
    for name in [name for name in EXPERIMENTS if {name, "all"} & set(asked.experiments)]:
        began = time.monotonic()
        result = EXPERIMENTS[name](full=asked.full)
        seconds = time.monotonic() - began
        result.write(asked.to, "full" if asked.full else "quick", seconds)
        print(f"{result.key}. {result.title} ({seconds:.1f} s)")
        for row in result.rows:
            verdict = {None: "", True: "agrees", False: "DIFFERS"}[row.agrees]
            print(f"  {row.what:75} {row.reference!s:>10} {row.ours:10.4g}  {verdict}")
        differing += sum(row.agrees is False for row in result.rows)
    if asked.to == FOLDER:
        fill(PAGE, FOLDER)
    return differing


if __name__ == "__main__":
    print(f"{main(sys.argv[1:])} numbers differ by more than was expected; the experiments' notes say why")
