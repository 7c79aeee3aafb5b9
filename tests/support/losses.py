"""Losses and weights for laws, with independent formulas; a new loss joins by a line in `FORMULAS`."""

from collections.abc import Callable
from functools import partial
from math import log, sqrt

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from core.losses.bases import AbstractRobust
from core.losses.categorical import Brier, Logistic
from core.losses.counts import Poisson
from core.losses.phase import RobustPhase, SmoothPhase
from core.losses.registry import LOSSES, Loss, example_of
from core.losses.robust import Cauchy, GemanMcClure, Huber, LogCosh, OstrovskiiBach, PseudoHuber, SmoothedHuber
from core.losses.squares import SineLink, Squared
from core.losses.weights import Clip, Mallows, Schweppe, Weights
from core.privacy.facts import Adjacency, Facts, Frozen
from tests.support.problems import HUBER, facts

T = sqrt(2)
WEIGHTS = Mallows(bound=T)
ALL: list[Loss] = [
    *(example for example in map(example_of, LOSSES) if example.one_margin),
    HUBER,
    Poisson(cap=6.0),
]


def poisson(loss: Poisson, m: Tensor, y: Tensor) -> Tensor:
    """Piece by piece: from where the residual is -c to where it is c or the mean is at its cap, and straight on."""
    y = y.clamp(max=loss.known_cap)
    knee = torch.tensor(log(loss.known_cap), dtype=torch.float64)
    uncut = torch.where(m <= knee, torch.exp(torch.minimum(m, knee)), loss.known_cap * (1 + m - knee)) - y * m
    if loss.c is None:
        return uncut
    lowest = torch.log((y - loss.c).clamp(min=1e-300))
    highest = torch.where(y + loss.c < loss.known_cap, torch.log(y + loss.c), 1e300)
    low = torch.exp(lowest) - y * lowest + loss.c * (lowest - m)
    high = torch.exp(highest) - y * highest + loss.c * (m - highest)
    return torch.where(m < lowest, low, torch.where(m > highest, high, uncut))


def smoothed(loss: SmoothedHuber, r: Tensor) -> Tensor:
    """As the paper's matching conditions give it."""
    size, c, h = r.abs(), loss.c, loss.h
    s = (size - c) / h
    bent = c**2 / 2 + c * h * s + h**2 * (s**2 / 2 - s**4 / 4 + s**5 / 10)
    beyond = c**2 / 2 + c * h + 0.35 * h**2 + (c + h / 2) * (size - c - h)
    return torch.where(size <= c, r**2 / 2, torch.where(size < c + h, bent, beyond))


def ostrovskii_bach(loss: OstrovskiiBach, r: Tensor) -> Tensor:
    s = torch.sqrt(1 + 4 * (r / loss.c) ** 2)
    return loss.c**2 / 2 * (s - 1 + torch.log(2 / (1 + s)))


FORMULAS: dict[type, Callable[..., Tensor]] = {
    Logistic: lambda _, m, y: torch.log(1 + torch.exp(m)) - y * m,
    Poisson: poisson,
    Squared: lambda _, m, y: (y - m) ** 2 / 2,
    Huber: lambda one, r: torch.where(r.abs() <= one.c, r**2 / 2, one.c * r.abs() - one.c**2 / 2),
    SmoothedHuber: smoothed,
    LogCosh: lambda one, r: one.c**2 * torch.log(torch.cosh(r / one.c)),
    PseudoHuber: lambda one, r: one.c**2 * (torch.sqrt(1 + (r / one.c) ** 2) - 1),
    OstrovskiiBach: ostrovskii_bach,
    GemanMcClure: lambda one, r: one.c**2 / 2 * (1 - 1 / (1 + (r / one.c) ** 2)),
    Cauchy: lambda one, r: one.c**2 / 2 * torch.log(1 + (r / one.c) ** 2),
    Brier: lambda _, m, y: (1 / (1 + torch.exp(-m)) - y) ** 2 / 2,
    SineLink: lambda one, m, y: (m + one.amplitude * torch.sin(m) - y) ** 2 / 2,
    SmoothPhase: lambda one, m, y: (m**2 - y.clamp(max=one.cap)) ** 2 / 4,
    RobustPhase: lambda one, m, y: (m**2 - y.clamp(max=one.cap)).abs(),
}
"""Independent code with elementary functions only: of margin and target, or, for robust losses, of the residual."""


def plain_value(loss: Loss, margin: Tensor, y: Tensor) -> Tensor:
    formula = FORMULAS[type(loss)]
    if isinstance(loss, AbstractRobust):
        return loss.known_scale * formula(loss, (y - margin) / loss.known_scale)
    return formula(loss, margin, y)


def suitable(loss: Loss) -> list[Weights]:
    """The weights that a loss goes with."""
    if loss.score_bound is None:
        return [Clip(bound=1.1)]
    inside = [Schweppe(bound=1.3)] if isinstance(loss, AbstractRobust) else []
    return [WEIGHTS, Mallows(bound=1.3, power=1), Mallows(bound=1.3, power=3), *inside, Clip(bound=0.6)]


def told(value: object) -> str:
    if isinstance(value, Frozen):
        return "-".join(str(part) for part in value.model_dump(exclude={"joint"}).values() if part is not None)
    return str(value)


WEIGHED = [loss for loss in ALL if WEIGHTS in suitable(loss)]
PAIRS = [(loss, weights) for loss in ALL for weights in suitable(loss)]


def weighted(loss: Loss, weights: Weights, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Each record's weighted loss, shape (n,)."""
    norm = (x**2).sum(-1).sqrt()
    if isinstance(weights, Schweppe):
        inside = (weights.known_bound / norm).clamp(max=1.0)
        return plain_value(loss, (x @ theta) * inside, y * inside)
    weight = (weights.known_bound / norm).clamp(max=1.0) ** weights.power if isinstance(weights, Mallows) else 1.0
    return plain_value(loss, x @ theta, y) * weight


def gradients(loss: Loss, weights: Weights, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Each record's gradient by automatic differentiation, clipped where that is asked for, shape (n, p)."""
    of_records = partial(weighted, loss, weights, x=x, y=y)
    found: Tensor = jacobian(of_records, theta)  # type: ignore[no-untyped-call] # torch's own
    if isinstance(weights, Clip):
        found = found * (weights.known_bound / found.norm(dim=-1, keepdim=True)).clamp(max=1.0)
    return found


def public(units: int, dimension: int, loss: Loss, weights: Weights, **more: Adjacency) -> Facts:
    """The facts of these records; a squared loss has its columns' bound."""
    found = facts(units, dimension, loss, weights=weights, **more)
    return found.model_copy(update={"curvature_bound": 400.0}) if isinstance(loss, Squared) else found
