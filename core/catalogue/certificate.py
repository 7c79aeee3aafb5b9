"""What a method claims of the very point it returned: from released values and public figures, nothing else."""

from pydantic import Field

from core.privacy.facts import Frozen


class Certificate(Frozen):
    """A claim, with how sure it is and what it rests on; part of a model's release."""

    ended_by: str = Field(description="why the method ended: rounds, budget, small_gradient, step_cap, ...")
    quantity: str = Field(description="what is bounded: excess_risk or gradient_norm, in encoded units")
    value: float | None = Field(description="null: nothing is claimed")
    confidence: float | None = Field(description="of the claim, over the method's own noise; null: nothing is claimed")
    conditions: tuple[str, ...] = Field(default=(), description="what the claim rests on and nobody has checked")
    variant: str = Field(description="which form of the method made it, as `printed`, `calibrated` or `scheduled`")
