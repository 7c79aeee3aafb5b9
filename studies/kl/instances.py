"""Records for the experiments: problems whose constants are exactly known, and synthetic data with public bounds."""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from core.losses.phase import SmoothPhase
from core.losses.squares import SineLink
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator
from core.queries.sums import SyntheticProblem
from core.queries.sums.linear import LinearProblem
from studies.kl import problems as known
from studies.kl.gram import GramProblem
from studies.kl.grouped import Copies
from studies.kl.powers import PowerProblem
from studies.kl.problems import Constants

BIG = 1e6
"""A clip that cuts nothing: the facts' own bound does."""


class Power:
    """|w - m|^p for any n; see `studies.kl.powers`."""

    def __init__(self, units: int, dimension: int, exponent: float, steepness: float = 1.0) -> None:
        self.problem = PowerProblem(units, dimension, exponent, steepness=steepness)
        self.units, self.dimension = units, dimension
        self.constants = self.problem.constants

    def excess(self, theta: Tensor) -> Tensor:
        """Return |w - m|^p."""
        return self.problem.excess(theta)


def sphere_rows(units: int, dimension: int, seed: int, radius: float = 1.0) -> Tensor:
    """Return rows that are uniform on a sphere, shape (n, d)."""
    rows = SimulationGenerator(seed).normal(units, dimension)
    scaled: Tensor = rows / torch.linalg.vector_norm(rows, dim=-1, keepdim=True) * radius
    return scaled


class LeastSquares:
    """(x.w - y)^2/2, rows on the unit sphere and labels in [-1, 1], every record so many times over.

    Args:
        rows: distinct records.
        dimension: d.
        copies: of each.
        seed: of the data.
        eigenvalue: public lower bound on the smallest eigenvalue that is not zero; checked here, which no job could.
        radius: public, of |w|.
    """

    def __init__(
        self, rows: int, dimension: int, copies: int, *, seed: int = 0, eigenvalue: float, radius: float = 8.0
    ) -> None:
        features = sphere_rows(rows, dimension, seed)
        noise = SimulationGenerator(seed + 1).normal(rows)
        truth = torch.full((dimension,), 1 / sqrt(dimension), dtype=torch.float64)
        labels = (features @ truth + 0.2 * noise).clamp(-1, 1)
        self.problem, self.labels = GramProblem(features, labels, copies), labels
        self.units, self.dimension = rows * copies, dimension
        assert self.problem.eigenvalue >= eigenvalue, "the public bound is true of these records"
        self.constants = known.least_squares(eigenvalue, label_bound=1.0, radius=radius)

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss above its least value."""
        return self.problem.excess(theta)


@dataclass(frozen=True)
class Rows:
    """A loss of the margin on rows, every record so many times over, its least mean loss zero."""

    problem: SyntheticProblem
    once: LinearProblem
    features: Tensor
    target: Tensor
    constants: Constants
    truth: Tensor
    units: int
    dimension: int

    def excess(self, theta: Tensor) -> Tensor:
        """Return the mean loss, shape (...): targets are without errors."""
        return self.once.loss.value(theta @ self.features.mT, self.target).mean(-1)

    def hessian(self, theta: Tensor) -> Tensor:
        """Return the mean Hessian at theta, shape (p,)."""
        curvature = self.once.loss.curvature(theta @ self.features.mT, self.target)
        return (self.features * curvature.unsqueeze(-1)).mT @ self.features / len(self.features)

    def slopes(self, theta: Tensor) -> Tensor:
        """Return the mean gradient, shape (..., p)."""
        return self.once.loss.score(theta @ self.features.mT, self.target) @ self.features / len(self.features)

    def clipped(self, theta: Tensor, bound: float) -> float:
        """Return which share of records has a gradient longer than a bound at theta, shape (p,); not private."""
        score = self.once.loss.score(theta @ self.features.mT, self.target).abs()
        return float((score * torch.linalg.vector_norm(self.features, dim=-1) > bound).double().mean())


def sine_link(copies: int, *, rows: int = 2000, seed: int = 0, gamma: float | None = None) -> Rows:
    """Return (s(x.w) - s(x.w*))^2/2 with s(m) = m + 0.9 sin m in five dimensions, |x| = 1, |w*| = 8.

    Margins reach over more than one bend of s, so that the mean loss is not convex on the way.

    Args:
        copies: of each record.
        rows: distinct ones.
        seed: of the data.
        gamma: from public simulated data; None: the theory's, which is very loose.
    """
    loss, features = SineLink(), sphere_rows(rows, 5, seed)
    truth = torch.full((5,), 8 / sqrt(5), dtype=torch.float64)
    margin = features @ truth
    constants = known.monotone_link(
        0.15,
        gentlest=1 - loss.amplitude,
        steepest=1 + loss.amplitude,
        bend=loss.amplitude,
        apart=8.0,
        label_bound=8.9,
    )
    if gamma is not None:
        constants = constants.model_copy(update={"gamma": gamma})
    return _rows(loss, features, margin + loss.amplitude * torch.sin(margin), truth, constants, copies)


def phase(copies: int, *, rows: int = 2000, dimension: int = 5, seed: int = 0) -> Rows:
    """Return ((x.w)^2 - (x.w*)^2)^2/4 for rows on a sphere of radius sqrt(d) and w* = (1, 0, ..)."""
    features = sphere_rows(rows, dimension, seed, sqrt(dimension))
    truth = torch.zeros(dimension, dtype=torch.float64)
    truth[0] = 1.0
    target = (features @ truth).square()
    constants = known.phase_retrieval(dimension)
    return _rows(SmoothPhase(cap=float(dimension)), features, target, truth, constants, copies)


def _rows(
    loss: SineLink | SmoothPhase, features: Tensor, target: Tensor, truth: Tensor, constants: Constants, copies: int
) -> Rows:
    present = torch.ones(len(features), dtype=torch.bool)
    once = LinearProblem(features.clone(), target, present, loss, Clip(bound=BIG))
    whole = Copies(once, copies)
    return Rows(whole, once, features, target, constants, truth, whole.units, whole.dimension)
