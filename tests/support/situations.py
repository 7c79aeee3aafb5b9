"""One problem of every kind that answers questions, with records to ask about; every draw has a fixed seed.

Laws of all of them are tested on all of them, over these problems.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.registry import Loss
from core.losses.robust import Huber, SmoothedHuber
from core.losses.squares import Squared
from core.losses.weights import Clip, Mallows, Schweppe, Weights, cubic_bound
from core.models.modelling import parameters
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, GradientDifference, Question, Secant
from core.queries.sums import make_problem
from core.queries.sums.blocks import BlockProblem
from tests.support import problems

SCALE_START = 1.7


@dataclass(frozen=True)
class Situation:
    """A loss with its weights on records of so many features."""

    name: str
    loss: Loss
    weights: Weights
    features: int = 3

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        return parameters(self.loss, self.features)

    @property
    def questions(self) -> list[Question]:
        """Every question that may be asked here."""
        asked: list[Question] = [Gradient(sigma=1.0), Gradient(sigma=1.0, clip=0.5), Secant(sigma=1.0)]
        asked += [GradientDifference(sigma=1.0, cap=0.3), GradientDifference(sigma=1.0, cap=0.3, clip=0.4)]
        if not isinstance(self.weights, Clip):
            asked.append(Curvature(of="hessian", sigma=1.0))
        if cubic_bound(self.weights) is not None and self.dimension == self.features:
            asked.append(Curvature(of="cubic", sigma=1.0))
        return [*asked, Curvature(of="score", sigma=1.0)]

    def facts(self, units: int, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Facts:
        """Return what is public about so many of these records."""
        return problems.facts(units, self.dimension, self.loss, adjacency, self.weights)

    def rows(self, units: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Return features with an intercept, targets and presence."""
        x, y, present = problems.rows(units, self.features, self.loss, seed)
        if isinstance(self.loss, Multinomial):
            assert self.loss.classes is not None
            y = ((y - y.min()) / (y.max() - y.min()) * self.loss.classes).floor().clamp(max=self.loss.classes - 1)
        return x, y, present

    def problem(self, rows: tuple[Tensor, Tensor, Tensor]) -> BlockProblem:
        """Return the problem of copies of some records."""
        x, y, present = rows
        return make_problem(x.clone(), y.clone(), present.clone(), self.loss, self.weights)

    def point(self, seed: int = 0) -> Tensor:
        """Return parameters of ordinary size; an unknown scale is positive and not one."""
        theta = torch.randn(self.dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        if isinstance(self.loss, Huber) and self.loss.joint:
            theta[-1] = SCALE_START / (1 + seed % 5)
        return theta

    def target(self, draws: np.random.Generator) -> float:
        """Return a target, extreme ones among them."""
        if isinstance(self.loss, Logistic):
            return float(draws.integers(0, 2))
        if isinstance(self.loss, Multinomial):
            assert self.loss.classes is not None
            return float(draws.integers(0, self.loss.classes))
        return abs(float(draws.normal() * 10)) if isinstance(self.loss, Poisson) else float(draws.normal() * 10)


JOINT = Huber(joint=True, scale=1.0, scale_floor=0.05)
WEIGHTS = problems.WEIGHTS
SITUATIONS = [
    Situation("logistic", problems.LOGISTIC, WEIGHTS),
    Situation("huber", problems.HUBER, WEIGHTS),
    Situation("joint", JOINT, WEIGHTS),
    Situation("joint, other figures", JOINT.model_copy(update={"c": 0.6}), Mallows(bound=2.5, power=3), features=2),
    Situation("multinomial", Multinomial(classes=4), WEIGHTS),
    Situation("multinomial, clipped", Multinomial(classes=3), Clip(bound=0.8)),
    Situation("schweppe", SmoothedHuber(scale=0.7), Schweppe(bound=1.3)),
    Situation("poisson, cubic weights", Poisson(cap=6.0, c=2.5), Mallows(bound=1.3, power=3)),
    Situation("squared, clipped", Squared(), Clip(bound=0.8)),
    Situation("multinomial, two classes", Multinomial(classes=2), Mallows(bound=sqrt(3)), features=2),
]
NEW = SITUATIONS[2:]
ASKED = [(situation, question) for situation in SITUATIONS for question in situation.questions]


def ask(problem: BlockProblem, question: Question, public: Facts, theta: Tensor, other: Tensor) -> Tensor:
    """Return an exact answer; the other point is for questions about two."""
    second = other if question.places == "pair" else None
    return problem.bounded_sum(question, public, theta, other=second)


def named(value: object) -> str:
    """Name a parameter of a test."""
    return value.name if isinstance(value, Situation) else str(value)
