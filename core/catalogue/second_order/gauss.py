"""Gauss-PSGD: noisy gradient descent that looks for a second-order stationary point, and tells one when it finds it.

Where the noised gradient is at most 3 chi long, up to Q rounds of at most Gamma steps begin at that very point; a round
that moves R away has escaped a saddle, and descent goes on from there. Where none does, the point is returned: its
gradient is at most alpha = 4 chi long and no eigenvalue of the mean Hessian is below -sqrt(rho alpha), as surely as the
figures allow. Gradients come from an estimator that asks for a fresh one (b1 records) or for a change (b2 records), and
no record is read twice in a pass, so that a whole pass costs what a single answer does, however many steps there are
and whatever decides their number.

Letters: chi is `error_radius`, eta `step_size`, Q `rounds`, Gamma `round_steps`, R `escape_distance`, kappa
`restart_drift`, b1 `batch`, b2 `difference_batch`, T `steps`, G `clip`, M `smoothness`, rho `hessian_smoothness`, U
`start_gap`, omega `failure`, omega0 `missed`, m `clients`.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithms 1 and 2; `period` is DIFF2 of Murata and Suzuki (2023). The privacy argument, the calibrated
settings and the corrections are ours. Not the best rate known: see Liu and Talwar (2024).
"""

from collections.abc import Sequence
from typing import Final, Self

from core.catalogue.certificate import Certificate, SecondOrder
from core.catalogue.method import AbstractSettings, Assumption, Bound, Card
from core.catalogue.second_order import planned
from core.catalogue.second_order.figures import GaussPsgdFigures, known
from core.privacy.facts import Adjacency, Facts

PAPER: Final = (
    "Tao, Zhang, Yu, Cheng, Dressler, Wang: Second-order convergence in private stochastic non-convex optimization"
)
CONDITIONS: Final = (
    "one unit's loss has the smoothness and Hessian smoothness declared, and gradients no longer than the clip",
    "units are independent draws of one population, whose mean loss it is about",
)
LIMITS: Final = ("what noise leaves in a round is linearised at the saddle: no theorem covers these figures",)


class GaussPsgd(GaussPsgdFigures):
    """theta <- theta - step_size * (estimate of the mean gradient), with rounds of escape where that is short.

    Returns the point where the rounds began, never a later one. A batch that is lost with a worker is skipped.
    """

    def plan(self, facts: Facts, mu: float) -> Self:
        """Fill what is open; see `core.catalogue.second_order.planned`.

        Raises:
            Invalid: a constant is missing, or the figures allow no certificate; with the figures and what to change.
        """
        return planned.fill_figures(self, facts, mu)

    def bound(self, facts: Facts) -> Bound:
        """Return alpha, beside what every point satisfies untrained."""
        if not self.escapes:
            return Bound(
                quantity="norm of the mean gradient, in encoded units",
                value=None,
                confidence=None,
                trivial=self.clip_at(facts),
                vacuous=True,
                source="none: DIFF2 has no rounds of escape, and its theorem is about fixed batches of empirical risk",
            )
        alpha, trivial = 4 * known(self.error_radius), self.clip_at(facts)
        proved = self.mode == "theory"
        return Bound(
            quantity=f"norm of the mean gradient where no round escapes, no eigenvalue of the mean Hessian being below "
            f"-{self.sharpest():.4g}, in encoded units",
            value=alpha,
            confidence=1 - self.failure if proved else None,
            trivial=trivial,
            vacuous=alpha >= trivial or self.sharpest() >= known(self.smoothness),
            source=f"{PAPER}, theorem 1" if proved else f"none: {self.mode} figures; what a round leaves is linearised",
        )

    def federated_bound(self, clients: Sequence[tuple[AbstractSettings, Facts]]) -> Bound:
        """Return the same of the mean of all clients: alpha is one figure that all have; see `clients`."""
        return self.bound(min((facts for _, facts in clients), key=lambda facts: facts.units))

    def claim(self, facts: Facts, ended: SecondOrder, *, strayed: bool) -> Certificate:
        """Return what is claimed of the point that is returned.

        Args:
            facts: public.
            ended: how, as the method tells it.
            strayed: whether some iterate had to be brought back into the radius.
        """
        stayed = ended.outcome in {"certified", "no_escape_observed"} and not strayed
        value = confidence = None
        if stayed and self.mode == "theory":
            value, confidence = ended.alpha, 1 - self.failure
        elif stayed and self._is_explicit(facts):
            value, confidence = ended.alpha, 1 - self.failure / 2
        variant = f"{self.form} theory" if self.mode == "theory" else self.mode
        return Certificate(
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
        """Return how a run ended; what is called certified by others is no_escape_observed outside the theory."""
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

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="gauss_psgd",
            title="Gauss-PSGD with Ada-DP-SPIDER",
            paper=PAPER,
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(
                    text="gradients and their changes are clipped unit by unit, before they are summed",
                    checked="static",
                ),
                Assumption(text="each unit is read by one question of an epoch at most", checked="runtime"),
                Assumption(
                    text="one unit's loss is G-Lipschitz, M-smooth and has a rho-Lipschitz Hessian", checked="declared"
                ),
                Assumption(text="the start is at most U above the least mean loss (theory only)", checked="declared"),
                Assumption(text="units are independent draws of one population, read once", checked="declared"),
                Assumption(
                    text="sqrt(rho alpha) is at most M, alpha at most G, and a certificate can be paid",
                    checked="static",
                ),
            ),
            returns="an approximate second-order stationary point with what is claimed of it; no intervals",
        )
