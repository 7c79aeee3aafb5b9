"""Figures that a theorem gives of the excess risk beside its bound: a part of the contract of a method."""

from pydantic import Field

from core.privacy.facts import Frozen


class LowerBound(Frozen):
    """Some problem with these constants forces so much expected excess risk on every private method."""

    value: float = Field(ge=0)
    exact: bool = Field(description="false: an order of magnitude, its constant and logarithms unknown")
    source: str


class Regimes(Frozen):
    """Bounds of adaptive gradient descent by what a run is ended by; the largest of them holds for all.

    The first two fall with n as its kappa/2-th power and its 2 kappa/(4 - kappa)-th: with few parameters the first is
    the larger one, however many records there are.
    """

    noise_on_norms: float = Field(description="decides with few parameters")
    noise_on_gradients: float = Field(description="decides with many")
    small_gradient: float
    steps_run_out: float


class ExcessFigures(Frozen):
    """Figures of a plan whose bound is one of the excess risk."""

    lower: LowerBound | None = Field(description="null: none is known of such problems")
    rounds: int | None = Field(description="null: the method has none")
    noise: float | None = Field(description="on each coordinate of the first gradient; null: decided on the way")
    regimes: Regimes | None = Field(default=None, description="of adaptive_gd with a condition")
