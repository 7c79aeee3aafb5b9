"""One run of the paper's appendix E on images that packages ship, each run at the epsilon it is honestly accounted at.

From the paper: one hidden layer of 128 rectified units, softmax cross-entropy, chi = .01, kappa = .1, Gamma = 10, Q =
3, delta = 1e-5. Also from it: steps of .001 (MNIST) and .01 (there CIFAR-10), m sites (its clients) of {1, 2, 5, 10},
6,000 records. Declared by us, since the paper says nothing of it: R, the clip G, M and rho, both batches, one pass, the
partitions, and all that the baseline of prior work takes. CIFAR-10 is in no package: Fashion-MNIST stands in its place,
with its step. Of MNIST packages ship the first 10,000 images only, 8,000 of them to train on: enough for 6,000 records
in all (reading B) and not for 6,000 a site (reading A).

A run is one cell, method and seed; `appendix_grid` makes and reports them.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from core.mechanisms.generator import SimulationGenerator
from core.mechanisms.public_start import draw_start
from core.methods.clipped.one_pass.spec import OnePassClippedSgd, OnePassClippedSgdPlan
from core.methods.fits import iterate
from core.methods.registry import AnyPlan
from core.methods.second_order.figures import SpiderFigures
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider
from core.models.network.layers import Activation, Layer, Linear
from core.oracle.filters import ORDERS, CountingFilter
from core.oracle.simulation import Simulation
from core.privacy.conversions import gdp_mu
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts
from core.privacy.renyi import cost_nano
from core.queries.sampling import StreamSampling
from core.queries.sums.network.problem import NetworkProblem
from examples.datasets import PIXEL, fashion_mnist, mnist
from studies.second_order.clients import Clients, Partition, State, shares

DELTA: Final = 1e-5
UNITS: Final = 6000
STEPS: Final = {"mnist": 0.001, "fashion": 0.01, "digits": 0.01}
SMOOTHNESS: Final = 1.0
"""M and rho, declared: cross-entropy of rectified units has neither. Changes are cut to M times the distance."""
FRESH_PARTS, CHANGE_PARTS = 12, 120
"""Of a site's records: b1 and b2, the largest with which a certificate could be paid twice, in ten to one."""
PLAIN_PARTS: Final = 60
"""As many batches of plain gradients."""
ESCAPE: Final = 0.1
LAYERS: Final[tuple[Layer, ...]] = (Linear(units=128), Activation(of="relu"), Linear(units=10))
FAR: Final = 1e6
CHECKPOINTS: Final = 8

Method = Literal["gauss_psgd", "perturbed_spider", "dp_sgd", "diff2"]


@dataclass(frozen=True)
class Pictures:
    """Images as rows of numbers in [0, 1], and their classes; to train on and to test on."""

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class Cell:
    """One square of the grid."""

    data: Literal["mnist", "fashion", "digits"]
    reading: Literal["A", "B"]
    epsilon: float
    clients: int
    partition: Partition
    clip: float

    @property
    def units(self) -> int:
        """Of a site: 6,000, or its part of them."""
        whole = UNITS if self.data != "digits" else 1200
        return whole if self.reading == "A" else whole // self.clients


@dataclass(frozen=True)
class Run:
    """The results of one run."""

    cell: Cell
    method: Method
    seed: int
    curve: tuple[tuple[float, float, float], ...]
    """Share of the pass that was read, test accuracy, test loss."""
    random_iterate: tuple[float, float] | None
    """Accuracy and loss of an iterate that coins chose, of plain gradients."""
    counts: Mapping[str, int]
    """Phases, rounds, restarts, changes, disturbances and steps, as far as a method has them; records of a site."""
    ended_by: str

    @property
    def key(self) -> str:
        """A text that distinguishes it from other runs."""
        return key_of(self.cell, self.method, self.seed)


def key_of(cell: Cell, method: Method, seed: int) -> str:
    """Return what tells a run from others."""
    return json.dumps([asdict(cell), method, seed])


@cache
def pictures(data: str) -> Pictures:
    """Return images that packages ship.

    Raises:
        NotFetched: they are not here, and cannot be fetched.
    """
    if data == "digits":
        images, labels = (np.asarray(one) for one in load_digits(return_X_y=True))
        held_out = np.arange(len(labels)) % 5 == 0
        parts = images[~held_out] / 16, labels[~held_out], images[held_out] / 16, labels[held_out]
    else:
        one = mnist() if data == "mnist" else fashion_mnist()
        flat = (images.reshape(len(images), -1) / PIXEL for images in (one.train_images, one.test_images))
        train, test = flat
        parts = train, one.train_labels, test, one.test_labels
    inputs, classes, test_inputs, test_classes = (torch.from_numpy(np.array(part)) for part in parts)
    return Pictures(inputs.float(), classes.long(), test_inputs.float(), test_classes.long())


def settings(cell: Cell, method: Method, facts: Facts) -> AnyPlan:
    """Return a method's settings at a site, nothing open."""
    mu = gdp_mu(cell.epsilon, DELTA)
    common: dict[str, Any] = {"mu": mu, "clip": cell.clip, "radius": FAR}
    spider = common | {
        "batch": cell.units // FRESH_PARTS,
        "difference_batch": cell.units // CHANGE_PARTS,
        "restart_drift": 0.1,
        "error_radius": 0.01,
        "smoothness": SMOOTHNESS,
    }
    step = STEPS[cell.data]
    if method == "perturbed_spider":
        return PerturbedSpider.model_validate(spider | {"frozen_steps": 10}).plan(facts, mu)
    if method == "dp_sgd":
        figures = common | {"batch": cell.units // PLAIN_PARTS, "step_size": step, "returns": "random_iterate"}
        return OnePassClippedSgd.model_validate(figures).plan(facts, mu)
    if method == "diff2":
        return GaussPsgd.model_validate(spider | {"estimator": "period", "step_size": step}).plan(facts, mu)
    rounds = {"mode": "given", "hessian_smoothness": SMOOTHNESS, "escape_distance": ESCAPE}
    rounds |= {"round_steps": 10, "rounds": 3, "step_size": step}
    return GaussPsgd.model_validate(spider | rounds).plan(facts, mu)


def run(cell: Cell, method: Method, seed: int) -> Run:
    """Train once; partitions and noise are the seed's, alike for all methods."""
    images = pictures(cell.data)
    start = draw_start(LAYERS, (images.inputs.shape[1],), "all")
    flat = torch.cat([one.flatten() for one in start.values()])
    facts = Facts(
        units=cell.units,
        dimension=len(flat),
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=cell.clip,
        part_rows=128,
    )
    planned = settings(cell, method, facts)
    price = Gaussian(sigma=1 / gdp_mu(cell.epsilon, DELTA))
    sampling = planned.sampling(facts)
    assert isinstance(sampling, StreamSampling), "each record is read once"
    divided = shares(images.labels, cell.clients, cell.units, cell.partition, seed)
    oracles = [
        Simulation(
            _client(images, at, flat),
            facts,
            SimulationGenerator(1000 * seed + place),
            sampling=sampling,
            payments=CountingFilter(price),
        )
        for place, at in enumerate(divided)
    ]
    watched = _Watched(planned, cell.units, lambda theta: score(images, flat, theta))
    oracle = Clients(oracles, 1000 * seed + 999, watched.seen)
    estimate, status = iterate(planned, oracle)
    drawn = oracle.release(None, status).event
    assert cost_nano(drawn, ORDERS) <= cost_nano(price, ORDERS), "the whole run costs what one answer does"
    assert watched.records <= cell.units, "no record is read twice"
    watched.look(watched.last)
    assert all(np.isfinite(value) for point in watched.curve for value in point), "all that is shown is finite"
    picked = score(images, flat, estimate.theta) if method == "dp_sgd" else None
    certificate = estimate.error_bound
    counts = {name: int(watched.last[name]) for name in COUNTED if name in watched.last}
    return Run(
        cell,
        method,
        seed,
        tuple(watched.curve),
        picked,
        counts | {"records": watched.records},
        "steps" if certificate is None else certificate.ended_by,
    )


COUNTED: Final = ("step", "phases", "rounds", "escapes", "restarts", "differences", "disturbed")


class _Watched:
    """Notes how a run goes, from states that the method keeps: noised values, and test images."""

    def __init__(self, planned: AnyPlan, units: int, judged: Callable[[Tensor], tuple[float, float]]) -> None:
        self._planned, self._units, self._judged = planned, units, judged
        self.curve: list[tuple[float, float, float]] = []
        self.last: State = {}
        self._due = 0.0

    @property
    def records(self) -> int:
        """Read of a site until now."""
        if isinstance(self._planned, OnePassClippedSgdPlan):
            return int(self.last["step"]) * (self._planned.batch or 0)
        assert isinstance(self._planned, SpiderFigures), "one of the three"
        fresh, changes = int(self.last["restarts"]), int(self.last["differences"])
        return fresh * self._planned.batch + changes * self._planned.difference_batch

    def seen(self, state: State) -> None:
        """Take note of a state, and look at it where one is due."""
        if not self.last:
            self.curve.append((0.0, *self._judged(torch.zeros_like(state["theta"]))))
        self.last = state
        if self.records / self._units >= self._due:
            self.look(state)
            self._due += 1 / CHECKPOINTS

    def look(self, state: State) -> None:
        """Look at the iterate on the test images."""
        accuracy, loss = self._judged(state["theta"])
        self.curve.append((round(self.records / self._units, 4), round(accuracy, 5), round(loss, 5)))


def _client(images: Pictures, at: Tensor, flat: Tensor) -> NetworkProblem:
    """Return one client's records behind the network."""
    present = torch.ones(len(at), dtype=torch.bool)
    shape = (images.inputs.shape[1],)
    return NetworkProblem(images.inputs[at], images.labels[at], present, LAYERS, "cross_entropy", shape, flat)


def score(images: Pictures, flat: Tensor, theta: Tensor) -> tuple[float, float]:
    """Return accuracy and loss on the test images."""
    width = images.inputs.shape[1]
    weights = (flat + theta.reshape(-1)).float()
    first, shift, second, offset = torch.tensor_split(weights, (128 * width, 128 * width + 128, 128 * width + 1408))
    hidden = torch.relu(images.test_inputs @ first.view(128, width).T + shift)
    outputs = hidden @ second.view(10, 128).T + offset
    right = (outputs.argmax(1) == images.test_labels).double().mean()
    return float(right), float(functional.cross_entropy(outputs.double(), images.test_labels))
