"""A sweep: trains several candidate settings of one job and releases the best by a noised score.

Two ways to pay, whichever leaves more to each run:

* selection: runs of candidates are drawn, in secret. Their number is Poisson with mean `runs`, each is of a candidate
  that is drawn uniformly, and one of the least noised score is released. See `core.privacy.selection` for the price.
  Candidates that ask the same questions are a group of their own, with a number of its own. All slots of all groups
  are run, so that no time tells how many count.
* composition: each candidate is run once, and all are paid for.

A run is worth `mu`: `score_share` of mu^2 goes to the score, the mean error of `MeanError`, the rest to the method.

Source: Papernot and Steinke (2022), Hyperparameter tuning with Renyi differential privacy, algorithm 1 and theorem 6.
"""

from collections.abc import Sequence
from functools import cached_property
from math import isclose, sqrt
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field

from core.base.errors import FieldError, Invalid, contradiction
from core.inference.settings import Inference
from core.inference.swept import Way
from core.losses.assumption import Assumption
from core.losses.weights import Clip
from core.methods.base import Card, Plan, Request, Spec
from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan
from core.methods.selection.sweep.candidates import (
    DIVIDED,
    OPEN,
    Candidate,
    CandidatePlan,
    asked_of,
    groups_of,
    has_plan,
    plan_of,
    with_ridge,
)
from core.models.design import Design
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, RegressionModel
from core.privacy.arithmetic import SLACK, Mu, fill
from core.privacy.calibration import Fits, smallest_sigma
from core.privacy.events import Event, Repeated, Selected, Zcdp
from core.privacy.facts import Adjacency, Facts
from core.privacy.selection import slots_for
from core.queries.errors import MeanError
from core.queries.gradients import Question
from farthing.schemas.estimates import Bound

MOST_CANDIDATES: Final = 256
MOST_ASKED: Final = 500_000
"""Questions of all runs together."""
MOST_HESSIANS: Final = 10_000
"""Hessians of all candidates together, each with noise of its own: planning takes some two seconds for as many."""
PLANNED_SCORE_SHARE: Final = 0.2
LATE_ROOM: Final = 2.0**-16
"""Cost of the limits on numbers of runs, at most, in nats."""
COVER: Final = 1 + 2.0**-30
"""Above the roundings of a run's prices, which add up to those of its answers."""
PLANNED: Final = "is planned in a sweep: leave it out"

Worth = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Sweep(Spec):
    """Train candidate settings, and release the one whose noised mean error is least."""

    spends_mu: ClassVar = False
    takes_terms: ClassVar = True
    cited: ClassVar = "Papernot and Steinke, 2022"
    kind: Literal["sweep"] = "sweep"
    candidates: tuple[Candidate, ...] = Field(min_length=2, max_length=MOST_CANDIDATES)
    runs: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = Field(
        default=None, description="mean number of runs where it is drawn; null: as many as there are candidates"
    )
    way: Way | None = Field(
        default=None,
        description="selection: a number of runs is drawn, and one is released; composition: each candidate is run "
        "once; null: the one that leaves more to each run",
    )
    score_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="of each run's mu^2, for its score; null: planned"
    )
    mu: Mu | None = Field(default=None, description="of one run with its score; null: as large as the target allows")
    selection_mu: Worth | None = Field(default=None, description="planned, for comparison: `mu` under selection")
    composition_mu: Worth | None = Field(default=None, description="planned, for comparison: `mu` under composition")
    error_width: Worth | None = Field(default=None, description="planned: of a number's range, where errors are of one")

    @property
    def start(self) -> Literal["zeros"]:
        """Where every run begins."""
        return "zeros"

    @property
    def steps(self) -> int:
        """One: progress within a sweep would tell of its runs."""
        return 1

    def refuse(self, request: Request) -> None:
        """Refuse several processes.

        Raises:
            Invalid: with a JSON pointer.
        """
        if request.processes > 1:
            raise contradiction("/resources/processes", "is 1 in a sweep")

    def with_model(self, model: object, design: Design) -> Self:
        """Return the settings with each candidate's ridge, and the width of the errors of a number."""
        ridge = getattr(model, "ridge", 0.0)
        width = None
        if isinstance(model, LinearModel):
            lower, upper = design.target_bounds
            width = upper - lower
        if self.error_width not in (None, width):
            raise contradiction("/optimizer/error_width", PLANNED)
        filled = tuple(fill(one, ridge=ridge) for one in self.candidates)
        return self.model_copy(update={"candidates": filled, "error_width": width})

    def wrong_for(self, model: RegressionModel, facts: Facts) -> list[FieldError]:
        """Return why a model cannot be swept, or a candidate's method has not what it asks about."""
        if not isinstance(model, LogisticModel | LinearModel | MultinomialModel):
            return [
                FieldError(
                    "/model/kind", f"{model.kind} has no score here: sweeps are of logistic, linear, multinomial"
                )
            ]
        if facts.scale is not None:
            return [
                FieldError("/model/loss/joint", "is not for sweeps, whose errors are at a known scale: set it to false")
            ]
        bent = facts.curvature_bound is not None and facts.weak_convexity == 0 and not isinstance(model.weights, Clip)
        return [
            FieldError(f"/optimizer/candidates/{place}/optimizer/kind", "has no bounded Hessians here: take noisy_gd")
            for place, one in enumerate(self.candidates)
            if one.optimizer.inverts_hessians and not bent
        ]

    def steady(self, model: RegressionModel, design: Design, facts: Facts) -> Self:
        """Return the settings with each candidate's step size where nothing bounds the Hessians."""
        steadied = tuple(
            one.model_copy(update={"optimizer": one.optimizer.steady(model, design, with_ridge(facts, one))})
            for one in self.candidates
        )
        return self.model_copy(update={"candidates": steadied})

    def calibrated(self, facts: Facts, fits: Fits) -> Self:
        """Return the settings with the way to pay, and what one run is worth under each.

        Raises:
            Invalid: the target does not allow the given mu, or no noise that integers carry is enough.
        """
        runs, shared = self.runs or float(len(self.candidates)), self.score_share or PLANNED_SCORE_SHARE

        def most(way: Way, sizes: Sequence[int]) -> float:
            return 1 / smallest_sigma(lambda sigma: event_of(sizes, 1 / sigma, runs, way), fits)

        composition = most("composition", [1] * len(self.candidates))
        counted = self._counted(facts, composition * sqrt(1 - shared))
        try:
            selection = most("selection", [len(group) for group in groups_of(counted.candidates)])
        except Invalid:
            # The price of the choice itself passes some targets, such as a small rho.
            if self.way == "selection":
                raise
            selection = None
        way = self.way or ("selection" if selection is not None and selection >= composition else "composition")
        worth = composition if way == "composition" or selection is None else selection
        if self.mu is not None and self.mu > worth * (1 + SLACK):
            raise contradiction(
                "/optimizer/mu", f"is more than the target allows, {worth:.6g}; lower it, or leave it out"
            )
        found = {"runs": runs, "way": way, "score_share": shared, "mu": min(self.mu or worth, worth)}
        compared = {"selection_mu": selection, "composition_mu": composition}
        for name, value in compared.items():
            given = getattr(self, name)
            if given is not None and (value is None or not isclose(given, value, rel_tol=SLACK)):
                raise contradiction(f"/optimizer/{name}", PLANNED)
        return counted.model_copy(update=found | compared)

    def _counted(self, facts: Facts, mu: float) -> Self:
        """Return the settings with what says how candidates are grouped, as planned for runs worth `mu`."""
        filled = []
        for one, planned in zip(self.candidates, self._planned(facts, mu), strict=True):
            optimizer, plan = one.optimizer, planned.optimizer
            names: tuple[str, ...] = ("steps",)
            if isinstance(plan, NoisyNewtonPlan):
                names += ("hessians", "averaged", *DIVIDED)
            settled = {name: getattr(plan, name) for name in names}
            filled.append(one.model_copy(update={"optimizer": fill(optimizer, **settled)}))
        return self.model_copy(update={"candidates": tuple(filled)})

    def _planned(self, facts: Facts, mu: float) -> tuple[CandidatePlan, ...]:
        """Return every candidate's plan, its method worth `mu`, as if settings that a sweep plans were left open.

        Raises:
            Invalid: a candidate's settings contradict each other, or all ask for too many Hessians; with JSON pointers.
        """
        found, hessians = [], 0
        for place, one in enumerate(self.candidates):
            try:
                plan = plan_of(one, facts, mu)
                plan.check(Inference(intervals=False))
            except Invalid as error:
                raise _inside(error, place) from None
            except (ValueError, ArithmeticError):
                if has_plan(one, facts):
                    raise  # the job's figures are at fault, which the service names
                detail = "leads to numbers that cannot be computed with; choose less extreme figures"
                raise contradiction(f"/optimizer/candidates/{place}", detail) from None
            hessians += plan.hessians if isinstance(plan, NoisyNewtonPlan) else 0
            if hessians > MOST_HESSIANS:
                detail = f"ask for more than {MOST_HESSIANS} Hessians together: lower hessians or steps"
                raise contradiction("/optimizer/candidates", detail)
            assert one.ridge is not None, "taken from the model"
            found.append(CandidatePlan(optimizer=plan, ridge=one.ridge))
        return tuple(found)

    def plan(self, facts: Facts, mu: float) -> "SweepPlan":
        """Fill every candidate.

        Raises:
            Invalid: too many questions, or settings that a sweep plans otherwise; with JSON pointers.
        """
        del mu  # calibrated: the worth of one run is given
        assert self.mu is not None and self.score_share is not None, "calibrated before"  # noqa: PT018 - one reason
        candidates = self._planned(facts, self.mu * sqrt(1 - self.score_share))
        _refuse_others(self.candidates, candidates)
        values = vars(self) | {"candidates": candidates}
        plan = SweepPlan.model_construct(self.model_fields_set | {"candidates", "mu", "way"}, **values)
        if plan.most_asked(facts) > MOST_ASKED:
            detail = f"ask {plan.most_asked(facts)} questions in all slots, at most {MOST_ASKED}: lower runs or steps"
            raise contradiction("/optimizer/candidates", detail)
        return plan

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="sweep",
            title="Best of several settings",
            paper="Papernot, Steinke: Hyperparameter tuning with Renyi differential privacy (2022)",
            native="Renyi",
            adjacency=tuple(Adjacency),
            assumptions=(
                Assumption(text="each unit's gradient is bounded (the weights see to it)", checked="static"),
                Assumption(text="each unit's Hessian is bounded, where a candidate asks for one", checked="static"),
            ),
            returns="coefficients of one candidate with its noised mean error, or none; no intervals",
        )


class SweepPlan(Sweep, Plan):
    """A sweep with nothing open."""

    candidates: tuple[CandidatePlan, ...]  # type: ignore[assignment] # each closes what the candidate left open
    runs: float
    way: Way
    score_share: float
    mu: Mu

    def questions(self) -> tuple[Question, ...]:
        """Return every question that some run may ask, each once."""
        asked = (question for one in self.candidates for question in one.optimizer.questions())
        return tuple(dict.fromkeys((*asked, self.score())))

    def score(self) -> MeanError:
        """Return the question for the score of a run."""
        return MeanError(sigma=1 / (self.mu * sqrt(self.score_share)), width=self.error_width)

    def event(self) -> Repeated | Selected:
        """Return the price of all runs together, paid at once."""
        return event_of([len(group) for group in self.groups], self.mu, self.runs, self.way)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return one event: a payment for a part would tell how far the runs are."""
        del facts  # as above
        return (self.event(),)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Places of the candidates of each group of runs."""
        return (
            groups_of(self.candidates)
            if self.way == "selection"
            else tuple((at,) for at in range(len(self.candidates)))
        )

    def _most_runs(self) -> list[tuple[int, int]]:
        """Return a candidate of each group and how many of its runs are made."""
        event = self.event()
        slots = event.slots if isinstance(event, Selected) else (1,) * len(self.candidates)
        return [(group[0], most) for group, most in zip(self.groups, slots, strict=True)]

    def most_asked(self, facts: Facts) -> int:
        """Return the questions of all slots, a score for each, and the draw of each group's number."""
        del facts  # a run's length is its settings'
        return sum((1 + sum(asked_of(self.candidates[at]))) * most + 1 for at, most in self._most_runs())

    def passes(self, facts: Facts) -> int:
        """Return those of all slots, with two for each score."""
        total = 0
        for at, most in self._most_runs():
            gradients, hessians = asked_of(self.candidates[at])
            total += (2 + 2 * gradients + facts.dimension * hessians) * most
        return total

    def bound(self, facts: Facts) -> Bound:
        """Return that no theorem bounds the error of the best of several runs."""
        del facts  # none would help
        return Bound(
            quantity="distance of the private from the non-private estimate, in encoded units",
            value=None,
            confidence=None,
            trivial=2 * self.candidates[0].optimizer.radius,
            vacuous=True,
            source="none: the candidate is chosen by what the records say",
        )

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return the noise on a score, and the number of runs that are made, those that do not count included."""
        return {
            "score_noise": self.score().sigma * self.score().sensitivity(facts),
            "slots": sum(most for _, most in self._most_runs()),
        }


def event_of(sizes: Sequence[int], mu: float, runs: float, way: Way) -> Repeated | Selected:
    """Return the price of a sweep whose every run costs no more than a mechanism of rho mu^2/2.

    Args:
        sizes: number of candidates in each group.
        mu: of one run.
        runs: mean number of runs.
        way: to pay.
    """
    run, candidates = Zcdp(rho=mu**2 / 2 * COVER), sum(sizes)
    if way == "composition":
        return Repeated(event=run, times=candidates)
    means = tuple(runs * size / candidates for size in sizes)
    return Selected(event=run, means=means, slots=tuple(slots_for(mean, LATE_ROOM / len(sizes)) for mean in means))


def _refuse_others(given: Sequence[Candidate], planned: Sequence[CandidatePlan]) -> None:
    """Refuse settings of candidates that a sweep plans, but for those that say what is planned.

    Raises:
        Invalid: with JSON pointers.
    """
    errors = []
    for place, (one, plan) in enumerate(zip(given, planned, strict=True)):
        fields = type(one.optimizer).model_fields
        for name in sorted(fields.keys() - OPEN[one.optimizer.kind]):
            value, found = getattr(one.optimizer, name), getattr(plan.optimizer, name)
            near = isinstance(value, float) and isinstance(found, float) and isclose(value, found, rel_tol=SLACK)
            if not near and value not in (fields[name].default, found):
                errors.append(FieldError(f"/optimizer/candidates/{place}/optimizer/{name}", PLANNED))
    if errors:
        raise Invalid(f"{errors[0].pointer} {PLANNED}.", *errors)


def _inside(error: Invalid, place: int) -> Invalid:
    """Return a refusal of a candidate's settings with the pointers of the sweep."""
    at = f"/optimizer/candidates/{place}"
    moved = [FieldError(f"{at}{one.pointer}", one.detail) for one in error.fields]
    return Invalid(f"Candidate {place}: {error.detail}", *moved)
