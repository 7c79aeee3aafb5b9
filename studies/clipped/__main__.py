"""Run studies: `python -m studies.clipped all|V3 V3b ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import sys
from collections.abc import Callable
from pathlib import Path

from studies.clipped import certificates, neighbourhoods, regression, tails
from studies.inference.results import Result
from studies.paper import Paper

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

PAPER = Paper(
    name="clipped",
    page=Path(__file__).parents[2] / "docs" / "papers" / "clipped_sgd.md",
    experiments=STUDIES,
    description=__doc__,
)


if __name__ == "__main__":
    print(f"{PAPER.main(sys.argv[1:])} numbers differ by more than was expected; the studies' notes say why")
