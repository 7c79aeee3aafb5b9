"""Losses of a network's outputs, one number a record."""

from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional

from core.models.network.model import Loss


def usable(loss: Loss, target: Tensor, outputs: int) -> Tensor:
    """Say which targets the loss is defined for, bool, shape (n,); other records count as null."""
    match loss:
        case "cross_entropy":
            return (target >= 0) & (target < outputs) & (target == target.round())
        case "squared":
            return target.isfinite()
    assert_never(loss)


def losses_of(loss: Loss, outputs: Tensor, target: Tensor) -> Tensor:
    """Return each record's loss, shape (m,).

    Args:
        loss: cross-entropy of softmax probabilities, or half the squared error.
        outputs: the network's, shape (m, classes), or (m, 1).
        target: float64, shape (m,), usable: a class's number, or the number to predict.
    """
    match loss:
        case "cross_entropy":
            return functional.cross_entropy(outputs, target.long(), reduction="none")
        case "squared":
            return 0.5 * (outputs.squeeze(-1) - target.to(outputs.dtype)).square()
    assert_never(loss)


def cleaned(features: Tensor, tokens: int | None) -> Tensor:
    """Say which records the network is defined for: finite numbers, or tokens below their number; bool, shape (n,)."""
    if tokens is None:
        return torch.isfinite(features).flatten(1).all(-1)
    return ((features >= 0) & (features < tokens)).flatten(1).all(-1)
