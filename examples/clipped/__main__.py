"""Run studies: `python -m examples.clipped all|V3 V3b ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from examples.clipped import certificates, neighbourhoods, regression, tails
from examples.inference.page import fill
from examples.inference.results import Result

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "clipped_sgd.md"
FOLDER = PAGE.parent / "clipped_sgd"

STUDIES: dict[str, Callable[..., Result]] = {
    "V3": neighbourhoods.skewed,
    "V3b": neighbourhoods.symmetric,
    "V4": neighbourhoods.tradeoff,
    "V5": tails.last_iterate,
    "V6": tails.rates,
    "V7": certificates.runs_as_certified,
    "V7b": certificates.power,
    "V8": neighbourhoods.escape,
    "V9": neighbourhoods.nonconvex,
    "V10": certificates.averages,
    "V13": regression.choosing_a_clip,
    "V14": regression.one_pass,
    "V15": tails.three_ways,
}


def main(arguments: list[str]) -> int:
    """Run what is asked for; return how many compared numbers differ by more than was expected."""
    parser = argparse.ArgumentParser(prog="python -m examples.clipped", description=__doc__)
    parser.add_argument("studies", nargs="+", choices=[*STUDIES, "all", "page"])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer steps and runs; the default")
    size.add_argument("--full", action="store_true", help="more of both; up to minutes a study")
    parser.add_argument("--to", type=Path, default=FOLDER, help="where JSON and figures go")
    asked = parser.parse_args(arguments)
    differing = 0
    for name in [name for name in STUDIES if {name, "all"} & set(asked.studies)]:
        began = time.monotonic()
        result = STUDIES[name](full=asked.full)
        seconds = time.monotonic() - began
        result.write(asked.to, "full" if asked.full else "quick", seconds)
        print(f"{result.key}. {result.title} ({seconds:.1f} s)", flush=True)
        for row in result.rows:
            verdict = {None: "", True: "agrees", False: "DIFFERS"}[row.agrees]
            print(f"  {row.what:75} {row.reference!s:>10} {row.ours:10.4g}  {verdict}", flush=True)
        differing += sum(row.agrees is False for row in result.rows)
    if asked.to == FOLDER:
        fill(PAGE, FOLDER, "clipped")
    return differing


if __name__ == "__main__":
    print(f"{main(sys.argv[1:])} numbers differ by more than was expected; the studies' notes say why")
