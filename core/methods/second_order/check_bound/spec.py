"""The method check_bound: bounds a released model's error from held-out records, by rounds or by its gradient.

`claims: gradient` asks one noised number, and bounds the gradient's length from above at a stated level; see `norms`.
It needs no constant of the loss, so it is for every model. `claims: second_order`, the default, goes on to curvature.

A fresh gradient first. Where it is longer than 3 chi the point is not stationary, as far as the figures tell, and the
job ends. Otherwise up to Q rounds of at most Gamma steps begin there, as in Gauss-PSGD, until one moves R away. Where
none does, the gradient there is at most alpha = 4 chi long and no eigenvalue of the mean Hessian is below -sqrt(rho
alpha), as surely as the figures allow. A point that any method found on some records thereby gets its certificate from
others. One pass over the records that the job names has the price of a single answer.

Level: of a point with a curvature below -sqrt(rho alpha) all rounds stay with probability `missed` at most, linearised.
Power: of a minimum, rounds stay unless errors carry them R away; the preset strict gives them half of that distance.

Letters as in `gauss`.

Source: [derived] ours, from algorithm 1 of Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in
private stochastic non-convex optimization, without its descent. No new argument of privacy is needed.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.inference.error_bound import ErrorBound, SecondOrder
from core.losses.assumption import Assumption
from core.methods.base import Card
from core.methods.second_order import norms
from core.methods.second_order.claims import AFFORDABLE, CLIPPED, INDEPENDENT, PAPER, SMOOTH, EscapePlan
from core.methods.second_order.figures import AtSmallest, Count, EscapeSettings, RoundFigures
from core.methods.second_order.norms import APART, Tolerance
from core.methods.second_order.planned import with_rounds
from core.privacy.arithmetic import Mu
from core.privacy.events import Event, Gaussian
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientNorm
from farthing.schemas.estimates import Bound

OF_A_GRADIENT: Final = frozenset({"kind", "claims", "mu", "clip", "spread", "failure", "sites", "units", "steps"})
"""Settings that `claims: gradient` reads; all others are about rounds."""


class CheckBound(EscapeSettings):
    """Certificate of a released model's point from held-out records: by rounds of escape, or of its gradient alone."""

    about: ClassVar = (1, 1)
    given: ClassVar = ("points",)
    needs_apart: ClassVar = True
    bounds_models: ClassVar = True
    rooms: ClassVar = (1.5, 1.0)
    descends: ClassVar = False

    cited: ClassVar = (
        "Tao, Zhang, Yu, Cheng, Dressler and Wang, preprint; rounds of escape alone, or ours, of the gradient"
    )
    plans_by: ClassVar = "claims"
    free_of_constants: ClassVar = "claims: gradient"
    of_networks: ClassVar = ("smoothness", "hessian_smoothness")
    kind: Literal["check_bound"] = "check_bound"
    claims: Literal["second_order", "gradient"] = Field(
        default="second_order",
        description="second_order: by rounds of escape, gradient and curvature; gradient: its length alone, by one "
        "answer and at a level, of every model and without any constant",
    )
    units: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="n, of the client with fewest, for a gradient alone; null: as many as there are"
    )
    epochs: Literal[1] = Field(
        default=1, description="always: a second reading of the same records says nothing new about a population"
    )
    start: Literal["zeros"] = Field(default="zeros", description="always: the job's `models` say where")

    def declared_of_networks(self) -> tuple[str, ...]:
        """Return none for the gradient alone, whose length is of every loss."""
        return super().declared_of_networks() if self.escapes else ()

    def plan(self, facts: Facts, mu: float) -> "CheckBoundPlan | NormPlan":
        """Fill what is open.

        Raises:
            Invalid: a constant is missing, or the figures allow no certificate; with the figures and what to change.
        """
        if not self.escapes:
            return self._with_norm(facts, mu)
        if self.units is not None:
            raise _wrong("/optimizer/units", "is for claims: gradient; rounds read batches: leave it out")
        # The gap of the point is not known.
        return with_rounds(self, CheckBoundPlan, facts.model_copy(update={"start_gap": None}), mu)

    def _with_norm(self, facts: Facts, mu: float) -> "NormPlan":
        """Return the plan of one question about the gradient's norm.

        Raises:
            Invalid: as `refuse_rounds`; or the units are too few to claim anything, with how many would do.
        """
        self.refuse_rounds(facts)
        # One question is one step, whatever number of steps is given.
        plan = self.model_copy(update={"steps": 1}).closed(NormPlan, mu=mu, sites=1, units=facts.units)
        if plan.units > facts.units:
            detail = f"is {plan.units}, and there are {facts.units}: nothing is claimed by more; leave it out"
            raise _wrong("/optimizer/units", detail)
        if plan.bound(facts).vacuous:
            raise Invalid(
                f"These {facts.units} units allow no claim about the gradient: {plan.shortfall(facts)}.",
                FieldError("/optimizer/failure", f"{plan.shortfall(facts)}; bring more, or raise failure"),
            )
        return plan

    def refuse_rounds(self, facts: Facts) -> None:
        """Refuse figures that one question about a gradient's norm has no use for.

        Raises:
            Invalid: a figure of rounds is given, or a clip that would cut nothing; with a pointer to each.
        """
        fields = type(self).model_fields
        given = [name for name in fields if name not in OF_A_GRADIENT and getattr(self, name) != fields[name].default]
        detail = "is about rounds, and claims: gradient has none: leave it out"
        wrong = [FieldError(f"/optimizer/{name}", detail) for name in given]
        if self.clip is not None and self.clip > facts.gradient_bound:
            detail = f"is above {facts.gradient_bound:.6g}, the model's own bound, and would cut nothing: leave it out"
            wrong.append(FieldError("/optimizer/clip", detail))
        if wrong:
            raise Invalid(f"No gradient's norm is asked for so: {wrong[0].pointer} {wrong[0].detail}.", *wrong)

    @property
    def escapes(self) -> bool:
        """Whether there are rounds."""
        return self.claims == "second_order"

    def most_steps(self, facts: Facts, figures: RoundFigures) -> int:
        """Return all steps of all rounds, and the gradient before them."""
        del facts  # there is no descent
        return 1 + figures.rounds * figures.round_steps

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="check_bound",
            title="A certificate for a released model, by rounds of escape or of its gradient alone",
            paper=PAPER,
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                CLIPPED,
                Assumption(text="each unit is read by one question at most", checked="runtime"),
                Assumption(text="the model was not made of the dataset that is read", checked="static"),
                Assumption(text="the model was not made of the units that are read", checked="declared"),
                SMOOTH.model_copy(update={"text": f"for rounds: {SMOOTH.text}"}),
                INDEPENDENT,
                AFFORDABLE.model_copy(update={"text": f"for rounds: {AFFORDABLE.text}"}),
            ),
            returns="the model's own point with what is claimed of it; no intervals",
        )


class CheckBoundPlan(EscapePlan, CheckBound):
    """A certificate by rounds of escape, with nothing open but what only an analyst can declare."""

    claims: Literal["second_order"] = "second_order"
    epochs: Literal[1] = 1
    start: Literal["zeros"] = "zeros"

    def needed(self) -> tuple[float, str]:
        """Return the units of the gradient before the rounds and of all rounds, each without a restart."""
        batch = self.batch
        units = float(batch + self.phase_units())
        return units, (
            f"a certificate takes b1 + Q (b1 + (Gamma - 1) b2) = {batch} + {self.rounds} * ({batch} + "
            f"{self.round_steps - 1} * {self.difference_batch}) = {units:.0f} units"
        )

    def claim(self, facts: Facts, ended: SecondOrder, *, strayed: bool) -> ErrorBound:
        """Return what is claimed of the point; see `EscapePlan.claim`."""
        made = super().claim(facts, ended, strayed=strayed)
        return made.model_copy(update={"conditions": (*made.conditions, APART)}) if made.conditions else made


class NormPlan(CheckBound, AtSmallest):
    """A certificate of the gradient alone, with nothing open of what it has."""

    claims: Literal["gradient"]
    mu: Mu
    sites: Count
    units: Count
    steps: Literal[1]

    def questions(self) -> tuple[GradientNorm | Gradient]:
        """Return the one about the gradient's norm."""
        return (self.length_question(),)

    @property
    def multiplier(self) -> float:
        """z, the noise over the sensitivity."""
        return self.noise_multiplier(self.mu)

    def length_question(self) -> GradientNorm | Gradient:
        """Return the question about the gradient's norm; of several clients the one for all of it.

        A mean of norms is no norm of a mean, and where clients differ it stays long.
        """
        kind = GradientNorm if self.sites == 1 else Gradient
        return kind(sigma=self.multiplier, clip=self.clip)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return the price of a single answer."""
        del facts  # the same for every scope
        return [Gaussian(sigma=self.multiplier)]

    def tolerance(self, facts: Facts) -> Tolerance:
        """Return the amount added to a noised norm."""
        apart = Gradient(sigma=self.multiplier, clip=self.clip).diameter(facts) / 2
        return Tolerance(
            reach=apart if self.spread is None else min(apart, self.spread),
            units=self.units,
            clients=self.sites,
            failure=self.failure,
            entries=1 if self.sites == 1 else facts.dimension,
        )

    def norm_noise(self, facts: Facts) -> float:
        """Return the noise on the norm, or on each entry, of the lattice's own part before it is drawn."""
        alone = facts.model_copy(update={"units": self.units})
        return self.multiplier * self.length_question().sensitivity(alone) / sqrt(self.sites)

    def bound(self, facts: Facts) -> Bound:
        """Return the amount added to a noised norm, beside the value that every untrained point satisfies."""
        added, trivial = self.tolerance(facts).at(self.norm_noise(facts)), self.clip_at(facts)
        return Bound(
            quantity="the margin that is added to the measured norm of the mean gradient in its "
            f"{norms.parameters_of(facts)}, for noise and sampling, to bound that of the population, in encoded units",
            value=added,
            confidence=1 - self.failure,
            trivial=trivial,
            vacuous=added >= trivial,
            source="derived, ours: Hoeffding's lemma along the gradient's own direction, and normal noise",
        )

    def shortfall(self, facts: Facts) -> str:
        """Say how many units a claim about the gradient takes at least, and how many there are."""
        clip = self.clip_at(facts)
        needed = self.tolerance(facts).units_below(clip, self.norm_noise(facts))
        return (
            f"every gradient is at most {clip:.4g} long, and the margin of a measured norm is below that from about "
            f"{needed} units on"
        )

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows beside the settings."""
        noise, tolerance = self.norm_noise(facts), self.tolerance(facts)
        return {
            "norm_noise": noise,
            "tolerance": tolerance.at(noise),
            "tolerance_of_sampling_alone": tolerance.at(0.0),
            "alpha_trivial": self.clip_at(facts),
        }

    def claim_of_norm(self, facts: Facts, norm: float, noise: float, penalty: float) -> ErrorBound:
        """Return what is claimed of the gradient.

        Args:
            facts: public.
            norm: the noised norm, or that of the noised gradient.
            noise: the standard deviation of the noise on it, or on each entry of that gradient.
            penalty: the length of the ridge's gradient at the point.
        """
        received = norms.ReceivedNorm(norm, noise, self.clip_at(facts), penalty)
        declared = self.spread is not None
        return norms.claim(facts, self.tolerance(facts), received, declared=declared)


def _wrong(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
