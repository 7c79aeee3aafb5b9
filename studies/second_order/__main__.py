"""Run experiments: `python -m studies.second_order all|C1 ... [--quick|--full] [--to FOLDER]`; `page` shows them."""

import sys
from collections.abc import Callable
from pathlib import Path

from studies.inference.results import Result
from studies.paper import Paper
from studies.second_order import (
    appendix_grid,
    certificates,
    components,
    federated,
    networks,
    phases,
    prior_report,
    rounds,
    scaling,
    selection,
    selection_noise,
)

EXPERIMENTS: dict[str, Callable[..., Result]] = {  # a study is registered by one line, under the key it reports
    "B1": rounds.escape_power,
    "C1": certificates.principal_component,
    "C2": certificates.plain_component,
    "C3": components.two_saddles,
    "C4": components.gaps,
    "D1": certificates.egg_carton,
    "D2": certificates.plain_carton,
    "E1": rounds.false_certificates,
    "F1": components.minima,
    "F2": rounds.flat_control,
    "F3": rounds.weak_saddles,
    "I2": selection_noise.noise,
    "I3": selection.correctness,
    "I4": selection.records_needed,
    "I5": selection.together,
    "J1": prior_report.rival_component,
    "J2": prior_report.rival_carton,
    "K1": networks.zero_network,
    "K2": networks.small_network,
    "H4": federated.heterogeneity,
    "H6": federated.clients_count,
    "H7": federated.restarts,
    "L1": appendix_grid.appendix_e,
    "M1": scaling.scaling,
    "N1": phases.planned_alone,
}

PAPER = Paper(
    name="second_order",
    page=Path(__file__).parents[2] / "docs" / "papers" / "second_order.md",
    experiments=EXPERIMENTS,
    description=__doc__,
)


if __name__ == "__main__":
    print(f"{PAPER.main(sys.argv[1:])} numbers differ by more than chance; the experiments' notes say why")
