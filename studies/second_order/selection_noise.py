"""I2: the noise of a private selection, predicted over dimensions, candidates and sites, and measured.

Measured are the mean answers of ten sites about records of zeros, which are noise alone. Of AboveThreshold the rate of
accepted scores is measured. It gives the width of its noise, to be multiplied by the worth of a score's unit in
curvature.
"""

from math import ceil, exp

import torch
from scipy.optimize import brentq
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.selection.select_model.spec import SelectModel, SelectModelPlan
from core.oracle.simulation import Simulation
from core.oracle.stationarity import SCORE_STEPS, decided, exact_score
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question
from core.queries.hessians import FirstStationary
from studies.inference.results import Result, Row
from studies.second_order.saddle_records import ComponentRecords
from studies.second_order.saddles import mu_of

UNITS = 100_000
SWEEP_BOUNDS = (5.3, 7.47)
"""G and M of the sweep."""
PREDICTED = {20: (0.008, 0.10, 0.036), 100: (0.018, 0.50, 0.081), 1000: (0.056, 5.0, 0.255)}
"""Noise norms of a gradient, a Hessian and a product, for 100 candidates and ten sites, worked out elsewhere."""
EDGES = {20: 1.88, 100: 1.96, 1000: 1.99}
"""Mean operator norms of symmetric matrices of standard normal entries, over the root of the dimension."""
SLACK = 0.0099
ROUNDED = 0.05
NUMBERS = 5000
"""Of which a vector's noise is measured: one per cent of a standard error."""


def sweep_facts(dimension: int, units: int = UNITS) -> Facts:
    """Return the facts of the sweep."""
    steep, bent = SWEEP_BOUNDS
    return Facts(
        units=units,
        dimension=dimension,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=steep,
        smoothness=bent,
    )


def sweep_settings(dimension: int, mode: str, candidates: int, clients: int, units: int = UNITS) -> SelectModelPlan:
    """Return filled settings of the sweep, at epsilon 1 and delta 1e-5."""
    asked = {"mode": mode, "alpha": 0.02, "gamma_star": 0.3, "candidates": candidates, "sites": clients}
    if mode == "above_threshold":
        asked |= {"epsilon": 1.0}
    return SelectModel.model_validate(asked).plan(sweep_facts(dimension, units), mu_of())


def noise(*, full: bool) -> Result:
    """I2: predicted over the sweep, and measured."""
    rows = []
    for dimension, (steep, bent, turned) in PREDICTED.items():
        facts = sweep_facts(dimension)
        sound, products = (sweep_settings(dimension, mode, 100, 10) for mode in ("sound", "hessian_products"))
        for name, told, reference in (
            ("gradient", sound.figures(facts)["gradient_noise_norm"], steep),
            ("Hessian", sound.figures(facts)["curvature_noise_norm"], bent),
            ("product, 20 of them", products.figures(facts)["curvature_noise_norm"], turned),
        ):
            rows.append(Row(f"d = {dimension}: {name}", reference, float(told or 0), ROUNDED * reference))
        slack = sweep_settings(dimension, "above_threshold", 100, 1).figures(facts)["slack_of_curvature"]
        rows.append(Row(f"d = {dimension}: slack, one machine", SLACK, float(slack or 0), ROUNDED * SLACK))
    for candidates, clients in ((10, 1), (10, 10), (100, 1)):
        for dimension in PREDICTED:
            figures = sweep_settings(dimension, "sound", candidates, clients).figures(sweep_facts(dimension))
            where = f"d = {dimension}, T = {candidates}, m = {clients}"
            rows += [
                Row(f"{where}: gradient", None, float(figures["gradient_noise_norm"] or 0)),
                Row(f"{where}: Hessian", None, float(figures["curvature_noise_norm"] or 0)),
            ]
    for dimension in PREDICTED if full else tuple(PREDICTED)[:2]:
        rows += measured(dimension)
        scale, worth = measured_threshold(dimension, 40_000 if full else 10_000)
        slack = sweep_settings(dimension, "above_threshold", 100, 1).questions()[0].model_dump()["slack"]
        rows.append(
            Row(f"d = {dimension}: slack by measured noise, over {SLACK}", 1.0, slack * scale * worth / SLACK, ROUNDED)
        )
    return Result(
        "I2",
        "Noise of a private selection",
        "n = 1e5, epsilon 1, delta 1e-5, G = 5.3, M = 7.47, replace_one; T = 100 candidates and m = 10 clients where "
        "nothing else is said.",
        tuple(rows),
        "A Hessian's noise grows as d, a product's as its root, the slack of AboveThreshold not at all. Vectors are "
        f"measured on {NUMBERS:,} numbers or more (a standard error of 1 %), matrices by operator norms, one mean of "
        "ten at d = 1000, noise of scores by 40,000 choices (1 %).",
    )


def measured(dimension: int) -> list[Row]:
    """Return the noise of ten sites' mean answers about records of zeros, over the prediction."""
    facts, at = sweep_facts(dimension, 100), torch.zeros(dimension, dtype=torch.float64)
    sound, products = (sweep_settings(dimension, mode, 100, 10, 100) for mode in ("sound", "hessian_products"))
    zeros = ComponentRecords(torch.zeros(100, dimension, dtype=torch.float64)).moments
    clients = [Simulation(zeros, facts, SimulationGenerator(300 + place)) for place in range(10)]
    along = torch.ones_like(at) / dimension**0.5

    def told(question: Question, repeats: int, other: Tensor | None = None) -> Tensor:
        answers = [[one.ask(question, at, other).value for one in clients] for _ in range(repeats)]
        return torch.stack([torch.stack(each).mean(0) for each in answers])

    quoted, turned = (
        {name: float(value or 1) for name, value in one.figures(facts).items()} for one in (sound, products)
    )
    repeats = ceil(NUMBERS / dimension)
    slopes, images = told(sound.questions()[0], repeats), told(products.questions()[1], repeats, along)
    bends = told(sound.questions()[1], max(1, 1200 // dimension))
    length, image = (float(one.square().sum(-1).mean().sqrt()) for one in (slopes, images))
    norm, edge = float(torch.linalg.matrix_norm(bends, 2).mean()), EDGES[dimension]
    return [
        Row(f"d = {dimension}: {what}", 1.0, value, ROUNDED)
        for what, value in (
            ("a gradient's noise over its prediction, measured", length / quoted["gradient_noise_norm"]),
            ("a product's, measured", image / turned["curvature_noise_norm"]),
            (f"a Hessian's, at {edge} of the 2 that are predicted", 2 / edge * norm / quoted["curvature_noise_norm"]),
        )
    ]


def measured_threshold(dimension: int, choices: int) -> tuple[float, float]:
    """Return AboveThreshold's noise over what it should be, and what a score of 1 is worth in curvature.

    One candidate is accepted where its score and noise of scale 2s are below the slack and noise of scale s, s = sigma.
    At 2s above the slack its probability is (4 e^-1 - e^-2)/6; s follows from the frequency.
    """
    facts = sweep_facts(dimension)
    (question,) = sweep_settings(dimension, "above_threshold", 100, 1).questions()
    assert isinstance(question, FirstStationary), "its only question"
    flat = torch.zeros(dimension, dtype=torch.float64)
    bent = torch.zeros(dimension, dimension, dtype=torch.float64)
    scores = []
    for sharp in (0.5, 1.5):
        bent[0, 0] = -sharp
        scores.append(exact_score(question, facts, flat, (flat, bent), facts.units) / SCORE_STEPS)
    generator, above = SimulationGenerator(17), int((question.slack + 2 * question.sigma) * SCORE_STEPS)
    accepted = sum(float(decided(generator, question, [above]).value[0]) == 0 for _ in range(choices)) / choices

    def beyond(scale: float) -> float:
        return (4 * exp(-1 / scale) - exp(-2 / scale)) / 6 - accepted

    return float(brentq(beyond, 0.3, 3.0)), 1 / (scores[1] - scores[0])
