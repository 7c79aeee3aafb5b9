"""The base class of per-record code: a loss of one record, before its weight."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from torch import Tensor

from core.losses.bases import AbstractLoss

L = TypeVar("L", bound=AbstractLoss)


class PerRecord(ABC, Generic[L]):
    """A loss of one record, before its weight; tensors are float64 and broadcast against one another.

    Args:
        loss: with nothing open, its figures on encoded targets.
    """

    def __init__(self, loss: L) -> None:
        self.loss = loss

    @abstractmethod
    def valid(self, target: Tensor) -> Tensor:
        """Say which targets this loss is defined for; other records count as null."""

    @abstractmethod
    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""

    @abstractmethod
    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the derivative in the margin; its size never passes the public bound, in floats too."""

    @abstractmethod
    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return the second derivative in the margin, never negative where the loss is convex; it may ignore kinks."""
