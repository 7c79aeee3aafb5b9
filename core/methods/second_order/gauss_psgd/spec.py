"""Gauss-PSGD: noisy gradient descent that looks for a second-order stationary point, and tells one when it finds it.

Where the noised gradient is at most 3 chi long, up to Q rounds of at most Gamma steps begin at that point. A round that
moves R away has escaped a saddle, and descent continues from there. Where none does, the point is returned: its
gradient is at most alpha = 4 chi long and no eigenvalue of the mean Hessian is below -sqrt(rho alpha), as surely as the
figures allow. Gradients come from an estimator that asks for a fresh one (b1 records) or for a change (b2 records). No
record is read twice in a pass. A whole pass therefore costs as much as a single answer, for any number of steps, even
if answers decide it.

Letters: chi is `error_radius`, eta `step_size`, Q `rounds`, Gamma `round_steps`, R `escape_distance`, kappa
`restart_drift`, b1 `batch`, b2 `difference_batch`, T `steps`, G `clip`, M `smoothness`, rho `hessian_smoothness`, U
`start_gap`, omega `failure`, omega0 `missed`, m `sites`.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithms 1 and 2; `period` is DIFF2 of Murata and Suzuki (2023). The privacy argument, the calibrated
settings and the corrections are ours. Not the best rate known: see Liu and Talwar (2024).
"""

from typing import ClassVar, Literal

from pydantic import Field

from core.losses.assumption import Assumption
from core.methods.base import Card
from core.methods.second_order.claims import (
    AFFORDABLE,
    ASKED_ONCE,
    CLIPPED,
    INDEPENDENT,
    PAPER,
    SMOOTH,
    AbstractEscape,
)
from core.methods.second_order.figures import Count, known
from core.privacy.facts import Adjacency, Facts
from farthing.schemas.estimates import Bound


class GaussPsgd(AbstractEscape):
    """theta <- theta - step_size * (estimate of the mean gradient), with rounds of escape where that is short.

    Returns the point where the rounds began, never a later one. A batch that is lost with a worker is skipped.
    """

    cited: ClassVar = "Tao, Zhang, Yu, Cheng, Dressler and Wang, preprint"
    of_networks: ClassVar = ("smoothness", "hessian_smoothness")
    kind: Literal["gauss_psgd"] = "gauss_psgd"
    estimator: Literal["drift", "period"] = Field(
        default="drift",
        description="when a fresh gradient is asked; period: DIFF2, every `period` steps, without rounds of escape",
    )
    period: Count | None = Field(default=None, description="of DIFF2; null: 10")

    @property
    def escapes(self) -> bool:
        """Whether there are rounds: DIFF2 has none."""
        return self.estimator == "drift"

    @property
    def every(self) -> int | None:
        """Estimates from one fresh gradient to the next: DIFF2's period."""
        return None if self.escapes else known(self.period)

    def bound(self, facts: Facts) -> Bound:
        """Return alpha, beside what every point satisfies untrained; of DIFF2 that there is none."""
        if self.escapes:
            return super().bound(facts)
        return Bound(
            quantity="norm of the mean gradient, in encoded units",
            value=None,
            confidence=None,
            trivial=self.clip_at(facts),
            vacuous=True,
            source="none: DIFF2 has no rounds of escape, and its theorem is about fixed batches of empirical risk",
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
                CLIPPED,
                ASKED_ONCE,
                SMOOTH,
                Assumption(text="the start is at most U above the least mean loss (theory only)", checked="declared"),
                INDEPENDENT,
                AFFORDABLE,
            ),
            returns="an approximate second-order stationary point with what is claimed of it; no intervals",
        )
