"""Run experiments: `python -m examples.inference all|E1 E2 ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.inference import coverage, curves, housing, marketing, rates, rivals, stability
from examples.inference.page import fill
from examples.inference.results import Result

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "inference.md"
FOLDER = PAGE.parent / "inference"

EXPERIMENTS: dict[str, Callable[..., Result]] = {
    "E1": rates.trajectories,
    "E2": rates.newton_against_descent,
    "E3": stability.joint_newton,
    "E4": rates.three_rates,
    "E5": coverage.descent_coverage,
    "E6": coverage.newton_coverage,
    "E7": coverage.ellipse,
    "E8": rates.far_start,
    "E9": rivals.mallows_or_clip,
    "E10": housing.surrogate,
    "E11": marketing.resamples,
    "E12": stability.line_search,
    "E13": rivals.linear_rivals,
    "E14": rivals.logistic_rivals,
    "E15": curves.losses,
}


def main(arguments: list[str]) -> int:
    """Run what is asked for; return how many compared numbers differ by more than was expected."""
    parser = argparse.ArgumentParser(prog="python -m examples.inference", description=__doc__)
    parser.add_argument("experiments", nargs="+", choices=[*EXPERIMENTS, "all", "page"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer repetitions; the default")
    size.add_argument("--full", action="store_true", help="as many repetitions as the tables of the page have")
    parser.add_argument("--to", type=Path, default=FOLDER, help="where JSON and figures go")
    asked = parser.parse_args(arguments)
    names = [name for name in EXPERIMENTS if {name, "all"} & set(asked.experiments)]
    differing = 0
    for name in names:
        began = time.monotonic()
        result = EXPERIMENTS[name](full=asked.full)
        seconds = time.monotonic() - began
        result.write(asked.to, "full" if asked.full else "quick", seconds)
        print(f"{result.key}. {result.title} ({seconds:.1f} s)")
        for row in result.rows:
            verdict = {None: "", True: "agrees", False: "DIFFERS"}[row.agrees]
            print(f"  {row.what:58} {row.reference!s:>10} {row.ours:10.4g}  {verdict}")
        differing += sum(row.agrees is False for row in result.rows)
    if asked.to == FOLDER:
        fill(PAGE, FOLDER)
    return differing


if __name__ == "__main__":
    print(f"{main(sys.argv[1:])} numbers differ by more than chance; the experiments' notes say why")
