"""Totals of draws in closed form, for any number of them: rho, and mu where all of them are Gaussian answers.

Sums are integers, so that they do not depend on the order in which draws are added and removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Final

from core.privacy.conversions import mu_of_rho
from core.privacy.events import (
    BoundedRange,
    Composed,
    Disjoint,
    Event,
    Gaussian,
    Pure,
    Repeated,
    Sampled,
    Selected,
    Zcdp,
)
from core.privacy.renyi import Leaf

_PER_NAT: Final = 2**128


def total_rho(event: Event) -> float | None:
    """Return the zCDP price of an event in nats; None when it has none (a sampled answer, the best of several runs)."""
    match event:
        case Selected():
            return None
        case Repeated(event=repeated, times=times):
            one = total_rho(repeated)
            return None if one is None else times * one
        case Composed(events=events):
            parts = [total_rho(part) for part in events]
            known = [part for part in parts if part is not None]
            return sum(known) if len(known) == len(parts) else None
        case Disjoint(events=events):
            parts = [total_rho(part) for part in events]
            known = [part for part in parts if part is not None]
            return max(known, default=0.0) if len(known) == len(parts) else None
        case _:
            return _leaf_rho(event)


def _leaf_rho(event: Leaf) -> float | None:
    """Return the zCDP price of one draw."""
    match event:
        case Gaussian(sigma=sigma):
            # A square may underflow, and division by 0 raises; two divisions end in infinity, which callers expect.
            return 0.5 / sigma / sigma
        case Zcdp(rho=rho):
            return rho
        case Pure(epsilon=epsilon):
            return epsilon * epsilon / 2  # infinite where `**` would raise
        case BoundedRange(epsilon=epsilon):
            return epsilon * epsilon / 8
        case Sampled():
            return None


def total_mu(event: Event) -> float | None:
    """Return the mu of an event made of Gaussian answers only; None otherwise, never a converted rho."""
    if not _all_gaussian(event):
        return None
    rho = total_rho(event)
    assert rho is not None, "Gaussian answers are zCDP"
    return mu_of_rho(rho)


def _all_gaussian(event: Event) -> bool:
    match event:
        case Repeated(event=repeated):
            return _all_gaussian(repeated)
        case Composed(events=events) | Disjoint(events=events):
            return all(_all_gaussian(part) for part in events)
        case _:
            return isinstance(event, Gaussian)


@dataclass(frozen=True)
class Totals:
    """Totals of a list of draws."""

    gaussian: int = 0
    """rho of the Gaussian answers, in units of 2**-128 nats, rounded up for each."""
    other: int = 0
    """rho of the others that have one, likewise."""
    unpriced: int = 0
    """Number of draws without a rho."""

    def plus(self, counted: Mapping[Event, int]) -> "Totals":
        """Return the totals with some more draws, or with fewer where they are counted below 0."""
        each = [(times, _total_of(event)) for event, times in counted.items()]
        return Totals(
            self.gaussian + sum(times * one.gaussian for times, one in each),
            self.other + sum(times * one.other for times, one in each),
            self.unpriced + sum(times * one.unpriced for times, one in each),
        )

    @property
    def rho(self) -> float | None:
        """Total rho in nats; None where some draw has none."""
        return None if self.unpriced else (self.gaussian + self.other) / _PER_NAT

    @property
    def mu(self) -> float | None:
        """Total mu of Gaussian answers; None where other draws are among them."""
        return None if self.other or self.unpriced else mu_of_rho(self.gaussian / _PER_NAT)


@lru_cache(maxsize=4096)  # a job's chunks are of few events
def _total_of(event: Event) -> Totals:
    """Return the totals of one draw."""
    rho = total_rho(event)
    # Infinity is no ratio of integers.
    if rho is None or rho == inf:
        return Totals(unpriced=1)
    numerator, denominator = rho.as_integer_ratio()
    units = -(-numerator * _PER_NAT // denominator)
    return Totals(gaussian=units) if _all_gaussian(event) else Totals(other=units)
