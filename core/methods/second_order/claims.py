"""Targets and claims of methods with rounds of escape: Gauss-PSGD, and certify at a given point.

And what they assume, as their cards tell it, in part with the prior work that they are compared with.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, theorem 1 and lemmas 1 to 5; the claims about calibrated figures are ours. Letters as in `gauss`.
"""

from collections.abc import Sequence
from typing import Final, Self

from core.inference.error_bound import ErrorBound, SecondOrder
from core.losses.assumption import Assumption
from core.methods.base import Plan
from core.methods.second_order import planned
from core.methods.second_order.figures import EscapeFigures, known
from core.privacy.facts import Facts
from farthing.schemas.estimates import Bound

PAPER: Final = (
    "Tao, Zhang, Yu, Cheng, Dressler, Wang: Second-order convergence in private stochastic non-convex optimization"
)
CONDITIONS: Final = (
    "one unit's loss has the smoothness and Hessian smoothness declared, and gradients no longer than the clip",
    "units are independent draws of one population, whose mean loss it is about",
)
CLIPPED: Final = Assumption(
    text="gradients and their changes are clipped unit by unit, before they are summed", checked="static"
)
ASKED_ONCE: Final = Assumption(text="each unit is read by one question of an epoch at most", checked="runtime")
INDEPENDENT: Final = Assumption(text="units are independent draws of one population, read once", checked="declared")
SMOOTH: Final = Assumption(
    text="one unit's loss is G-Lipschitz, M-smooth and has a rho-Lipschitz Hessian", checked="declared"
)
AFFORDABLE: Final = Assumption(
    text="sqrt(rho alpha) is at most M, alpha at most G, and a certificate can be paid", checked="static"
)
LIMITS: Final = ("the effect of noise in a round is linearised at the saddle: no theorem covers these figures",)


class AbstractEscape(EscapeFigures):
    """Settings whose rounds of escape, if none of them moves away, are worth a certificate."""

    def plan(self, facts: Facts, mu: float) -> Self:
        """Fill what is open; see `core.methods.second_order.planned`.

        Raises:
            Invalid: a constant is missing, or the figures allow no certificate; with the figures and what to change.
        """
        return planned.fill_figures(self, facts, mu)

    def bound(self, facts: Facts) -> Bound:
        """Return alpha, beside what every point satisfies untrained."""
        alpha, trivial = 4 * known(self.error_radius), self.clip_at(facts)
        proved = self.mode == "theory"
        return Bound(
            quantity=f"norm of the mean gradient where no round escapes, no eigenvalue of the mean Hessian being below "
            f"-{self.sharpest():.4g}, in encoded units",
            value=alpha,
            confidence=1 - self.failure if proved else None,
            trivial=trivial,
            vacuous=alpha >= trivial or self.sharpest() >= known(self.smoothness),
            source=f"{PAPER}, theorem 1"
            if proved
            else f"none: {self.mode} figures; the effect of a round is linearised",
        )

    def federated_bound(self, clients: Sequence[tuple[Plan, Facts]]) -> Bound:
        """Return the same of the mean of all clients: alpha is one figure that all have; see `sites`."""
        return self.bound(min((facts for _, facts in clients), key=lambda facts: facts.units))

    def claim(self, facts: Facts, ended: SecondOrder, *, strayed: bool) -> ErrorBound:
        """Return what is claimed of the point that is returned.

        Args:
            facts: public.
            ended: the way, in the method's terms.
            strayed: whether some iterate had to be brought back into the radius.
        """
        stayed = ended.outcome in {"certified", "no_escape_observed"} and not strayed
        value = confidence = None
        if stayed and self.mode == "theory":
            value, confidence = ended.alpha, 1 - self.failure
        elif stayed and self._is_explicit(facts):
            # About the errors alone, whose radius fails with probability omega/2.
            value, confidence = ended.alpha, 1 - self.failure / 2
        variant = f"{self.form} theory" if self.mode == "theory" else self.mode
        return ErrorBound(
            ended_by=ended.outcome,
            quantity="second_order_stationarity" if self.mode == "theory" else "gradient_norm",
            value=value,
            confidence=confidence,
            conditions=(*CONDITIONS, *LIMITS[: 0 if self.mode == "theory" else None]) if stayed else (),
            variant=f"{variant}, {self.preset}" if self.mode == "calibrated" else variant,
            second_order=ended,
        )

    def _is_explicit(self, facts: Facts) -> bool:
        """Say whether no error of a run passes chi, with probability 1 - omega/2; the rounds read a single pass."""
        limit = self.errors(facts).radius(known(self.restart_drift), self._most_restarts(facts), self.failure)
        return (
            self.epochs == 1
            and self.spread is None
            and self.difference_spread is None
            and limit <= known(self.error_radius)
        )

    def ended(self, facts: Facts, outcome: str, counts: dict[str, int]) -> SecondOrder:
        """Return a run's ending; other methods' "certified" is no_escape_observed outside the theory."""
        chance = self.chance(facts)
        named = "no_escape_observed" if outcome == "certified" and self.mode != "theory" else outcome
        return SecondOrder.model_validate(
            {
                "outcome": named,
                "alpha": 4 * known(self.error_radius),
                "gamma_star": self.sharpest(),
                "chance": chance,
                "missed": (1 - chance) ** known(self.rounds) if self.round_mode == "fresh" else 1 - chance,
                "failure": self.failure,
                "round_mode": self.round_mode,
                **counts,
            }
        )
