"""Clips chosen from public gradients: an estimate of the error of clipped descent's average iterate, by clip.

`foresee` takes gradients of public records at a public minimiser. It is an estimate and no certificate; theorems lie 10
to 1000 times above it.

Source: a Newton step's bias and covariance as in Polyak and Juditsky (1992); the estimate is ours.
"""

from math import inf
from typing import Annotated, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.methods.clipped.one_pass.search import lowest
from core.privacy.facts import Frozen

_MOST_FIGURES: Final = 40_000
_FLAT: Final = 1e-12

Figure = Annotated[float, Field(ge=-1e30, le=1e30)]


class Proxy(Frozen):
    """Public records at a public minimiser of the loss: their gradients, and the curvature of the loss along each.

    The mean Hessian is the mean of curvature_i factor_i factor_i^T, as of every loss of a linear predictor: for the
    squared loss (residual^2)/2 factors are the features, curvatures 1, and gradients residual times features.
    """

    gradients: list[list[Figure]] = Field(min_length=2, max_length=5000, description="one row for each public record")
    factors: list[list[Figure]] = Field(min_length=2, max_length=5000, description="rows as of `gradients`")
    curvatures: list[Annotated[float, Field(ge=0, le=1e30)]] | None = Field(
        default=None, max_length=5000, description="null: 1 for all"
    )

    @model_validator(mode="after")
    def _of_one_shape(self) -> Self:
        width = len(self.gradients[0])
        if any(len(row) != width for row in (*self.gradients, *self.factors)) or width == 0:
            raise ValueError("all rows of gradients and factors have the same length, at least 1")
        if len(self.factors) != len(self.gradients):
            raise ValueError("as many factors as gradients are needed")
        if self.curvatures is not None and len(self.curvatures) != len(self.gradients):
            raise ValueError("as many curvatures as gradients are needed")
        if width * len(self.gradients) > _MOST_FIGURES:
            raise ValueError(f"at most {_MOST_FIGURES} figures in gradients; send fewer records")
        return self


class Foreseen(Frozen):
    """The clip with the smallest estimated excess risk of the average iterate, and the estimate."""

    clip: float
    value: float | None = Field(description="null: too few public records are left unclipped to tell")
    at_plan: float | None = Field(description="with the plan's clip")


def foresee(proxy: Proxy, *, multiplier: float, batch: int, steps: int, plan_clip: float) -> Foreseen:
    """Return the clip that public records favour.

    Args:
        proxy: public gradients.
        multiplier: z, noise on a sum of clipped gradients over the clip.
        batch: b.
        steps: K.
        plan_clip: to compare with.
    """
    estimate = Estimate(proxy, multiplier=multiplier, batch=batch, steps=steps)
    longest = float(estimate.lengths.max())
    if longest == 0:
        return Foreseen(clip=plan_clip, value=None, at_plan=None)
    clip = lowest(estimate.excess, max(float(np.quantile(estimate.lengths, 0.05)), 1e-6 * longest), 2 * longest)
    value, at_plan = estimate.excess(clip), estimate.excess(plan_clip)
    return Foreseen(clip=clip, value=value if value < inf else None, at_plan=at_plan if at_plan < inf else None)


class Estimate:
    """The excess risk of the average iterate as a function of the clip; arguments as of `foresee`."""

    def __init__(self, proxy: Proxy, *, multiplier: float, batch: int, steps: int) -> None:
        """Put the records into arrays."""
        self.gradients = np.array(proxy.gradients)
        self.lengths: NDArray[np.float64] = np.linalg.norm(self.gradients, axis=1)
        self._factors = np.array(proxy.factors)
        self._bends = np.ones(len(self.lengths)) if proxy.curvatures is None else np.array(proxy.curvatures)
        self._multiplier, self._batch, self._steps = multiplier, batch, steps

    def excess(self, clip: float) -> float:
        """Return U = v'Hv/2 + tr(Hc^-1 H Hc^-1 (noise^2 I + Cov/b))/(2 K), v = Hc^-1 bias.

        Hc is the mean Hessian of the records that are not clipped, for a clipped gradient's length does not change;
        where it is singular the iterates have nothing to hold them, and U is infinite.
        """
        factors, count = self._factors, len(self._factors)
        clipped = self.gradients * np.minimum(1.0, clip / np.maximum(self.lengths, _FLAT * clip))[:, None]
        left = (factors.T * (self._bends * (self.lengths < clip))) @ factors / count
        held = np.linalg.eigvalsh(left)
        if not np.isfinite(held).all() or held[0] <= _FLAT * held[-1]:
            return inf
        full = (factors.T * self._bends) @ factors / count
        noise = self._multiplier * clip / self._batch
        spread = np.atleast_2d(np.cov(clipped, rowvar=False, bias=True)) / self._batch + noise**2 * np.eye(len(full))
        shift = np.linalg.solve(left, clipped.mean(axis=0) - self.gradients.mean(axis=0))
        settled = np.linalg.solve(left, np.linalg.solve(left, spread).T)
        return float(shift @ full @ shift / 2 + np.trace(full @ settled) / (2 * self._steps))
