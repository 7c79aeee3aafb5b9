"""Plans with rounds of escape: their figures, targets and claims; of Gauss-PSGD, and of check_bound at a given point.

Beside them stand the assumptions of their cards, which the prior work shares in part.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, theorem 1 and lemmas 1 to 5; the claims about calibrated figures are ours. Letters as in `gauss`.
"""

from math import ceil, log, log1p
from typing import Annotated, Final

from pydantic import Field

from core.inference.error_bound import ErrorBound, SecondOrder
from core.losses.assumption import Assumption
from core.methods.second_order.escape import rounds_for
from core.methods.second_order.figures import (
    MOST_ROUNDS,
    MOST_STEPS,
    AtSmallest,
    DriftFigures,
    EscapeSettings,
    Positive,
    Preset,
    bends_down,
)
from core.methods.second_order.presets import gamma_star, kept_part, round_chance
from core.methods.second_order.theory import reserved
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


class EscapePlan(DriftFigures, EscapeSettings, AtSmallest):
    """Planned rounds of escape; if none of them moves away, they are worth a certificate."""

    preset: Preset
    hessian_smoothness: Positive
    error_radius: Positive
    escape_distance: Positive
    round_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)]

    def sharpest(self) -> float:
        """Return gamma_star."""
        return gamma_star(self.error_radius, self.hessian_smoothness)

    def descent(self, facts: Facts) -> tuple[int, int]:
        """Return about how many steps a descent takes, and how many of them ask for a fresh gradient at most.

        See `sizing`; a gradient G long becomes 3 chi, and at least half as long, twice: a saddle lies on the way.
        """
        eta, chi = self.step_size, self.error_radius
        shortened = -log1p(-min(1 / 2, eta * self.sharpest()))
        steps = 2 * max(1, ceil(log(max(2.0, self.clip_at(facts) / (3 * chi))) / shortened))
        gap = facts.start_gap if self.start_gap is None else self.start_gap
        if gap is None:
            return steps, steps
        return steps, int(min(steps, 1 + 2 * eta * gap / self.restart_drift))

    def reserve(self, facts: Facts, room: float | None) -> float:
        """Return the units that a planned run leaves: a multiple of the needed ones, or that and a descent."""
        if room is not None:
            return room * self.needed()[0]
        return self.needed()[0] + max(self.needed()[0], self.descent_units(facts))

    def descent_units(self, facts: Facts) -> int:
        """Return what a descent may read, at worst."""
        steps, fresh = self.descent(facts)
        return fresh * self.batch + (steps - fresh) * self.difference_batch

    def chance(self, facts: Facts) -> float:
        """Return p_round: of leaving an alpha-strict saddle in one round by the noise of one fresh gradient alone.

        [derived] Where the distance is planned, the Hessian may change by a quarter of gamma_star on the way.
        """
        curvature = kept_part(self.preset) * self.sharpest()
        return round_chance(self.errors(facts), self.step_size, self.escape_distance, self.round_steps, curvature)

    def phase_units(self) -> int:
        """Return what a phase without an escape reads at most: every certificate takes as many units."""
        return self.rounds * (self.batch + (self.round_steps - 1) * self.difference_batch)

    def needed(self) -> tuple[float, str]:
        """Return the units without which a job is refused, and what they are for, with the figures."""
        batch, steps, changes = self.batch, self.round_steps, self.difference_batch
        units = reserved(self.rounds, batch, steps, changes)
        return units, (
            f"a certificate must be affordable twice, 2 Q (b1 + Gamma b2) = 2 * {self.rounds} * ({batch} + {steps} * "
            f"{changes}) = {units:.0f} units"
        )

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows of these filled settings, beside themselves; alpha is worth nothing above G."""
        errors = self.errors(facts)
        chance = self.chance(facts)
        down = {"units_of_a_descent": self.descent_units(facts)} if self.descends else {}
        return {
            **super().figures(facts),
            **down,
            "error": errors.size(self.restart_drift),
            "error_limit": errors.radius(self.restart_drift, self.most_restarts(facts), self.failure),
            "alpha": 4 * self.error_radius,
            "alpha_trivial": self.clip_at(facts),
            "gamma_star": self.sharpest(),
            "gamma_star_trivial": bends_down(facts, self.smoothness),
            "chance_of_escape_per_round": chance,
            "rounds_for_missed": rounds_for(self.missed, chance) if chance > 0 else None,
            "units_of_a_certificate": self.phase_units(),
        }

    def bound(self, facts: Facts) -> Bound:
        """Return alpha, beside what every point satisfies untrained."""
        alpha, trivial = 4 * self.error_radius, self.clip_at(facts)
        proved = self.mode == "theory"
        return Bound(
            quantity=f"norm of the mean gradient where no round escapes, no eigenvalue of the mean Hessian being below "
            f"-{self.sharpest():.4g}, in encoded units",
            value=alpha,
            confidence=1 - self.failure if proved else None,
            trivial=trivial,
            vacuous=alpha >= trivial or self.sharpest() >= self.smoothness,
            source=f"{PAPER}, theorem 1"
            if proved
            else f"none: {self.mode} figures; the effect of a round is linearised",
        )

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
        limit = self.errors(facts).radius(self.restart_drift, self.most_restarts(facts), self.failure)
        return (
            self.epochs == 1 and self.spread is None and self.difference_spread is None and limit <= self.error_radius
        )

    def ended(self, facts: Facts, outcome: str, counts: dict[str, int]) -> SecondOrder:
        """Return a run's ending; other methods' "certified" is no_escape_observed outside the theory."""
        chance = self.chance(facts)
        named = "no_escape_observed" if outcome == "certified" and self.mode != "theory" else outcome
        return SecondOrder.model_validate(
            {
                "outcome": named,
                "alpha": 4 * self.error_radius,
                "gamma_star": self.sharpest(),
                "chance": chance,
                "missed": (1 - chance) ** self.rounds if self.round_mode == "fresh" else 1 - chance,
                "failure": self.failure,
                "round_mode": self.round_mode,
                **counts,
            }
        )
