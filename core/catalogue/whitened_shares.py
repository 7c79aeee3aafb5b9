"""How whitened Newton divides mu^2 among its answers: fixed shares, whatever they say."""

from typing import Final, NamedTuple


class Shares(NamedTuple):
    """Of mu^2; they sum to 1."""

    look: float = 0.06
    target: float = 0.01
    moments: float = 0.10
    step_gradients: float = 0.07
    step_hessians: float = 0.06
    first_gradient: float = 0.17
    last_gradient: float = 0.17
    first_hessian: float = 0.18
    last_hessian: float = 0.12
    scores: float = 0.05
    weights: float = 0.01
    residuals: float = 0.0
    """A Poisson model's alone: how large its residuals are."""


SHARES: Final = Shares()
POISSON_SHARES: Final = Shares(step_gradients=0.06, residuals=0.01)
