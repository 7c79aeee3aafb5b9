"""What a method claims of the very point it returned: from released values and public figures, nothing else."""

from typing import ClassVar, Literal

from pydantic import Field

from core.privacy.facts import Frozen, Grown


class SecondOrder(Frozen):
    """How a run that looks for a second-order stationary point ended, and what it looked for."""

    outcome: Literal["certified", "no_escape_observed", "data_exhausted", "step_cap"] = Field(
        description="certified: by the theorem; no_escape_observed: the same event, where no theorem covers the figures"
    )
    alpha: float = Field(description="the gradient is looked for at most so long, in encoded units")
    gamma_star: float = Field(description="no eigenvalue of the mean Hessian is looked for farther below 0")
    chance: float | None = Field(description="p_round: of leaving a saddle so curved in one round, linearised")
    missed: float | None = Field(description="omega0: of leaving no such saddle in all rounds of a phase")
    failure: float = Field(description="omega, of the whole run")
    phases: int = Field(description="how often rounds were begun")
    rounds: int = Field(description="rounds in all")
    escapes: int = Field(description="phases that ended by moving away")
    restarts: int = Field(description="fresh gradients in all")
    differences: int = Field(description="noised differences in all")
    round_mode: str


class Certificate(Grown):
    """A claim, with how sure it is and what it rests on; part of a model's release."""

    NEWER: ClassVar = frozenset({"second_order"})

    ended_by: str = Field(description="why the method ended: rounds, budget, small_gradient, step_cap, ...")
    quantity: str = Field(description="what is bounded: excess_risk or gradient_norm, in encoded units")
    value: float | None = Field(description="null: nothing is claimed")
    confidence: float | None = Field(description="of the claim, over the method's own noise; null: nothing is claimed")
    conditions: tuple[str, ...] = Field(default=(), description="what the claim rests on and nobody has checked")
    variant: str = Field(description="which form of the method made it, as `printed`, `calibrated` or `scheduled`")
    second_order: SecondOrder | None = Field(default=None, description="of methods that look for such a point")
