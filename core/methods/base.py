"""The contract of a method: a spec that a request gives, and a plan with nothing open that is priced, stored and run.

A method is a package with two modules. `spec.py` has a subclass of `Spec`, whose fields may be left open, and one of
`Plan` that closes them: a plan redeclares a field that planning fills, without None. `fit.py`, the only module with
torch, has `iterate(plan, oracle, ...)`. `core.methods.registry` lists the specs and refuses, when it is imported, one
that lacks a part.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Self, TypeVar

from pydantic import Field

from core.base.errors import FieldError
from core.inference.checks import Learned
from core.inference.settings import Inference, Shares
from core.losses.assumption import Assumption
from core.models.design import Design
from core.models.kinds import AnyModel, RegressionModel
from core.models.outlook import Array, Outcome, Outlook, Residuals, Signal
from core.privacy.arithmetic import AnyStart, closed, fill
from core.privacy.calibration import Fits
from core.privacy.events import Event
from core.privacy.facts import Facts, Frozen
from core.queries.gradients import Question
from core.queries.sampling import FullSampling, Sampling, StreamSampling
from farthing.schemas.estimates import Bound, ForeseenFlag, LowerBound, Regimes

P = TypeVar("P", bound="Plan")
PLANNED_SHARES: Final = Shares(estimate=0.85, curvature=0.08, score=0.07)
"""Of methods without a plan of their own for the matrices."""


class Card(Frozen):
    """A method's entry in the catalogue."""

    kind: str
    title: str
    paper: str
    native: str = Field(description="the privacy notion its price is stated in")
    adjacency: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    returns: str
    default_for: tuple[str, ...] = Field(
        default=(), description="kinds of models that it fits where a job names no method"
    )


class ExcessFigures(NamedTuple):
    """Figures of a plan whose bound is one of the excess risk, as a forecast shows them."""

    lower: LowerBound | None
    rounds: int | None
    noise: float | None
    regimes: Regimes | None = None


class Request(NamedTuple):
    """A job's request beside its method: a method may refuse it, or fill open settings from it."""

    model: AnyModel
    inference: Inference
    released: int
    """Number of released models that the job is about."""
    processes: int


class Spec(Frozen, ABC):
    """A method's settings in a request: every field but its kind may be left open."""

    cited: ClassVar[str]
    """Authors and year, as a methods section cites the method; empty: nothing is cited."""

    row_words: ClassVar[str | None] = None
    """Phrase for the bound on rows of a method that takes no weights; None: the model's weights bound them."""

    offers_intervals: ClassVar[bool] = False
    """True: a covariance of its estimate is derived; jobs that ask other methods for intervals are refused."""

    checks_intervals: ClassVar[bool] = False
    """True: its answers check its intervals, and those that fail are withheld; of other methods a request accepts them
    unchecked."""

    has_covariance: ClassVar[bool] = False
    """True: the estimate comes with its covariance, and a job asks for no matrices after it."""

    federates: ClassVar[bool] = False
    """True: several sites may follow it together, each on its own records; others are refused by name."""
    per_client: ClassVar[frozenset[str]] = frozenset({"batch"})
    """The fields that differ between the sites of a federated job, in proportion to their units."""
    plans_by: ClassVar[str] = "kind"
    """The field that tells a method's plans apart, where its `plan` returns one of several classes."""
    about: ClassVar[tuple[int, int]] = (0, 0)
    """Least and largest number of released models that a job of this method is about."""
    bounds_models: ClassVar[bool] = False
    """True: its release is an error bound of the released model that it is about, and is shown beside that model."""
    given: ClassVar[tuple[Literal["points", "looked"], ...]] = ()
    """Arguments of its `iterate` beside plan and oracle: the released points that a job is about, or a look."""
    estimates: ClassVar[bool] = True
    """True: it fits a model; a description answers questions, and estimates nothing."""
    inverts_hessians: ClassVar[bool] = False
    """True: its steps need Hessians that are bounded, and positive semidefinite without their noise."""
    begins: ClassVar[bool] = True
    """True: it steps away from `start`."""
    bounds_excess: ClassVar[bool] = False
    """True: its theorem bounds the excess risk; jobs that want one of another method are refused."""
    spends_mu: ClassVar[bool] = True
    """True: it spends its mu; False: its noise is calibrated for the privacy target itself."""
    takes_terms: ClassVar[bool] = False
    """True: it takes sampling weights, and an offset in a log or logit link."""
    of_networks: ClassVar[tuple[str, ...] | None] = None
    """The constants of a network's loss that a request must declare, for nothing is known of them; None: it trains no
    network."""
    free_of_constants: ClassVar[str] = "clipped_sgd"
    """The method, or setting, for a network whose constants nobody declares."""
    needs_apart: ClassVar[bool] = False
    """True: its claim about a model holds only on records that the model has not seen; see `core.service.about`."""

    if TYPE_CHECKING:  # fields or properties of each spec; the registry refuses one that lacks them

        @property
        def kind(self) -> str:
            """Name in requests: a field whose type is the literal that is its default."""

        @property
        def start(self) -> AnyStart | None:
            """First iterate in encoded units; None: the method plans it."""

        @property
        def steps(self) -> int | None:
            """Number of steps; None: open."""

        @property
        def mu(self) -> float | None:
            """Part of the job's mu that the request gives to the estimate; None: planned, or never in terms of mu."""

    def refuse(self, request: Request) -> None:
        """Refuse what this method does not offer; most offer all that a model has.

        Raises:
            Invalid: with JSON pointers.
        """

    def refuse_excess(self, facts: Facts) -> None:
        """Refuse a wanted excess risk where nothing bounds it with these settings.

        Raises:
            Invalid: with JSON pointers.
        """

    def with_request(self, request: Request) -> Self:
        """Return the settings with open values filled from the job; given values stay."""
        del request
        return self

    def model_of(self, model: AnyModel) -> AnyModel:
        """Return the model as this method fits it."""
        return model

    def with_facts(self, facts: Facts, design: Design) -> Facts:
        """Return the public facts with those that this method needs beside."""
        del design
        return facts

    def with_model(self, model: AnyModel, design: Design) -> Self:
        """Return the settings with what follows from the filled model and its encoding.

        Raises:
            Invalid: the method is not for a model of this size, or the settings say otherwise; with JSON pointers.
        """
        del model, design
        return self

    def with_losses_of(self, planned: "Spec") -> Self:
        """Return the settings with the loss that the same method was planned for, of another dataset's job."""
        del planned
        return self

    def with_inference(self, inference: Inference) -> Self:
        """Return the settings with what follows from the intervals that are asked for."""
        del inference
        return self

    def steady(self, model: RegressionModel, design: Design, facts: Facts) -> Self:
        """Return the settings with a step size for losses whose second derivatives nothing bounds in all points."""
        del model, design, facts
        return self

    def calibrated(self, facts: Facts, fits: Fits) -> "Spec":
        """Return the settings with the noise that a privacy target asks for, where no mu can say it.

        Answers about samples have a price at every Renyi order and no mu; `fits` says whether the target allows what a
        job draws. Other methods are planned from a mu and stay as they are.

        Raises:
            Invalid: the target allows no such noise, or not the noise that was given.
        """
        del facts, fits
        return self

    def declared_of_networks(self) -> tuple[str, ...]:
        """Return the constants that a request must declare of a network's loss with these settings."""
        return self.of_networks or ()

    def planned_shares(self, facts: Facts, mu: float) -> Shares:
        """Return the division of a job's mu^2 between the estimate and the two matrices of its intervals."""
        del facts, mu
        return PLANNED_SHARES

    def equally(self, plan: "Plan") -> Self:
        """Return the settings with the number of steps of a plan, each answer worth the same."""
        return fill(self, steps=plan.steps)

    def alternatives(self, usual: "Plan") -> Sequence[Self]:
        """Return the settings to choose among by predicted widths, the usual plan's among them; none: no choice."""
        del usual
        return ()

    def wrong_for(self, model: RegressionModel, facts: Facts) -> list[FieldError]:
        """Return why a regression's records have not what this method asks about."""
        del model, facts
        return []

    @abstractmethod
    def plan(self, facts: Facts, mu: float) -> "Plan":
        """Return the plan for a total of `mu`-GDP, its open fields filled from public facts."""

    @classmethod
    @abstractmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""

    def closed(self, plan: type[P], **found: object) -> P:
        """Return the plan that has this spec's fields, those that are open taken from `found`.

        Raises:
            PrivacyInvariantError: a field that the plan closes is open still.
        """
        return closed(self, plan, **found)


class Plan(Spec):
    """A method's spec with nothing open: it is priced, stored with the job, and handed to `fit`."""

    @abstractmethod
    def questions(self) -> Sequence[Question]:
        """Return every question that a run may ask, each at least once: the very values that are priced and asked."""

    @abstractmethod
    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return what each step may draw, in order; steps are paid for one after the other."""

    @abstractmethod
    def bound(self, facts: Facts) -> Bound:
        """Return what the theory predicts."""

    def check(self, inference: Inference) -> None:
        """Refuse settings that contradict one another, or the intervals that are asked for.

        Raises:
            Invalid: with JSON pointers.
        """

    def curvature_known(self, facts: Facts) -> float:
        """Return one over the variance of what its own answers say of an entry of the last Hessian; 0: nothing."""
        del facts
        return 0.0

    def predict_widths(self, outlook: Outlook, facts: Facts, inference: Inference) -> tuple[Array, Array] | None:
        """Return the widths of private and non-private intervals in declared units, shape (q,) each; None: unknown.

        Args:
            outlook: the public reference.
            facts: of the job.
            inference: nothing open.

        Raises:
            LinAlgError: the reference's matrices have no inverse.
        """
        del outlook, facts, inference
        return None

    def demerit(self, outlook: Outlook, facts: Facts, inference: Inference) -> float:
        """Return the figure that plans are compared by: smaller is better; arguments as of `predict_widths`."""
        del outlook, facts, inference
        return inf

    def widening_by(self, signal: Signal, facts: Facts) -> float | None:
        """Return how many times as wide as without privacy intervals are with such an outcome; None: unknown."""
        del signal, facts
        return None

    def foreseen_flags(self, outcome: Outcome, facts: Facts) -> tuple[ForeseenFlag, ...]:
        """Return the flags of a whole job that public figures foresee; a method without checks has none."""
        del outcome, facts
        return ()

    def price_notes(self, facts: Facts, residuals: Residuals) -> list[str]:
        """Return sentences on what takes width beside the budget, for an estimate."""
        del facts, residuals
        return []

    def learned_errors(self, facts: Facts, learned: Learned, theta: Array, to_declared: Array) -> tuple[float, ...]:
        """Return the standard errors that are foreseen once columns and outcome have been looked at, in declared units.

        Args:
            facts: public.
            learned: by the job.
            theta: the estimate in encoded units, shape (p,).
            to_declared: from encoded units, shape (p, p).
        """
        raise NotImplementedError(f"{self.kind} looks at nothing")

    def excess(self, facts: Facts) -> ExcessFigures | None:
        """Return what a theorem says of the excess risk beside the bound; None: the bound is about something else."""
        del facts
        return None

    @property
    def points(self) -> int | None:
        """Number of released points that it was priced for; None: one for each of its models."""
        return None

    def federated_bound(self, sites: Sequence[tuple["Plan", Facts]]) -> Bound:
        """Return the theory's prediction for the mean of several sites' answers.

        Args:
            sites: plan and facts of each, by place.
        """
        alone = self.bound(sites[0][1])
        return Bound(
            quantity=alone.quantity,
            value=None,
            confidence=None,
            trivial=alone.trivial,
            vacuous=True,
            source="none: no theorem here is about several sites; each site's price is that of a job of its own",
        )

    def figures(self, facts: Facts) -> dict[str, float | int | None]:
        """Return what an estimate shows beside the plan itself; most methods have nothing to add."""
        del facts  # where there is something, it follows from them
        return {}

    def sampling(self, facts: Facts) -> Sampling:
        """Return which units its questions read."""
        del facts  # all of them, however many there are
        return FullSampling()

    def most_asked(self, facts: Facts) -> int:
        """Return the most questions that one run asks from its start to its end, whatever the answers are.

        As many as its schedule has events, or as a stream has batches; methods whose schedule stands for a budget, and
        not for questions, say so.
        """
        sampling = self.sampling(facts)
        if isinstance(sampling, StreamSampling):
            # The smallest batch gives the most questions; negating twice rounds up.
            return sampling.passes * -(-facts.units // min(sampling.batches))
        return len(self.schedule(facts))

    def passes(self, facts: Facts) -> int:
        """Return how many products of a vector with all records' rows the worst case takes.

        A mean gradient takes two: rows times theta, then residuals times rows. That is what each event is taken for
        here; methods whose schedule has others say so.
        """
        return 2 * len(self.schedule(facts))
