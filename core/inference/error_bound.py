"""A method's claims about the point that it returned: from released values and public figures alone.

Of a point that was released before and is only looked at, the claim rests on records that the point has not seen.
"""

from typing import Final, Literal, Self

from pydantic import Field

from core.privacy.facts import Frozen

Records = Literal["same_dataset", "same_people", "different_people"]
"""Relation of two jobs' records: a scope is the people behind its datasets."""
SEEN: Final = (
    "none of it: the model was made of records of this very scope, and errors on them are not independent of it"
)


class SecondOrder(Frozen):
    """Ending of a run that looks for a second-order stationary point, and its target."""

    outcome: Literal[
        "certified", "no_escape_observed", "data_exhausted", "step_cap", "gradient_not_short", "escaped"
    ] = Field(
        description="certified: by the theorem; no_escape_observed: the same event, where no theorem covers the "
        "figures. Of a given point also gradient_not_short: no round was begun; escaped: the last round moved away"
    )
    alpha: float = Field(description="the gradient is looked for at most so long, in encoded units")
    gamma_star: float = Field(description="no eigenvalue of the mean Hessian is looked for farther below 0")
    chance: float | None = Field(description="p_round: of leaving a saddle so curved in one round, linearised")
    missed: float | None = Field(description="omega0: of leaving no such saddle in all rounds of a phase")
    failure: float = Field(description="omega, of the whole run")
    phases: int = Field(description="number of rounds that were begun")
    rounds: int = Field(description="rounds in all")
    escapes: int = Field(description="phases that ended by moving away")
    restarts: int = Field(description="fresh gradients in all")
    differences: int = Field(description="noised differences in all")
    round_mode: str


class NoisedNorm(Frozen):
    """Norm of a released point's mean gradient, as one noised number; see `core.methods.second_order.norms`."""

    of: str = Field(
        description="variables of the gradient: coefficients, coefficients and scale, or trained parameters"
    )
    told: float = Field(
        description="norm of the mean gradient of the units read, noised, so that it may be negative; of several "
        "clients the norm of their noised mean gradient"
    )
    noise: float = Field(description="standard deviation of the noise on it; of several clients, on each entry")
    left: float = Field(description="the same less the part that noise adds for sure, 0 at least")
    tolerance: float = Field(description="the margin on top, for noise and sampling")
    trivial: float = Field(description="a bound of every gradient: the clip and the ridge's part")
    failure: float = Field(description="omega, of the claim")


class Selection(Frozen):
    """Which of several released points was selected, and by what test."""

    mode: str
    candidates: int = Field(description="T, how many points there were")
    chosen: int | None = Field(description="place among them, from 0, models in their order; null: none passed")
    alpha: float = Field(description="a gradient may be so long, in encoded units")
    gamma_star: float | None = Field(description="no eigenvalue may be farther below 0; null: none was asked for")
    gradient_tolerance: float | None = Field(description="allowed for beside alpha; null: the mode tests scores")
    curvature_tolerance: float | None = Field(description="allowed for beside gamma_star")
    curvature: float | None = Field(description="claimed: no eigenvalue is farther below 0; null: nothing is claimed")
    failure: float = Field(description="omega, of the whole selection")


class ErrorBound(Frozen):
    """A claim, with how sure it is and what it rests on; part of a model's release."""

    ended_by: str = Field(description="why the method ended: rounds, budget, small_gradient, step_cap, ...")
    quantity: str = Field(description="the bounded quantity: excess_risk or gradient_norm, in encoded units")
    value: float | None = Field(description="null: nothing is claimed")
    confidence: float | None = Field(description="probability of the claim over the noise; null: nothing is claimed")
    conditions: tuple[str, ...] = Field(default=(), description="assumptions of the claim that nobody has checked")
    variant: str = Field(description="which form of the method made it, as `printed`, `calibrated` or `scheduled`")
    second_order: SecondOrder | None = Field(default=None, description="of methods that look for such a point")
    selection: Selection | None = Field(default=None, description="of one among released points")
    norm: NoisedNorm | None = Field(default=None, description="of a bound of the gradient alone")
    models: tuple[str, ...] = Field(default=(), description="released before, that the claim is about")
    untrained: float | None = Field(
        default=None, description="bound of this quantity at the start, without any training; null: unknown"
    )

    @property
    def is_vacuous(self) -> bool:
        """Whether something is claimed, and the untrained start is known to satisfy as much."""
        return self.value is not None and self.untrained is not None and self.value >= self.untrained

    def about(self, models: tuple[str, ...], records: Records) -> Self:
        """Return the claim as one about released models; nothing is claimed by records that these have seen.

        Args:
            models: their identifiers.
            records: that were read, beside those that the models were made of.
        """
        if records == "different_people":
            return self.model_copy(update={"models": models})
        kept = None if self.selection is None else self.selection.model_copy(update={"curvature": None})
        nothing = {"value": None, "confidence": None, "conditions": (SEEN,), "selection": kept}
        return self.model_copy(update={"models": models, **nothing})
