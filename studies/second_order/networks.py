"""Small networks: K1 starts on a saddle that is known exactly, K2 is handwritten digits, tanh 64-16-10.

The networks, oracles' sums and optimizers are those of jobs; noise has seeds. Statements about a point are made on
records that nobody trained on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from core.inference.estimate import Estimate
from core.mechanisms.generator import SimulationGenerator
from core.mechanisms.public_start import draw_start
from core.mechanisms.sampling import public_order
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.models.network.layers import Activation, Layer, Linear
from core.models.network.model import Loss
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sampling import Sampling, StreamSampling
from core.queries.sums.network.problem import NetworkProblem
from studies.inference.results import Result, Row
from studies.second_order.curvature import hessian_product, least_eigenvalue
from studies.second_order.levels import level_settings
from studies.second_order.saddles import mu_of

INPUTS, HIDDEN, ZERO_UNITS = 6, 5, 400_000
PIXELS, WIDTH, CLASSES, HELD_OUT = 64, 16, 10, 360
BRIGHTEST = 16.0
ANYWHERE = 1e6


@dataclass(frozen=True)
class Learnt:
    """A network on records, and others to judge it by."""

    problem: NetworkProblem
    facts: Facts
    loss: Callable[[Tensor], Tensor]
    """Of the others, at theta: the change of the public start."""
    right: Callable[[Tensor], float]
    """Share of the others that are named rightly at theta; NaN where there are no names."""

    def oracle(self, settings: GaussPsgdPlan, seed: int) -> Simulation:
        """Return an oracle over the records, each read once in a pass."""
        return self._oracle(settings.sampling(self.facts), seed)

    def _oracle(self, sampling: Sampling, seed: int) -> Simulation:
        return Simulation(self.problem, self.facts, SimulationGenerator(seed), sampling=sampling)

    def plain(self, multiplier: float, batch: int, passes: int, step_size: float, seed: int) -> Tensor:
        """Return where private stochastic gradients end, all passes through."""
        question = Gradient(sigma=multiplier, batch=batch)
        oracle = self._oracle(StreamSampling(batches=(batch,), passes=passes), seed)
        theta = torch.zeros(self.facts.dimension, dtype=torch.float64)
        while oracle.affords(question):
            theta = theta - step_size * oracle.ask(question, theta).value.reshape(-1)
        return theta

    def least_curvature(self, theta: Tensor) -> float:
        """Return the smallest eigenvalue of the Hessian of the others' loss."""
        return least_eigenvalue(hessian_product(self.loss, theta), self.facts.dimension, precision=1e-4)


def forward(theta: Tensor, x: Tensor, inputs: int, hidden: int, outputs: int, *, bias: bool) -> Tensor:
    """Return the outputs of one hidden layer of tanh, shape (m, outputs), by its parameters in the network's order."""
    sizes = [hidden * inputs, hidden * bias, outputs * hidden, outputs * bias]
    inner, shift, outer, level = theta.split(sizes)  # type: ignore[no-untyped-call] # torch's stub has no types
    made = torch.tanh(x @ inner.view(hidden, inputs).mT + (shift if bias else 0.0))
    last: Tensor = made @ outer.view(outputs, hidden).mT + (level if bias else 0.0)
    return last


def layers_of(hidden: int, outputs: int, *, bias: bool) -> tuple[Layer, ...]:
    """Return one hidden layer of tanh."""
    return Linear(units=hidden, bias=bias), Activation(of="tanh"), Linear(units=outputs, bias=bias)


def _problem(x: Tensor, y: Tensor, layers: tuple[Layer, ...], loss: Loss, start: Tensor) -> NetworkProblem:
    present = torch.ones(len(x), dtype=torch.bool)
    return NetworkProblem(x.clone(), y.clone(), present, layers, loss, (x.shape[1],), start)


def _facts(problem: NetworkProblem, clip: float) -> Facts:
    return Facts(
        units=problem.units,
        dimension=problem.dimension,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=clip,
        part_rows=1024,
    )


def at_zero(units: int = ZERO_UNITS) -> Learnt:
    """Return the network of tanh without biases that starts at zero, on records of a known law, and 2000 others."""
    draws = SimulationGenerator(12)
    x = draws.normal(units + 2000, INPUTS)
    y = torch.tanh(x[:, 0] - x[:, 1])
    zero = torch.zeros((INPUTS + 1) * HIDDEN, dtype=torch.float64)
    problem = _problem(x[:units], y[:units], layers_of(HIDDEN, 1, bias=False), "squared", zero)

    def loss(theta: Tensor) -> Tensor:
        made = forward(theta, x[units:], INPUTS, HIDDEN, 1, bias=False).squeeze(-1)
        return (made - y[units:]).square().mean() / 2

    return Learnt(problem, _facts(problem, 2.0), loss, lambda _: float("nan"))


def at_zero_settings(known: Learnt, rounds: int = 4) -> GaussPsgdPlan:
    """Return figures by hand: rounds long enough for the saddle's curvature, some .6."""
    figures = level_settings(
        mu=mu_of(),
        batch=10_000,
        difference_batch=100,
        restart_drift=0.01,
        smoothness=4.0,
        step_size=0.25,
        error_radius=0.01,
        escape_distance=0.5,
        round_steps=40,
        rounds=rounds,
        steps=5000,
        radius=ANYWHERE,
    )
    return figures.with_rounds(known.facts, mu_of())


def digits(seed: int = 0) -> Learnt:
    """Return tanh 64-16-10 on the digits of scikit-learn, every fifth or so held out, from a public random start."""
    told = load_digits()
    order = torch.from_numpy(public_order(f"digits {seed}", len(told.target)))
    x = torch.from_numpy(told.data).double()[order] / BRIGHTEST
    y = torch.from_numpy(told.target).double()[order]
    layers = layers_of(WIDTH, CLASSES, bias=True)
    start = torch.cat([one.flatten() for one in draw_start(layers, (PIXELS,), "all").values()]).double()
    problem = _problem(x[HELD_OUT:], y[HELD_OUT:], layers, "cross_entropy", start)

    def outputs(theta: Tensor) -> Tensor:
        return forward(start + theta, x[:HELD_OUT], PIXELS, WIDTH, CLASSES, bias=True)

    def loss(theta: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs(theta), y[:HELD_OUT].long())

    def right(theta: Tensor) -> float:
        return float((outputs(theta).argmax(-1) == y[:HELD_OUT]).double().mean())

    return Learnt(problem, _facts(problem, 1.0), loss, right)


def digits_settings(known: Learnt, mu: float, epochs: int) -> GaussPsgdPlan:
    """Return figures by hand: a fresh gradient of a third of the records; chi as small as its sampling allows."""
    figures = level_settings(
        mu=mu,
        epochs=epochs,
        batch=known.facts.units // 3,
        difference_batch=48,
        restart_drift=0.01,
        smoothness=5.0,
        step_size=0.5,
        error_radius=0.05,
        escape_distance=0.3,
        round_steps=10,
        rounds=3,
        steps=20_000,
        radius=ANYWHERE,
    )
    return figures.with_rounds(known.facts, mu)


def zero_network(*, full: bool) -> Result:
    """K1: exact descent stays, noise leaves."""
    known = at_zero()
    zero = torch.zeros(known.facts.dimension, dtype=torch.float64)
    seeds = range(3 if full else 1)
    exact = known.problem.bounded_sum(Gradient(sigma=1.0, clip=1e6), known.facts, zero)
    stays = float(torch.linalg.vector_norm(exact)) / known.facts.units
    first = known.least_curvature(zero)
    settings = at_zero_settings(known)
    ours = [gauss_psgd.iterate(settings, known.oracle(settings, seed))[0] for seed in seeds]
    plain = [known.plain(1 / mu_of(), 1000, 1, 0.25, seed) for seed in seeds]
    rows = (
        Row("gradient of exact descent at the start: it never moves", 0.0, stays, 1e-12),
        Row("curvature at the start", None, first),
        *_judged("Gauss-PSGD", known, [one.theta for one in ours], [_found(one) for one in ours], first),
        *_judged("private stochastic gradients", known, plain, [], first),
    )
    return Result(
        "K1",
        "A network that starts at zero",
        f"One hidden layer of {HIDDEN} tanh, no biases, squared error, {known.facts.units:,} records in {INPUTS} "
        f"dimensions, epsilon 1; zero is a saddle of curvature -|E[y x]|. {len(seeds)} seeds.",
        rows,
        "Noise leaves the saddle, with rounds of escape or without. The figures of the rounds are by hand: no constant "
        "of a network is proved here, so what is returned is no theorem's certificate.",
    )


def _judged(
    name: str, known: Learnt, points: list[Tensor], found: list[tuple[str, int, int, int]], first: float
) -> list[Row]:
    """Return rows about where runs ended."""
    bends = [known.least_curvature(point) for point in points]
    rows = [
        Row(f"{name}: runs that left the saddle", 1.0, mean(bend > first / 4 for bend in bends), 0.0),
        Row(f"{name}: least curvature at the end", None, min(bends)),
    ]
    if found:
        rows.append(Row(f"{name}: runs that no round left", None, mean(told[0] == QUIET for told in found)))
        rows.append(Row(f"{name}: phases, mean", None, mean(told[1] for told in found)))
    return rows


QUIET = "no_escape_observed"


def _found(estimate: Estimate) -> tuple[str, int, int, int]:
    """Return how a run ended, its phases, its fresh gradients, and its changes."""
    assert estimate.error_bound is not None, "there are rounds"
    told = estimate.error_bound.second_order
    assert told is not None, "it is told"
    return told.outcome, told.phases, told.restarts, told.differences


def small_network(*, full: bool) -> Result:
    """K2: digits, at several epsilons."""
    epochs, seeds, rows = 20, range(3 if full else 1), []
    for epsilon in (1.0, 4.0, 16.0, 1000.0) if full else (4.0, 1000.0):
        mu = mu_of(epsilon)
        ours, plain, told = [], [], []
        for seed in seeds:
            known = digits(seed)
            settings = digits_settings(known, mu, epochs)
            estimate, _ = gauss_psgd.iterate(settings, known.oracle(settings, seed))
            told.append(_found(estimate))
            ours.append((known, estimate.theta))
            batch = known.facts.units // 3
            plain.append((known, known.plain(sqrt(epochs) / mu, batch, epochs, 0.5, seed)))
        for name, ends in (("Gauss-PSGD", ours), ("private stochastic gradients", plain)):
            where = f"epsilon {epsilon:g}, {name}"
            rows.append(Row(f"{where}: test accuracy", None, mean(at.right(theta) for at, theta in ends)))
            least = min(at.least_curvature(theta) for at, theta in ends)
            rows.append(Row(f"{where}: least curvature on the test digits", None, least))
        rows += [
            Row(f"epsilon {epsilon:g}, Gauss-PSGD: phases, mean", None, mean(one[1] for one in told)),
            Row(f"epsilon {epsilon:g}, Gauss-PSGD: fresh gradients, mean", None, mean(one[2] for one in told)),
            Row(f"epsilon {epsilon:g}, Gauss-PSGD: changes, mean", None, mean(one[3] for one in told)),
        ]
    return Result(
        "K2",
        "Handwritten digits by a small network",
        f"scikit-learn's 1,797 digits of 8 x 8, {HELD_OUT} held out; tanh 64-16-10, 1,210 parameters, clip 1, delta "
        f"1e-5, {epochs} passes, batches of a third of the records; {len(seeds)} seeds.",
        tuple(rows),
        "With so few records the noise of a gradient is longer than three error radii at every epsilon that anybody "
        "would ask for: no phase begins, nothing is claimed, and steps are so long that every gradient is a fresh one: "
        "it is plain private gradients, number for number. At epsilon 1000, which is no privacy, phases begin.",
    )
