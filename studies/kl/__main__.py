"""Run experiments: `python -m studies.kl all|E1 E2 ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import sys
from collections.abc import Callable
from pathlib import Path

from studies.inference.results import Result
from studies.kl import adaptive, baseline, data, sharp, spider
from studies.paper import Paper

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
    "E13": baseline.crossover,
}

PAPER = Paper(
    name="kl",
    page=Path(__file__).parents[2] / "docs" / "papers" / "kl.md",
    experiments=EXPERIMENTS,
    description=__doc__,
)


if __name__ == "__main__":
    print(f"{PAPER.main(sys.argv[1:])} numbers differ by more than was expected; the experiments' notes say why")
