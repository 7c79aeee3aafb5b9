"""Methods under the KL condition behind simulated oracles, many runs of each: their excess over the least loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, log10
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.base import Spec
from core.methods.fits import iterate
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescentPlan
from core.oracle import EVERYTHING, Part
from core.oracle.filters import UnlimitedFilter
from core.oracle.simulation import Simulation
from core.privacy.conversions import mu_of_rho
from core.privacy.events import BoundedRange, Composed, Event, Gaussian, Repeated
from core.privacy.facts import Facts
from core.queries.sums import SyntheticProblem
from studies.kl.problems import Constants


class Instance(Protocol):
    """Synthetic records whose excess risk is known."""

    @property
    def units(self) -> int:
        """The number of records, n."""

    @property
    def dimension(self) -> int:
        """The number of parameters, p."""

    @property
    def problem(self) -> SyntheticProblem:
        """The problem behind the oracle."""

    @property
    def constants(self) -> Constants:
        """Of the loss, public."""

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value, shape (...)."""


@dataclass(frozen=True)
class Runs:
    """The results of several runs of a filled method."""

    excess: Tensor
    """Shape (R,)."""
    promised: float | None
    """By the plan; None: nothing."""
    steps: tuple[int, ...]
    """Really taken."""
    spent: float
    """The largest rho that any run drew."""

    @property
    def median(self) -> float:
        """Of the excesses."""
        return float(self.excess.median())

    @property
    def spread(self) -> float:
        """Half the way from the first to the third quartile, over the median: 0 where noise does nothing."""
        low, high = np.quantile(self.excess.numpy(), (0.25, 0.75))
        return float(high - low) / (2 * self.median)

    @property
    def kept(self) -> float:
        """The share of runs with no more excess than was promised."""
        assert self.promised is not None, "something was promised"
        return float((self.excess <= self.promised).double().mean())


class Purse(UnlimitedFilter):
    """A privacy filter that holds rho and covers no more: an account without chunks."""

    def __init__(self, rho: float) -> None:
        super().__init__()
        self.rho, self.spent = rho, 0.0

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether everything drawn so far is within rho, with these."""
        return rho_of(self.total(*events, part=part)) <= self.rho

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Note a draw."""
        super().pay(event, part, length)
        self.spent = rho_of(self.total())
        assert self.spent <= self.rho, "what cannot be afforded is not drawn"
        return False


def rho_of(event: Event) -> float:
    """Return what Gaussian answers and bounded-range choices cost in zero-concentrated terms."""
    match event:
        case Gaussian(sigma=sigma):
            return 1 / (2 * sigma**2)
        case BoundedRange(epsilon=epsilon):
            return epsilon**2 / 8
        case Repeated(event=one, times=times):
            return times * rho_of(one)
        case Composed(events=events):
            return fsum(rho_of(one) for one in events)
    raise AssertionError(f"no method here draws a {event.kind}")


def run(
    settings: Spec,
    instance: Instance,
    rho: float = 1.0,
    *,
    facts: Facts | None = None,
    runs: int = 20,
    seed: int = 0,
    noiseless: bool = False,
) -> Runs:
    """Plan a method for an instance and run it so many times, in replicates where the method knows them.

    Args:
        settings: open fields are planned.
        instance: the records.
        rho: the budget, in zero-concentrated terms.
        facts: None: those of the instance's constants, under replace_one.
        runs: independent draws of all noise.
        seed: of the first.
        noiseless: a control: everything as it is, but no noise.
    """
    facts = facts or instance.constants.facts(instance.units, instance.dimension)
    plan = settings.plan(facts, mu_of_rho(rho))
    promised = plan.bound(facts).value
    if isinstance(plan, AdaptiveGradientDescentPlan):
        return _one_by_one(plan, instance, facts, rho, range(seed, seed + runs), promised, noiseless=noiseless)
    oracle = Simulation(instance.problem, facts, SimulationGenerator(seed), noiseless=noiseless, replicates=runs)
    estimate, _ = iterate(plan, oracle)
    theta = estimate.theta.expand(runs, instance.dimension)
    taken = torch.as_tensor(estimate.steps).expand(runs).tolist()
    spent = rho_of(oracle.release(None, _).event)
    return Runs(instance.excess(theta), promised, tuple(taken), spent)


def _one_by_one(
    plan: AdaptiveGradientDescentPlan,
    instance: Instance,
    facts: Facts,
    rho: float,
    seeds: Sequence[int],
    promised: float | None,
    *,
    noiseless: bool,
) -> Runs:
    """Run a method whose course depends on the answers it receives."""
    excess, steps, spent = [], [], 0.0
    for seed in seeds:
        purse = Purse(rho)
        oracle = Simulation(instance.problem, facts, SimulationGenerator(seed), noiseless=noiseless, payments=purse)
        estimate, _ = iterate(plan, oracle)
        excess.append(instance.excess(estimate.theta))
        steps.append(int(estimate.steps))
        spent = max(spent, purse.spent)
    return Runs(torch.stack(excess), promised, tuple(steps), spent)


@dataclass(frozen=True)
class Slope:
    """A line through points on doubly logarithmic paper."""

    value: float
    residual: float
    """The largest, of the natural logarithm."""


def slope(x: Sequence[float], y: Sequence[float]) -> Slope:
    """Return the least-squares slope of log y in log x."""
    across, up = np.log(x), np.log(y)
    value, level = np.polyfit(across, up, 1)
    return Slope(float(value), float(np.abs(up - value * across - level).max()))


def permuted(values: Sequence[float]) -> list[float]:
    """Return them in another order: the last ones first, every second one."""
    return [*values[::-2], *values[-2::-2]]


def decades(x: Sequence[float]) -> float:
    """Return how many a range spans."""
    return log10(max(x) / min(x))
