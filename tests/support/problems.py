"""Small sets of records, facts and oracles for tests; every draw has a fixed seed."""

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from core.losses.categorical import Brier, Logistic
from core.losses.counts import Poisson
from core.losses.phase import AbstractPhase
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.losses.weights import Mallows, Weights, cubic_bound, curvature_bound, gradient_bound, gradient_diameter
from core.mechanisms.generator import SystemGenerator
from core.privacy.facts import Adjacency, Facts
from core.queries.sums.linear import LinearProblem

LOGISTIC = Logistic()
HUBER = Huber(scale=0.7)
LOSSES = (LOGISTIC, HUBER)
WEIGHT_BOUND = 2**0.5
WEIGHTS = Mallows(bound=WEIGHT_BOUND)


def rows(units: int, dimension: int, loss: Loss = LOGISTIC, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return features with an intercept, shape (n, p), targets and presence."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(units, dimension, generator=generator, dtype=torch.float64)
    features[:, 0] = 1.0
    truth = torch.linspace(-1, 1, dimension, dtype=torch.float64)
    margin = features @ truth
    if isinstance(loss, Logistic | Brier):
        target = (torch.rand(units, generator=generator, dtype=torch.float64) < torch.sigmoid(margin)).double()
    elif isinstance(loss, Poisson):
        target = torch.poisson(torch.exp(margin).clamp(max=9.0), generator=generator)
    elif isinstance(loss, AbstractPhase):
        target = (margin**2 + 0.2 * torch.randn(units, generator=generator, dtype=torch.float64)).clamp(min=0.0)
    else:
        target = margin + 0.7 * torch.randn(units, generator=generator, dtype=torch.float64)
    return features, target, torch.ones(units, dtype=torch.bool)


def problem(
    units: int, dimension: int, loss: Loss = LOGISTIC, seed: int = 0, weights: Weights = WEIGHTS
) -> LinearProblem:
    return LinearProblem(*rows(units, dimension, loss, seed), loss, weights)


def facts(
    units: int,
    dimension: int,
    loss: Loss = LOGISTIC,
    adjacency: Adjacency = Adjacency.ZERO_OUT,
    weights: Weights = WEIGHTS,
) -> Facts:
    """Return the facts of these records; `dimension` counts all parameters."""
    return Facts(
        units=units,
        dimension=dimension,
        adjacency=adjacency,
        gradient_bound=gradient_bound(loss, weights),
        gradient_diameter=gradient_diameter(loss, weights),
        curvature_bound=curvature_bound(loss, weights),
        cubic_bound=cubic_bound(weights),
    )


def repeatable_generator(key: bytes = bytes(32)) -> SystemGenerator:
    """Return a system generator whose key was forced: two of them draw the same. No public way leads here."""
    generator = SystemGenerator()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    generator._SystemGenerator__stream = stream  # type: ignore[attr-defined] # by its mangled name
    return generator
