"""E5, E6 and E7: what the intervals and a joint region cover (figures 5 and 6).

Budgets are the paper's: one mu for the estimate and both matrices, equal shares of mu/sqrt(K + 2), or sqrt(2 K + 2) for
Newton's method. The noise on matrices is the tight one, sqrt(2) times the bound, as everywhere in Farthing.
"""

from dataclasses import dataclass
from functools import partial

import torch
from scipy.stats import chi2
from torch import Tensor

from core.catalogue.jobs import Inference
from core.catalogue.losses import Huber
from core.catalogue.methods import AnySettings
from core.mechanisms.generator import SimulationGenerator
from examples.inference.charts import Axis, Series, line_chart
from examples.inference.designs import D1, D2, Design, Records
from examples.inference.rates import JOINT_STEP
from examples.inference.results import Result, Row
from examples.inference.studies import KNOWN, LEVEL, Intervals, descent, newton, repeat, sharing

KINDS = ("plain", "printed", "stationary")
JOINT = Huber(scale=1.0, joint=True, scale_floor=0.05)
BAND = 0.03
"""Three standard errors or more from 500 repetitions on."""


@dataclass(frozen=True)
class Setting:
    """One way to get intervals."""

    name: str
    design: Design
    loss: Huber
    method: AnySettings
    floor: float
    """On M, Hessian of the loss, or that times the scale where it is unknown."""

    def plan(self, mu: float, units: int) -> tuple[AnySettings, Inference]:
        """Share out mu."""
        return sharing(self.method, mu, units, floor=self.floor)

    def intervals(
        self, units: int, repetitions: int, seed: int, mu: float = 1.0, *, noiseless: bool = False, pooled: bool = False
    ) -> Intervals:
        """Repeat."""
        draw = partial(linear, self.design, units)
        plan = self.plan(mu, units)
        truth = self.design.parameters()
        return repeat(draw, truth, plan, repetitions, seed, self.loss, noiseless=noiseless, pooled=pooled)

    def non_private(self, units: int, repetitions: int, seed: int) -> Intervals:
        """Repeat without noise, and with steps enough to converge."""
        exact = Setting(self.name, self.design, self.loss, descent(250, 1.0, 1.0), self.floor)
        return exact.intervals(units, repetitions, seed, noiseless=True)


def linear(design: Design, units: int, generator: SimulationGenerator, lanes: int) -> Records:
    """Draw a design's records."""
    return design.linear(generator, lanes, units)


def known(steps: int = 50, step_size: float = 1.0) -> Setting:
    """Gradient descent on D1, scale known."""
    return Setting("gradient descent, known scale", D1, KNOWN, descent(steps, step_size, 1.0), 5e-4)


def joint(steps: int, design: Design = D1) -> Setting:
    """Gradient descent, scale unknown, steps times the current scale."""
    return Setting("gradient descent, unknown scale", design, JOINT, descent(steps, JOINT_STEP, 1.0), 1e-3)


def damped(steps: int, damping: float = 0.5) -> Setting:
    """Newton's method on D2, scale known."""
    return Setting(f"newton, damping {damping:g}", D2, KNOWN, newton(steps, damping, 1.0), 5e-4)


def headline(units: int) -> tuple[Setting, ...]:
    """Return the settings of the headline table at n, with the paper's K."""
    steps = {1000: (56, 17), 2000: (60, 18), 4000: (65, 19)}[units]
    return known(), joint(steps[0]), damped(steps[1]), damped(steps[1], 1.0)
