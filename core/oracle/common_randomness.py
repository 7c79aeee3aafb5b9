"""Data-free draws that all clients of a federated job make alike."""

import torch
from torch import Tensor

from core.mechanisms import sampling


class Count:
    """Number of means that a site received, in all attempts."""

    def __init__(self, count: int) -> None:
        self.count = count


class CommonRandomness:
    """Data-free draws that all clients make alike, and anybody could who knows the federation's name.

    They depend on the number of means received before, so that a continued attempt draws the same ones.
    """

    def __init__(self, name: str, answered: Count) -> None:
        self._name = name
        self._answered = answered
        self._drawn = (0, 0)

    def normal(self, size: int) -> Tensor:
        """Return a float64 vector of independent standard normal draws, shape (size,)."""
        return torch.from_numpy(sampling.normal(sampling.public_generator(self._next()), size))

    def integer(self, below: int) -> int:
        """Return a uniform integer in [0, below)."""
        return sampling.integer(sampling.public_generator(self._next()), below)

    def _next(self) -> str:
        """Return the name of the next draw."""
        answered, drawn = self._drawn
        self._drawn = (self._answered.count, drawn + 1 if answered == self._answered.count else 1)
        return f"{self._name}/randomness/{self._drawn[0]}/{self._drawn[1]}"
