"""Error of the gradient estimate: Ada-DP-SPIDER between two restarts, its noise included.

Letters: b1 and b2 are the batches of a fresh gradient and of a difference. At the accumulated squared movement kappa
the estimate starts again. The noise on each coordinate of a fresh gradient is r1, and r2 that of a difference over the
distance it spans. The squared error is S + d (r1^2 + kappa r2^2), S = G^2/b1 + M^2 kappa/b2 of the sampling. With m
clients, each with noise of its own, both variances of the mean are smaller by m.

Source: [derived] Ours, in place of lemmas 5, 7 and 9 of Tao, Zhang, Yu, Cheng, Dressler and Wang. A martingale
inequality of Pinelis in Hilbert space bounds the sampling, the norm of a Gaussian vector the noise.
"""

from math import log, sqrt
from typing import Annotated

from pydantic import Field

from core.privacy.facts import Frozen

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Errors(Frozen):
    """Inputs of an estimate's error; every figure is public."""

    dimension: Annotated[int, Field(ge=1)]
    batch: Positive = Field(description="b1, of a fresh gradient")
    difference_batch: Positive = Field(description="b2, of a difference")
    spread: Annotated[float, Field(ge=0)] = Field(description="of a unit's gradient around the mean one, or the clip G")
    difference_spread: Annotated[float, Field(ge=0)] = Field(
        description="of a unit's difference, over the distance, around the mean one, or the smoothness M"
    )
    noise: Annotated[float, Field(ge=0)] = Field(description="r1")
    difference_noise: Annotated[float, Field(ge=0)] = Field(description="r2")
    clients: Annotated[int, Field(ge=1)] = Field(default=1, description="m")

    def sampling(self, drift: float) -> float:
        """Return S, the variance of the sampling error at an accumulated squared movement, over all coordinates."""
        own = self.spread**2 / self.batch + self.difference_spread**2 * drift / self.difference_batch
        return own / self.clients

    def noise_at(self, drift: float) -> float:
        """Return the standard deviation of the noise on each coordinate at an accumulated squared movement."""
        return sqrt((self.noise**2 + drift * self.difference_noise**2) / self.clients)

    def size(self, drift: float) -> float:
        """Return psi, the root mean square of the error at an accumulated squared movement."""
        return sqrt(self.sampling(drift) + self.dimension * self.noise_at(drift) ** 2)

    def radius(self, drift: float, restarts: float, failure: float) -> float:
        """Return what no error of a whole run passes, with probability 1 - failure/2.

        Args:
            drift: kappa.
            restarts: N, the most fresh gradients there may be.
            failure: omega.
        """
        depth = log(8 * restarts / failure)
        sampled = sqrt(8 * self.sampling(drift) * depth)
        return sampled + self.noise_at(drift) * (sqrt(self.dimension) + sqrt(2 * depth))

    def balanced_drift(self) -> float:
        """Return the kappa at which the differences' noise equals that of a fresh gradient."""
        return (self.noise / self.difference_noise) ** 2

    def even_drift(self) -> float:
        """Return the kappa at which the differences' whole error, sampling included, equals that of a fresh gradient.

        No estimate's squared error is then above twice a fresh gradient's.
        """
        fresh = self.spread**2 / self.batch + self.dimension * self.noise**2
        moved = self.difference_spread**2 / self.difference_batch + self.dimension * self.difference_noise**2
        return fresh / moved
