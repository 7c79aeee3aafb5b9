"""Estimates of a job's cost, as the service answers, typed."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from farthing.job_views import Cost
from farthing.views import Method, View


class EstimateCost(Cost):
    """The estimated cost of a job, and the reserve beside it that would pay for lost chunks again."""

    retry_allowance: Cost | None = None
    """Reserved beside the price, and given back where it is not needed; None of a federated job."""
    delta: str | None = None
    """The scope's, at which `epsilon_alone` holds; None: not given."""


class Bound(View):
    """The theory's prediction, beside the bound that is known without training."""

    quantity: str
    """The bounded quantity, in words and units."""
    value: float | None
    """The bound; None where the theorem's conditions are not met."""
    confidence: float | None
    """Probability with which it holds; None: none is stated."""
    trivial: float | None
    """Known without any training; None: unknown."""
    vacuous: bool
    """Whether it says no more than `trivial`."""
    source: str
    """Paper and theorem."""


class PredictedWidth(View):
    """The width of a coefficient's interval as public facts predict it, with privacy and without."""

    name: str
    """The coefficient's."""
    width: float | None
    """In units of the declared columns; None: the mean of counts is unknown."""
    nonprivate_width: float | None
    """The same without privacy noise; None: the mean of counts is unknown."""
    ratio: float | None
    """The one over the other; None: the mean of counts is unknown."""
    lowest: float | None = None
    """No median width is below it, whatever the columns are within what is declared; None: not given."""
    highest: float | None = None
    """Nor above it; None: no upper end until something is declared, assumed or learned."""


class UsefulFrom(View):
    """From where on private intervals are at most twice as wide as non-private ones; null: from nowhere."""

    mu: str | None
    """At this number of units; None: at no privacy target."""
    units: int | None
    """At this privacy target; None: at no number of units."""


class ForeseenFlag(View):
    """A flag that a job may end with, and so without intervals."""

    flag: str
    """In words, as a summary has it."""
    when: str
    """in any case, as predicted, or at worst."""


class Prediction(View):
    """Interval widths as predicted before any record is read."""

    level: float
    """Of the intervals, such as 0.95."""
    coefficients: list[PredictedWidth]
    """One line each."""
    informative: bool | None = None
    """True if intervals are at most twice as wide as non-private ones in all of their ranges; None: not given."""
    flags: list[ForeseenFlag] = Field(default_factory=list)
    """With which the job may end; of methods that check themselves."""
    useful_from: UsefulFrom
    """Where intervals begin to be worth having."""
    unknown_rate: str | None = None
    """Target of counts whose mean is neither declared nor assumed, so that widths are ranges alone; None: none."""
    spread: list[str] = Field(default_factory=list)
    """Columns taken as spread over their whole declared range, for want of a deviation in the job's `assume`."""


class Goal(View):
    """The requirements of a wanted width."""

    coefficient: str
    """The coefficient of the interval."""
    at_most: float
    """Width that is wanted, in declared units."""
    predicted: float
    """Width of the plan that is shown, in declared units."""
    met: bool
    """Whether that is at most what is wanted."""
    highest: float | None = None
    """Upper end of that width; None: none is known."""
    power: float | None = None
    """Probability that the plan that is shown finds the wanted effect; None: a width was wanted."""
    detectable: float | None = None
    """Smallest effect that it finds as often as wanted, in declared units; None: a width was wanted."""
    nonprivate_width: float
    """Width without privacy noise, in declared units."""
    mu: str | None
    """The smallest at this number of units; None: sampling alone is wider."""
    units: int | None
    """The smallest number at the shown privacy target; None: above 10^10."""


class ExcessGoal(View):
    """The requirements of a wanted excess risk."""

    at_most: float
    """That is wanted, in encoded units."""
    predicted: float | None
    """Of the plan that is shown; None: nothing is promised of it."""
    met: bool
    """Whether that is at most what is wanted."""
    mu: str | None
    """The smallest at this number of units; None: none is enough."""
    rho: str | None
    """The same in zero-concentrated terms; None: none is enough."""
    units: int | None
    """The smallest number at the shown privacy target; None: none is enough."""


class Excess(View):
    """The promise about the excess risk, beside the trivial bound and the bound that no private method beats."""

    value: float | None
    """At most so much above the least mean loss; None: nothing is promised."""
    confidence: float | None
    """Probability with which it holds; None: it is a mean."""
    trivial: float | None
    """Known without any training; None: unknown."""
    vacuous: bool
    """Whether it says no more than `trivial`."""
    lower: dict[str, Any] | None = None
    """The bound that no private method beats; None: none is known of such problems."""
    rounds: int | None = None
    """Of the method; None: it has none."""
    noise: float | None = None
    """On each coordinate of the first gradient; None: decided on the way."""
    regimes: dict[str, float] | None = None
    """Of adaptive_gd with a condition, in encoded units; None of others."""


class SiteEstimate(View):
    """The cost of a federated job to one site."""

    dataset: str
    """The site's, `ds_...`."""
    rows: int
    """Its units, public by the owner's word."""
    plan: dict[str, Any]
    """The method's settings as planned for it."""
    cost: EstimateCost
    """The charge to its own scope."""
    fits: bool
    """Whether its budget admits its part now."""
    jobs_that_still_fit: int | None = None
    """Number of such jobs, one after the other; None: not given."""


class Estimate(View):
    """The price of a job, its plan, and what a lost worker does to it; of a federated one the price is in `sites`."""

    # A federated job has null here; an empty object leaves callers one type.
    cost: Annotated[EstimateCost, BeforeValidator(lambda cost: cost or {})]
    """At the ledger's present head; without figures for a federated job, whose sites have one each."""
    method: Method | None = None
    """That would run, the default where the job names none; None: not given."""
    plan: dict[str, Any]
    """The settings that would run, nothing left open."""
    bound: Bound | None
    """The promise of the method's theorem; None: not given."""
    fits: bool
    """Whether the budget, and the caller's cap, admit it now."""
    jobs_that_still_fit: int | None
    """Number of such jobs, one after the other; None: not given."""
    sites: list[SiteEstimate] | None = None
    """Each site's price, by place; None of a job on one dataset."""
    compute: dict[str, float] = Field(default_factory=dict)
    """Work: multiplications, and bytes of all records."""
    prediction: Prediction | None = None
    """Interval widths to expect; None without intervals, and of a federated job."""
    excess: Excess | None = None
    """The promise about the excess risk; None of methods that promise none."""
    goal: Goal | ExcessGoal | None = None
    """The requirements of the wanted width or excess risk; None where none was asked for."""
    chunks: int = 0
    """In which it is paid, each before it reads."""
    if_lost: str | None = None
    """Its fate if its worker is lost; None of a federated job."""
    notes: list[str] = Field(default_factory=list)
    """Changes of the coefficients' meaning by interactions, an offset or sampling weights; a sentence each."""
