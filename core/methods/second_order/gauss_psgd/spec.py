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

from typing import ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import FieldError
from core.losses.assumption import Assumption
from core.methods.base import Card
from core.methods.second_order.claims import (
    AFFORDABLE,
    ASKED_ONCE,
    CLIPPED,
    INDEPENDENT,
    PAPER,
    SMOOTH,
    EscapePlan,
)
from core.methods.second_order.figures import AtSmallest, Count, EscapeSettings, SpiderFigures
from core.methods.second_order.planned import even_batches, refusal, smoothness_of, unfit, with_rounds
from core.privacy.arithmetic import PLANNED_RADIUS
from core.privacy.facts import Adjacency, Facts
from farthing.schemas.estimates import Bound

PLANNED_PERIOD: Final = 10


class GaussPsgd(EscapeSettings):
    """theta <- theta - step_size * (estimate of the mean gradient), with rounds of escape where that is short.

    Returns the point where the rounds began, never a later one. A batch that is lost with a worker is skipped.
    """

    cited: ClassVar = "Tao, Zhang, Yu, Cheng, Dressler and Wang, preprint"
    plans_by: ClassVar = "estimator"
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

    def plan(self, facts: Facts, mu: float) -> "GaussPsgdPlan | PeriodPlan":
        """Fill what is open.

        Raises:
            Invalid: a constant is missing, or the figures allow no certificate; with the figures and what to change.
        """
        return self.with_rounds(facts, mu) if self.escapes else self._with_periods(facts, mu)

    def with_rounds(self, facts: Facts, mu: float) -> "GaussPsgdPlan":
        """Return the plan with rounds of escape; see `core.methods.second_order.planned`."""
        return with_rounds(self, GaussPsgdPlan, facts, mu)

    def _with_periods(self, facts: Facts, mu: float) -> "PeriodPlan":
        """Return DIFF2's plan: by default ten periods of ten steps, whose changes read as much as gradients.

        Raises:
            Invalid: the smoothness is missing, a batch is larger than there are units, or the mode is theory.
        """
        theory = FieldError("/optimizer/mode", "theory is about the estimator drift: take calibrated or given")
        smoothness, wrong = smoothness_of(self, facts), unfit(self, facts, *[theory] * (self.mode == "theory"))
        if smoothness is None or wrong:
            raise refusal(self, wrong)
        period = self.period or PLANNED_PERIOD
        batch, difference_batch, steps = even_batches(self, facts, period)
        return self.closed(
            PeriodPlan,
            mu=mu,
            smoothness=smoothness,
            radius=PLANNED_RADIUS,
            sites=1,
            start="zeros",
            preset="strict",  # in plans with rounds it has a meaning; here it is stored alone
            period=period,
            step_size=0.5 / (smoothness + facts.ridge),
            batch=batch,
            difference_batch=difference_batch,
            steps=steps,
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


class GaussPsgdPlan(EscapePlan, GaussPsgd):
    """Gauss-PSGD with rounds of escape, with nothing open but what only an analyst can declare."""

    estimator: Literal["drift"] = "drift"


class PeriodPlan(SpiderFigures, GaussPsgd, AtSmallest):
    """DIFF2 with nothing open of what it has; it has no rounds."""

    estimator: Literal["period"]
    period: Count

    def starts_again(self, drift: float, queries: int) -> bool:
        """Say whether a period is over."""
        del drift
        return queries % self.period == 0

    def bound(self, facts: Facts) -> Bound:
        """Return that there is none, beside the value that every untrained point satisfies."""
        return Bound(
            quantity="norm of the mean gradient, in encoded units",
            value=None,
            confidence=None,
            trivial=self.clip_at(facts),
            vacuous=True,
            source="none: DIFF2 has no rounds of escape, and its theorem is about fixed batches of empirical risk",
        )
