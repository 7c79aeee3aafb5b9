"""The algorithms, as their papers tell them: `fit(settings, oracle)`, asking the oracle and nobody else."""

from typing import assert_never

from core.catalogue.methods import AnySettings
from core.catalogue.noisy_gd import NoisyGradientDescent
from core.catalogue.noisy_newton import NoisyNewton
from core.inference.estimate import Estimate
from core.optimizers import noisy_gd, noisy_newton
from core.oracle import Oracle, Release


def fit(settings: AnySettings, oracle: Oracle) -> Release[Estimate]:
    """Run the method that these filled settings name.

    Raises:
        Diverged: the last step left the public radius; decided from noised values only.
    """
    match settings:
        case NoisyGradientDescent():
            return noisy_gd.fit(settings, oracle)
        case NoisyNewton():
            return noisy_newton.fit(settings, oracle)
        case _:
            assert_never(settings)
