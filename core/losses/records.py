"""Per-record code of a loss, found in the torch module beside its family, and what weighs it.

A record's loss is w(x) * value(margin, y) with margin = x.theta, so that its gradient is score * w * x and its Hessian
curvature * w * x x^T. Everything broadcasts, so a margin of shape (n,) or (R, n) needs no other code.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5, and appendix H for linear and cubic Mallows weights.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, assert_never

import torch
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LEAST_NUMBER
from core.losses.bases import AbstractLoss
from core.losses.per_record import PerRecord
from core.losses.registry import LOSSES, example_of
from core.losses.weights import Clip, Mallows, Schweppe, Weights

Records = type[PerRecord[Any]]


def records_of(loss: type[AbstractLoss]) -> Records:
    """Return the per-record code of a loss: `<Loss>Records` of the torch module beside its family.

    Raises:
        TypeError: there is no such class, or it lacks a part.
    """
    module, name = f"{loss.__module__}_torch", f"{loss.__name__}Records"
    try:
        found: Records = getattr(import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise TypeError(f"{loss.__name__}: {module} has no class {name}") from error
    lacks = getattr(found, "__abstractmethods__", {"PerRecord among its bases"})
    if lacks:
        raise TypeError(f"{loss.__name__}: {module}.{name} lacks {', '.join(sorted(lacks))}")
    return found


RECORDS: Final[Mapping[type[AbstractLoss], Records]] = MappingProxyType(
    {loss: records_of(loss) for loss in LOSSES if example_of(loss).one_margin}
)


def per_record(loss: AbstractLoss) -> PerRecord[Any]:
    """Return the per-record code of a loss of one margin at a known scale; others have problems of their own.

    Raises:
        PrivacyInvariantError: the loss is of another kind, or a figure is still open; planning fills it before a job is
            stored.
    """
    ensure(loss.one_margin, "losses of several margins or of an unknown scale have problems of their own")
    return RECORDS[type(loss)](loss)


def ordinary(numbers: Tensor) -> Tensor:
    """Return numbers with zero in place of those whose products may be denormal; see `LEAST_NUMBER`."""
    return torch.where(numbers.abs() >= LEAST_NUMBER, numbers, 0.0)


def record_weights(norms: Tensor, weights: Weights) -> Tensor:
    """Return what each record's loss is multiplied by, same shape as the norms; Schweppe's are inside the loss.

    Mallows weights are powers of a quotient, which overflow for no norm. Up to a few roundings, far inside the
    lattice's margin, w |x| <= t holds, and w |x|^2 <= t^2 from the second power on. A cube may be too small for an
    ordinary float; it then errs by less than 2^-1074, negligible beside t^2/|x|^2. A norm of zero has weight 1 and
    nothing to weigh.
    """
    match weights:
        case Mallows(power=power):
            # A norm of zero gives infinity, which the clamp makes a weight of 1.
            return (weights.known_bound / norms).clamp_(max=1.0).pow_(power)
        case Clip() | Schweppe():
            return torch.ones_like(norms)
    assert_never(weights)


def counts_once(sampling: Tensor) -> Tensor:
    """Say which records count more than zero times and at most once; others are excluded rows."""
    return (sampling > 0) & (sampling <= 1)
