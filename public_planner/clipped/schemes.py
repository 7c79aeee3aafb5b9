"""Which records a step reads, and how much noise that takes: three schemes, and the accountant of each.

| scheme | reads | relations | accountant |
|---|---|---|---|
| `one_pass` | each record once, in disjoint batches of fixed size | replace_one, zero_out | one Gaussian answer |
| `poisson` | each record with probability q in each step | zero_out, add_remove | Renyi, integer orders 2 to 256 |
| `fixed_batch` | a uniform batch of fixed size, anew in each step | replace_one | Renyi, theorem 27 of Wang et al. |

One convention for all: a multiplier z is the noise on the SUM of clipped gradients over the clip, and the mean of a
batch has noise z clip/b. Under replace_one a sum changes by twice the clip, so the multiplier of the true sensitivity,
which accountants are told, is z/2. Trained are one_pass (`certified_clipped_sgd`) and poisson (`clipped_sgd`).
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil, floor, log2
from typing import Final, Literal

from core.privacy.calibration import smallest_epsilon
from core.privacy.conversions import gdp_epsilon, gdp_mu
from core.privacy.events import Repeated, Sampled
from public_planner.without_replacement import fixed_batch_epsilon

Scheme = Literal["one_pass", "poisson", "fixed_batch"]
Relation = Literal["replace_one", "zero_out", "add_remove"]

RELATIONS: Final[dict[Scheme, tuple[Relation, ...]]] = {
    "one_pass": ("zero_out", "replace_one"),
    "poisson": ("zero_out", "add_remove"),
    "fixed_batch": ("replace_one",),
}
"""Which relations a scheme's price is known under."""

ACCOUNTANTS: Final[dict[Scheme, str]] = {
    "one_pass": "one Gaussian answer for all steps, exact: no step is composed with another",
    "poisson": "Renyi, Poisson-sampled Gaussian answers at integer orders 2 to 256, improved conversion",
    "fixed_batch": "Renyi, Gaussian answers about batches without replacement (Wang, Balle, Kasiviswanathan 2019)",
}

_FINENESS: Final = 512
"""Multipliers of sampled answers are powers of 2^(1/512), 0.14 % apart: prices are then worked out once for many."""
_LEAST, _MOST = -4 * _FINENESS, 20 * _FINENESS
_SAFE: Final = 1 + 1e-9


def sensitivity(relation: Relation) -> int:
    """Return by how many clips one record can change a sum."""
    return 2 if relation == "replace_one" else 1


def multiplier(
    scheme: Scheme, relation: Relation, *, fraction: float, times: int, epsilon: float, delta: float
) -> float | None:
    """Return the smallest z that is (epsilon, delta)-DP, rounded up; None: none that is tried.

    Args:
        scheme: what a step reads.
        relation: one of the scheme's.
        fraction: of the records that a step reads, in (0, 1].
        times: steps.
        epsilon: positive.
        delta: in (0, 1).
    """
    changed = sensitivity(relation)
    if scheme == "one_pass":
        return changed / gdp_mu(epsilon, delta) * _SAFE
    spent = _accountant(scheme)
    low, high = _LEAST, _MOST
    if spent(fraction, _grid(high), times, delta) > epsilon:
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if spent(fraction, _grid(middle), times, delta) <= epsilon else (middle + 1, high)
    return changed * _grid(high)


def epsilon_spent(
    scheme: Scheme, relation: Relation, *, multiplier: float, fraction: float, times: int, delta: float
) -> float:
    """Return an epsilon that holds at `delta` with a multiplier; other arguments as of `multiplier`."""
    sigma = multiplier / sensitivity(relation)
    if scheme == "one_pass":
        return gdp_epsilon(1 / sigma, delta)
    return _accountant(scheme)(fraction, sigma, times, delta)


def grid_below(multiplier: float, relation: Relation) -> float:
    """Return the largest multiplier at most as large that `multiplier` can return for sampled answers."""
    changed = sensitivity(relation)
    return changed * _grid(floor(log2(multiplier / changed) * _FINENESS))


def _grid(index: int) -> float:
    return float(2.0 ** (index / _FINENESS))


def _accountant(scheme: Scheme) -> Callable[[float, float, int, float], float]:
    return _poisson_epsilon if scheme == "poisson" else fixed_batch_epsilon


@lru_cache(maxsize=2**14)
def _poisson_epsilon(fraction: float, sigma: float, times: int, delta: float) -> float:
    """Return the epsilon of so many answers about Poisson samples, at a rate that is rounded up."""
    numerator = min(ceil(fraction * 2**64), 2**64)
    return smallest_epsilon(Repeated(event=Sampled(numerator=numerator, sigma=sigma), times=times), delta)
