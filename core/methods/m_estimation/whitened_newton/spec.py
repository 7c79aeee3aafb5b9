"""Whitened Newton: a private look at the columns, a public re-encoding, short Newton steps and two precise gradients.

Its name, assumptions, price and predictions; `core.methods.m_estimation.whitened_newton.fit` has the steps and
`inference.last_step` the covariance. Fixed shares divide mu^2 among its answers, whatever they are
(`docs/decisions/0041-divide-a-jobs-budget-by-fixed-shares.md`).
"""

from collections.abc import Sequence
from math import sqrt
from typing import Self

from core.base.errors import contradiction
from core.inference.checks import Learned
from core.inference.settings import Inference
from core.losses.categorical import Multinomial
from core.losses.counts import CutPoisson, Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.base import Card, Request, Spec
from core.methods.m_estimation.whitened_newton import forecast
from core.methods.m_estimation.whitened_newton import request as requests
from core.methods.m_estimation.whitened_newton import shares as parts
from core.methods.m_estimation.whitened_newton.card import CARD, first_order
from core.methods.m_estimation.whitened_newton.request import WhitenedSettings
from core.methods.m_estimation.whitened_newton.row_weights import grown, weight_bound_for
from core.methods.m_estimation.whitened_newton.theory import WhitenedFigures
from core.models.design import Design
from core.models.kinds import AnyModel
from core.models.outlook import Array, Outcome, Outlook, Residuals, Signal
from core.privacy.arithmetic import fill, noise_norm
from core.privacy.events import Event
from core.privacy.facts import Facts
from core.queries.classes import ClassGradient
from core.queries.reencoded import ReencodedGradient, widest
from farthing.schemas.estimates import Bound, ForeseenFlag


class WhitenedNewton(WhitenedSettings):
    """Learn where columns lie and how they vary together, re-encode, walk a few steps, and finish with two gradients.

    Columns are never clamped by what was learned: it makes a public affine map of rows and weights
    w = min(1, t^2/|E x|^2) on what the map makes of them. The estimate solves the weighted likelihood equation; a
    residual scale and a Poisson cap are learned on the way. Intervals come with it, for no further answers.
    """

    def refuse(self, request: Request) -> None:
        """Refuse what the method does not offer, such as ridges; see `request`."""
        requests.refuse(self, request)

    def with_request(self, request: Request) -> Self:
        """Say whether there are sampling weights, which are trimmed, an offset, and a description's look."""
        return fill(self, **requests.followed(request))

    def with_facts(self, facts: Facts, design: Design) -> Facts:
        """Return facts that say where encoded features and target may lie."""
        # A plan of release 0.1.0 was priced without counts of integers' values, and without centred products.
        return requests.with_ranges(facts, design, by_value=self.few_valued != (), centred=self.products != 0)

    def with_model(self, model: AnyModel, design: Design) -> Self:
        """Fill the loss."""
        return fill(self, loss=requests.loss_of(model, design))

    def with_losses_of(self, planned: Spec) -> Self:
        """Fill the loss of another dataset's plan."""
        return fill(self, loss=planned.loss) if isinstance(planned, WhitenedNewton) else self

    def plan(self, facts: Facts, mu: float) -> "WhitenedNewtonPlan":
        """Fill what is open, from public facts alone."""
        assert facts.ranges is not None, "the planner says where columns lie"
        counted = {
            "numbers": len(facts.ranges.places("number")),
            "two_valued": len(facts.ranges.places("two")),
            "few_valued": facts.ranges.few,
            "products": len(facts.ranges.places("product")),
        }
        for name, known in counted.items():
            if getattr(self, name) not in {None, known}:
                raise contradiction(f"/optimizer/{name}", "does not agree with the declared columns; leave it out")
        least = sqrt(parts.WEIGHT_PER_PARAMETER * len(facts.ranges.kinds) + 1)
        made = self.closed(
            WhitenedNewtonPlan,
            mu=mu,
            damped_steps=parts.LINEAR_STEPS if isinstance(self.loss, Huber | Squared) else parts.PLANNED_STEPS,
            weight_bound=least,
            **counted,
        )
        return made if self.weight_bound is not None else grown(made, facts)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return CARD


class WhitenedNewtonPlan(WhitenedFigures, WhitenedNewton):
    """Whitened Newton with nothing open."""

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return each question's event, in order; learned values change a question's cells, never its price."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        return [question.event() for question in self.questions()]

    def passes(self, facts: Facts) -> int:
        """Return p for each question about re-encoded rows, p more for a matrix, and one for each other."""
        encoded = [question for question in self.questions() if question.places == "encoded"]
        matrices = [question for question in encoded if len(question.shape(facts.dimension)) > 1]
        return len(self.questions()) - len(encoded) + facts.dimension * (len(encoded) + len(matrices))

    def predict_widths(self, outlook: Outlook, facts: Facts, inference: Inference) -> tuple[Array, Array]:
        """Return widths that all coefficients share in parts of the non-private ones."""
        return forecast.whitened_widths(outlook, facts, self, inference)

    def widening_by(self, signal: Signal, facts: Facts) -> float:
        """Return how much wider intervals are; counts are taken to vary as a Poisson law says."""
        return forecast.widening_by(self, facts, signal)

    def foreseen_flags(self, outcome: Outcome, facts: Facts) -> tuple[ForeseenFlag, ...]:
        """Return the flags of a whole job that public figures tell of."""
        return forecast.foreseen_flags(self, outcome, facts)

    def price_notes(self, facts: Facts, residuals: Residuals) -> list[str]:
        """Return what the target's bounds cost least squares, or what it assumes in place of them."""
        return forecast.price_notes(self, facts, residuals)

    def learned_errors(self, facts: Facts, learned: Learned, theta: Array, to_declared: Array) -> tuple[float, ...]:
        """Return the errors by the learned encoding."""
        return forecast.learned_errors(self, facts, learned, theta, to_declared)

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what the noise of the Hessians comes to; above 1 a job ends with `too many coefficients`."""
        loss, peak = self.loss, None
        if isinstance(loss, Poisson):
            peak, _ = self.count_cuts(facts, 1.0, 1.0, loss.curvature_peak)
        return {"hessian_noise": self.hessian_noise(facts, parts.usual_curvature(self.loss), peak)}

    def bound(self, facts: Facts) -> Bound:
        """Predict how far noise moves the estimate from the non-private one, in deviations of the linear predictor.

        To first order it is H^-1 times the mean of both precise gradients' noise. H is c times the identity if the
        learned encoding is exact. c is the loss's curvature at equal odds, mean 1 or normal residuals. Of least squares
        the one gradient is asked by bands, and residuals are taken to reach as `reach` says.
        """
        loss, sigma, bound = self.loss, self.sigma(parts.GRADIENT_SHARE), self.weight_bound
        curvature = parts.usual_curvature(self.loss)
        gradient: ClassGradient | ReencodedGradient
        if isinstance(loss, Squared):
            reach = self.reach(facts)
            own_cut, bound = Huber(c=reach, scale=1.0), weight_bound_for(self, facts, curvature, reach)
            gradient = ReencodedGradient(sigma=self.sigma(parts.BANDS_SHARE), loss=own_cut, weight_bound=bound)
        elif isinstance(loss, Multinomial):
            gradient = ClassGradient(sigma=sigma, classes=loss.known_classes, weight_bound=bound)
        else:
            own = widest(loss)
            if isinstance(own, CutPoisson):
                rate_cap, cut = self.count_cuts(facts, 1.0, 1.0, own.cut)
                own = CutPoisson(rate_cap=rate_cap, cut=cut)
            gradient = ReencodedGradient(sigma=sigma, loss=own, weight_bound=bound)
        value = noise_norm(gradient.sigma * gradient.sensitivity(facts), facts.dimension, 1) / curvature
        # Answers are divided by the mean sampling weight, and their noise with them.
        value /= self.mean_weight(facts)
        return first_order(value, facts.dimension)
