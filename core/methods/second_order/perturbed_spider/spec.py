"""The prior work that Gauss-PSGD is compared with: SPIDER's estimates, disturbed on purpose where they are short.

[external/choice] Our reconstruction from prose: the paper that it is compared in tells it in a few sentences, without
parameters, and the figures below are ours. Wherever this method is named, that is said.

Where an estimate is at most 3 chi long, and none was perturbed in the last Gamma steps, the method asks for a fresh
gradient. It adds noise of standard deviation r on top of the privacy noise, so that the iterate leaves a saddle if it
is at one. Otherwise it asks for a fresh gradient where the drift requires it. All iterates count: that one of them is a
second-order stationary point is what the paper claims, and which one has to be found out from other records. No privacy
rests on that added noise: it comes of coins that no record has a part in, and is no part of the price.

Letters: chi is `error_radius`, eta `step_size`, Gamma `frozen_steps`, r `extra_noise`, kappa `restart_drift`, b1
`batch`, b2 `difference_batch`, T `steps`, G `clip`, M `smoothness`.

Source: Liu, Ganesh, Oh and Thakurta (2023), as given by Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order
convergence in private stochastic non-convex optimization. Gradients, prices and batches are those of `figures`.
"""

from math import sqrt
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import ErrorBound
from core.losses.assumption import Assumption
from core.methods.base import Card
from core.methods.second_order.claims import ASKED_ONCE, CLIPPED, INDEPENDENT
from core.methods.second_order.figures import DriftFigures, Positive, SpiderSettings
from core.methods.second_order.planned import even_batches, refusal, smoothness_of, unfit
from core.methods.second_order.presets import ABOVE_SIZE
from core.privacy.arithmetic import PLANNED_RADIUS
from core.privacy.facts import Adjacency, Facts
from farthing.schemas.estimates import Bound

MOST_KEPT: Final = 1000
MOST_KEPT_NUMBERS: Final = 100_000
"""Of all iterates kept: a model's row holds them."""
PLANNED_CHANGES: Final = 10
PLANNED_FROZEN: Final = 100
RECONSTRUCTION: Final = "our reconstruction from prose"


class PerturbedSpider(SpiderSettings):
    """theta <- theta - step_size * (estimate of the mean gradient), disturbed where that is short; a reconstruction.

    Returns the last iterate, and as many of those before it as are asked for. Nothing is claimed of any. A batch that
    is lost with a worker is skipped.
    """

    cited: ClassVar = "Liu, Ganesh, Oh and Thakurta, 2023; our reconstruction from prose"
    of_networks: ClassVar = ("smoothness",)
    kind: Literal["perturbed_spider"] = "perturbed_spider"
    error_radius: Positive | None = Field(
        default=None, description="chi; estimates of at most 3 chi are disturbed; null: 1.5 times their error"
    )
    extra_noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="r, of the noise added on each coordinate then, on top of the private one: no privacy rests on it; "
        "null: the estimate's error, spread over its coordinates",
    )
    frozen_steps: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Gamma, steps before an estimate may be disturbed again; null: 100"
    )
    keep_iterates: Annotated[int, Field(ge=1, le=MOST_KEPT)] | None = Field(
        default=None,
        description="iterates released beside the last, evenly spaced: at most so many with it, at least half of it; "
        "null: none",
    )

    def plan(self, facts: Facts, mu: float) -> "PerturbedSpiderPlan":
        """Fill what is open.

        Raises:
            Invalid: the smoothness is missing, a figure contradicts what is known, an estimate's error is so large
                that every gradient is short, or more is to be kept than a model holds; with the figures.
        """
        smoothness, wrong = smoothness_of(self, facts), unfit(self, facts, *self.too_many(facts))
        if smoothness is None or wrong:
            raise refusal(self, wrong)
        batch, difference_batch, steps = even_batches(self, facts, PLANNED_CHANGES)
        mu = mu if self.mu is None else self.mu
        errors = self.errors_with(facts, mu, smoothness, batch, difference_batch)
        drift = self.restart_drift or errors.balanced_drift()
        size = errors.size(drift)
        plan = self.closed(
            PerturbedSpiderPlan,
            mu=mu,
            smoothness=smoothness,
            radius=PLANNED_RADIUS,
            sites=1,
            start="zeros",
            batch=batch,
            difference_batch=difference_batch,
            steps=steps,
            restart_drift=drift,
            step_size=1 / (smoothness + facts.ridge),
            frozen_steps=PLANNED_FROZEN,
            error_radius=ABOVE_SIZE * size,
            extra_noise=size / sqrt(facts.dimension),
        )
        _refuse_blind(plan, facts, size)
        return plan

    def too_many(self, facts: Facts) -> tuple[FieldError, ...]:
        """Return what is wrong with how many iterates are to be kept."""
        if self.keep_iterates is None or self.keep_iterates * facts.dimension <= MOST_KEPT_NUMBERS:
            return ()
        most = MOST_KEPT_NUMBERS // facts.dimension
        detail = f"times {facts.dimension} parameters is above {MOST_KEPT_NUMBERS:,} numbers; keep at most {most}"
        return (FieldError("/optimizer/keep_iterates", detail),)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="perturbed_spider",
            title="Perturbed SPIDER of prior work (our reconstruction from prose, for comparison)",
            paper="Liu, Ganesh, Oh, Thakurta (2023), reconstructed from what Tao, Zhang, Yu, Cheng, Dressler, Wang say",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                CLIPPED,
                ASKED_ONCE,
                Assumption(text="one unit's loss is G-Lipschitz and M-smooth", checked="declared"),
                INDEPENDENT,
            ),
            returns="the last iterate, and evenly spaced ones before it if asked for; no claim and no intervals",
        )


class PerturbedSpiderPlan(DriftFigures, PerturbedSpider):
    """Perturbed SPIDER with nothing open but what only an analyst can declare."""

    error_radius: Positive
    extra_noise: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    frozen_steps: Annotated[int, Field(ge=0, le=1_000_000)]

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows of these filled settings, beside themselves."""
        return {
            **super().figures(facts),
            "error": self.errors(facts).size(self.restart_drift),
            "trigger": 3 * self.error_radius,
            "trigger_trivial": self.clip_at(facts),
        }

    def bound(self, facts: Facts) -> Bound:
        """Return that there is none, beside what every point satisfies untrained."""
        return Bound(
            quantity="norm of the mean gradient, in encoded units",
            value=None,
            confidence=None,
            trivial=self.clip_at(facts),
            vacuous=True,
            source=f"none: {RECONSTRUCTION}, whose theorem says that one of all iterates is good, not which",
        )

    def claim(self, outcome: str) -> ErrorBound:
        """Return that nothing is claimed, and how the method ended."""
        return ErrorBound(
            ended_by=outcome, quantity="gradient_norm", value=None, confidence=None, variant=RECONSTRUCTION
        )


def _refuse_blind(plan: PerturbedSpiderPlan, facts: Facts, size: float) -> None:
    """Refuse where every gradient there is would be taken for a short one.

    Raises:
        Invalid: with the figures.
    """
    trigger, steepest = 3 * plan.error_radius, plan.clip_at(facts)
    if trigger > steepest:
        raise Invalid(
            f"Every gradient would be taken for a short one: 3 chi = {trigger:.4g} is above {steepest:.4g}, which none "
            f"passes untrained; the error of an estimate is {size:.4g}.",
            FieldError("/optimizer/error_radius", f"makes 3 chi = {trigger:.4g}, above {steepest:.4g}; lower it"),
            FieldError("/privacy", "raise the target, or bring more units"),
            FieldError("/optimizer/batch", "raise it: an estimate's error falls with it"),
        )
