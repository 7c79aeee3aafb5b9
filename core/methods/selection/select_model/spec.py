"""Private selection of a model: finds an approximate second-order stationary point among released ones.

Candidates are points that were released before; the records are others, held out from them. Modes:

* sound: at each candidate a noised gradient and a noised Hessian. It takes the first candidate where both pass, with
  all constants and a union over all candidates. `printed`: the same with the print's thresholds, whose promise does
  not hold. (Privacy is by the exact multiplier in every mode, never by the print's.)
* gradient: at each candidate a noised gradient alone, for losses whose curvature is no news or is unknown.
* hessian_products: a noised gradient, and K noised products of the Hessian with the vectors of a power iteration on
  M I - H, which finds the direction of most negative curvature.
* above_threshold: noise on a score alone, one positive answer, pure epsilon; on one machine only.
* exponential: draws one candidate, a small score being likely. It always draws one, and claims nothing of it.

Letters: T is `candidates`, K `products`, G `clip`, M `smoothness`, rho `hessian_smoothness`, omega `failure`, m
`sites`, n `units`.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 4 and remark 5, after Wang, Chen and Xu (2019); AboveThreshold of Dwork and Roth (2014). The
constants, the exact noise and the rule for none are ours.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final, Self

from core.base.errors import FieldError, Invalid, contradiction
from core.inference.error_bound import ErrorBound, Selection
from core.losses.assumption import Assumption
from core.methods.base import Card, Plan, Request
from core.methods.selection.select_model.theory import BY_SCORES, SelectModelFigures, SelectModelSettings
from core.models.design import Design
from core.models.kinds import MultinomialModel, RegressionModel
from core.privacy.arithmetic import fill
from core.privacy.calibration import Fits, smallest_sigma
from core.privacy.events import Event, Pure
from core.privacy.facts import Adjacency, Facts
from farthing.schemas.estimates import Bound

MOST_MATRIX: Final = 2000
"""Of parameters, where whole Hessians are summed."""
PAPER: Final = (
    "Tao, Zhang, Yu, Cheng, Dressler, Wang: Second-order convergence in private stochastic non-convex optimization"
)
CONDITIONS: Final = (
    "units are independent draws of one population, none of which the candidates were made of",
    "no unit's gradient or Hessian is shortened there",
)
NO_SCALARS: Final = (
    "is for one dataset: means of sites' own norms and eigenvalues bound those of the mean from one side only, so "
    "that no threshold can be set on them; take sound, printed, gradient or hessian_products"
)


class SelectModel(SelectModelSettings):
    """Return the first of several released points that passes a private test, unchanged, or none."""

    def refuse(self, request: Request) -> None:
        """Refuse several processes where one answer is made of many sums: each follower knows what it pays for one.

        Raises:
            Invalid: with a JSON pointer.
        """
        if self.mode in BY_SCORES and request.processes > 1:
            raise contradiction("/resources/processes", f"is 1 in the mode {self.mode}: one process scores points")

    def with_request(self, request: Request) -> Self:
        """Price as many candidates as models are named, unless the settings say otherwise."""
        return fill(self, candidates=request.released)

    def wrong_for(self, model: RegressionModel, facts: Facts) -> list[FieldError]:
        """Return why a model's records have no Hessian that could be shortened to a norm, where one is asked for."""
        if self.mode == "gradient":
            return []
        ways = f"take mode: gradient, for {self.mode} asks about curvature too"
        if isinstance(model, MultinomialModel):
            return [FieldError("/model/kind", f"multinomial is convex, so that there is no saddle to exclude: {ways}")]
        if facts.scale is not None:
            detail = f"is convex in coefficients and scale, so that there is no saddle to exclude: {ways}"
            return [FieldError("/model/loss/joint", detail)]
        if facts.smoothness is None:
            return [FieldError("/model/loss", f"has kinks, where there is no Hessian: {ways}")]
        return []

    def with_facts(self, facts: Facts, design: Design) -> Facts:
        """Return facts with Hessians of rank 1, a number times x x^T: other losses are refused."""
        del design
        return facts if self.mode == "gradient" else facts.model_copy(update={"hessian_rank": 1})

    def plan(self, facts: Facts, mu: float) -> "SelectModelPlan":
        """Fill what is open.

        Raises:
            Invalid: a constant is missing, or the loss has no Hessian to ask for; with JSON pointers.
        """
        _refuse_open(self, facts)
        bends = self.mode != "gradient"
        plan = self.closed(
            SelectModelPlan,
            mu=mu,
            gamma_star=_planned_gamma(self) or None,
            smoothness=facts.smoothness if bends else None,
            candidates=1,
            sites=1,
            units=facts.units,
            epsilon=mu if self.mode == "above_threshold" else None,
        )
        _refuse_unfit(plan, facts)
        return plan

    def calibrated(self, facts: Facts, fits: Fits) -> Self:
        """Return the same settings with the pure epsilon that the target allows, where one is asked for.

        Raises:
            Invalid: the target does not allow the one that was given.
        """
        del facts  # an epsilon means the same for every scope
        if self.mode != "above_threshold":
            return self
        if self.epsilon is None:
            return fill(self, epsilon=2 / smallest_sigma(lambda sigma: Pure(epsilon=2 / sigma), fits))
        if not fits(Pure(epsilon=self.epsilon)):
            raise Invalid(
                "The target does not allow this epsilon.",
                FieldError("/optimizer/epsilon", "is more than the target allows; leave it out, or raise the target"),
            )
        return self

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="select_model",
            title="Private selection of a released model",
            paper=PAPER,
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="gradients and Hessians are shortened unit by unit, before sums", checked="static"),
                Assumption(text="the records are others than those the candidates were made of", checked="static"),
                Assumption(text="units are independent draws of one population", checked="declared"),
                Assumption(text="no unit's gradient or Hessian is shortened at a candidate", checked="declared"),
            ),
            returns="one of the candidates, unchanged, or none, with what is claimed of it; no intervals",
        )


class SelectModelPlan(SelectModelFigures, SelectModel):
    """Selection among released points with nothing open."""

    @property
    def points(self) -> int:
        """T, the candidates."""
        return self.candidates

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the worst case: no candidate passes, or the last one."""
        del facts  # a multiplier of the sensitivity means the same for every scope
        # All questions of a mode have one multiplier, hence one price.
        return [self.questions()[0].event()] * self.answers

    def passes(self, facts: Facts) -> int:
        """Return two products for a gradient, as many as parameters for a Hessian, and three for its product."""
        one = {"hessian_products": 3 * self.products, "gradient": 0}.get(self.mode, facts.dimension)
        return (2 + one) * self.candidates

    def bound(self, facts: Facts) -> Bound:
        """Return what is claimed of a selected candidate, beside what every point satisfies."""
        steep, sharp = self.claimed(facts)
        trivial = self.clip_at(facts)
        coarse = sharp is not None and self.curvature is not None and sharp >= self.curvature.smoothness
        turned = "" if sharp is None else f", no eigenvalue of the mean Hessian being below -{sharp:.4g}"
        return Bound(
            quantity=f"norm of the mean gradient at a selected candidate{turned}, in encoded units",
            value=steep,
            confidence=None if steep is None else self.confidence,
            trivial=trivial,
            vacuous=steep is None or steep >= trivial or coarse,
            source=f"none: {self.mode} claims nothing" if steep is None else f"{PAPER}, algorithm 4 with constants",
        )

    def federated_bound(self, clients: Sequence[tuple[Plan, Facts]]) -> Bound:
        """Return the same of the mean of all clients: everything counts the units of the one with fewest."""
        return self.bound(min((facts for _, facts in clients), key=lambda facts: facts.units))

    def error_bound(self, facts: Facts, chosen: int | None, noises: tuple[float, float] | None) -> ErrorBound:
        """Return what is claimed of the candidate that was chosen, nothing where none was.

        Args:
            facts: public.
            chosen: its place among the candidates, from 0.
            noises: the noised values; None where there were none.
        """
        steep, sharp = (None, None) if chosen is None else self.claimed(facts, noises)
        allowed = (None, None) if noises is None else self.tolerances(facts, noises)
        return ErrorBound(
            ended_by="none" if chosen is None else "selected",
            quantity="gradient_norm" if sharp is None else "second_order_stationarity",
            value=steep,
            confidence=None if steep is None else self.confidence,
            conditions=() if steep is None else CONDITIONS,
            variant=self.mode,
            selection=Selection(
                mode=self.mode,
                candidates=self.candidates,
                chosen=chosen,
                alpha=self.alpha,
                gamma_star=self.gamma_star,
                gradient_tolerance=allowed[0],
                curvature_tolerance=None if self.curvature is None else allowed[1],
                curvature=sharp,
                failure=self.failure,
            ),
        )


def _planned_gamma(settings: SelectModel) -> float:
    """Return sqrt(rho alpha); 0 where one of them is not given."""
    return sqrt((settings.hessian_smoothness or 0) * (settings.alpha or 0))


def _refuse_open(settings: SelectModel, facts: Facts) -> None:
    """Refuse settings that leave open what nothing fills."""
    wrong = []
    if settings.alpha is None:
        wrong.append(FieldError("/optimizer/alpha", "is required: the longest gradient allowed, in encoded units"))
    if settings.mode == "gradient":
        given = (
            name for name in ("gamma_star", "hessian_smoothness", "smoothness") if getattr(settings, name) is not None
        )
        wrong += [
            FieldError(f"/optimizer/{name}", "is about curvature, which gradient looks at none of") for name in given
        ]
    elif settings.gamma_star is None and not (
        settings.hessian_smoothness if settings.alpha is None else _planned_gamma(settings)
    ):
        wrong.append(FieldError("/optimizer/gamma_star", "is required, or hessian_smoothness for sqrt(rho alpha)"))
    if settings.mode != "gradient" and settings.smoothness is None and facts.smoothness is None:
        detail = "is not known of this loss, nor a bound on a unit's Hessian: declare it, or take mode: gradient"
        wrong.append(FieldError("/optimizer/smoothness", detail))
    if settings.epsilon is not None and settings.mode != "above_threshold":
        wrong.append(FieldError("/optimizer/epsilon", "is for above_threshold; leave it out"))
    if wrong:
        raise Invalid(f"This selection cannot be planned: see {wrong[0].pointer}.", *wrong)


def _refuse_unfit(settings: SelectModelPlan, facts: Facts) -> None:
    """Refuse what this mode cannot do on these records."""
    wrong = []
    if settings.mode in BY_SCORES and settings.sites > 1:
        wrong.append(FieldError("/optimizer/mode", f"{settings.mode} {NO_SCALARS}"))
    if settings.mode not in {"hessian_products", "gradient"} and facts.dimension > MOST_MATRIX:
        detail = f"sums whole Hessians, of up to {MOST_MATRIX} parameters: take hessian_products, or gradient"
        wrong.append(FieldError("/optimizer/mode", f"{settings.mode} {detail}"))
    if settings.units > facts.units:
        detail = f"is {settings.units}, and there are {facts.units}: nothing is claimed by more; leave it out"
        wrong.append(FieldError("/optimizer/units", detail))
    if settings.mode != "gradient" and not settings.held(facts.dimension).enough:
        detail = f"the {facts.units} units are too few for any claim: bring more, or raise failure"
        wrong.append(FieldError("/optimizer/failure", detail))
    if wrong:
        raise Invalid(f"This selection cannot be made: see {wrong[0].pointer}.", *wrong)
