"""Run experiments: `python -m studies.inference all|E1 E2 ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import sys
from collections.abc import Callable
from pathlib import Path

from studies.inference import coverage, curves, housing, marketing, rates, rivals, stability
from studies.inference.results import Result
from studies.paper import Paper

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

PAPER = Paper(
    name="inference",
    page=Path(__file__).parents[2] / "docs" / "papers" / "inference.md",
    experiments=EXPERIMENTS,
    description=__doc__,
)


if __name__ == "__main__":
    print(f"{PAPER.main(sys.argv[1:])} numbers differ by more than chance; the experiments' notes say why")
