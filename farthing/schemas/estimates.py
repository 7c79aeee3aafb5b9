"""Estimates: the price of a job, its plan, and the predictions of its theory; no record is read."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from farthing.schemas.base import Shown, View
from farthing.schemas.jobs import CostFigures, MethodSource
from farthing.schemas.provenance import Declared, Drawn, Paid

JobCheck = Literal["not converged", "too many coefficients", "separated", "too few events"]
"""Said of a whole job: none of its coefficients has an interval then."""


class Bound(View):
    """A theorem's prediction, beside the figure that is known without it."""

    quantity: str = Field(description="the bounded quantity, in words and units")
    value: float | None = Field(description="null where the theorem's conditions are not met")
    confidence: float | None
    trivial: float = Field(description="the bound known without any training")
    vacuous: bool
    source: str


class RangedWidth(View):
    """One coefficient's interval in declared units: a width as predicted, and between which ends it may lie."""

    name: str
    width: float | None = Field(
        description="median width of the private interval; null, as the next two: it hangs on counts' mean, which "
        "nobody has said"
    )
    nonprivate_width: float | None
    ratio: float | None
    lowest: float = Field(description="no median width is below it, whatever the columns are within what is declared")
    highest: float | None = Field(
        description="nor above it, as long as others explain at most `assume.explained` of a column (R^2; .75); null: "
        "no upper end until something is declared or learned"
    )


class ForeseenFlag(View):
    """A flag that the job may end with, and so without intervals."""

    flag: JobCheck
    when: Literal["in any case", "as predicted", "at worst"] = Field(
        description="at worst: for some value of what is neither declared nor assumed, such as a rare outcome"
    )


class UsefulFrom(View):
    """From where on private intervals are at most twice as wide as non-private ones, in the geometric mean."""

    mu: str | None = Field(description="at this number of units; null: at no privacy target, or not known")
    units: int | None = Field(description="at this privacy target; null: at no number of units, or not known")


class Forecast(View):
    """Interval widths as predicted for the public reference design; no record was read."""

    level: float
    coefficients: tuple[RangedWidth, ...]
    informative: bool = Field(
        description="whether private intervals are at most twice as wide as non-private ones wherever in their ranges "
        "widths lie; false where the outcome may be worth any little"
    )
    flags: tuple[ForeseenFlag, ...] = Field(
        default=(), description="with which the job may end, without intervals then; of methods that check themselves"
    )
    useful_from: UsefulFrom
    unknown_rate: str | None = Field(
        default=None,
        description="target of counts whose mean nobody has said: widths are given as ranges alone until `centre` is "
        "declared with it, or `base_rate` assumed",
    )
    spread: tuple[str, ...] = Field(
        default=(),
        description="numbers taken as spread over their declared range, for want of a declared deviation, or one in "
        "`assume`",
    )


class Reached(View):
    """Needs of a wanted width."""

    coefficient: str
    at_most: float
    predicted: float = Field(description="width of the plan that is shown")
    met: bool = Field(description="whether that is at most what is wanted")
    highest: float | None = Field(
        default=None, description="upper end of that width; null: none until something is declared or learned"
    )
    power: float | None = Field(
        default=None,
        description="the power for the wanted effect at the predicted width; null: no effect was given",
    )
    detectable: float | None = Field(
        default=None, description="the smallest effect that would be found as often as wanted; null: of no effect"
    )
    nonprivate_width: float
    mu: str | None = Field(description="the smallest at this number of units; null: sampling alone is wider")
    units: int | None = Field(description="the smallest number at the shown privacy target; null: above 10^10")


class LowerBound(View):
    """Some problem with these constants forces so much expected excess risk on every private method."""

    value: float = Field(ge=0)
    exact: bool = Field(description="false: an order of magnitude, its constant and logarithms unknown")
    source: str


class Regimes(View):
    """Bounds of adaptive gradient descent by what a run is ended by; the largest of them holds for all.

    The first two fall with n as its kappa/2-th power and its 2 kappa/(4 - kappa)-th: with few parameters the first is
    the larger one, however many records there are.
    """

    noise_on_norms: float = Field(description="decides with few parameters")
    noise_on_gradients: float = Field(description="decides with many")
    small_gradient: float
    steps_run_out: float


class ExcessForecast(View):
    """Promised excess risk, beside that of the untrained start and the lower bound for every private method."""

    value: float | None = Field(description="at most so much above the least mean loss; null: nothing is promised")
    confidence: float | None
    trivial: float | None = Field(description="known without any training; null: unknown")
    vacuous: bool
    lower: LowerBound | None = Field(description="null: none is known of such problems")
    rounds: int | None = Field(description="null: the method has none")
    noise: float | None = Field(description="on each coordinate of the first gradient; null: decided on the way")
    regimes: Regimes | None = Field(default=None, description="of adaptive_gd with a condition")


class ReachedExcess(View):
    """Needs of a wanted excess risk."""

    at_most: float
    predicted: float | None = Field(description="of the plan that is shown; null: nothing is promised of it")
    met: bool = Field(description="whether that is at most what is wanted")
    mu: str | None = Field(description="the smallest at this number of units; null: none is enough")
    rho: str | None = Field(description="that budget in zero-concentrated terms")
    units: int | None = Field(description="the smallest number at the shown privacy target; null: none is enough")


class EstimateCost(CostFigures):
    """Cost of a planned job, and the reservation beside it that pays lost chunks again."""

    retry_allowance: CostFigures
    """Reserved beside the price, and given back where it is not needed."""
    delta: Declared[str]
    """The scope's, at which `epsilon_alone` holds."""


class SiteEstimate(View):
    """Cost of a planned federated job for one site."""

    dataset: Drawn[str]
    """The site's, `ds_...`."""
    rows: Declared[int]
    """Its units, public by the owner's word."""
    plan: Declared[dict[str, Any]]
    """The method's settings as planned for it."""
    cost: EstimateCost
    """Charge to its own scope."""
    fits: Paid[bool]
    """Whether its budget admits its part now."""
    jobs_that_still_fit: Paid[int]
    """Number of such draws, one after the other."""


class EstimateView(Shown):
    """Cost of a planned job, and the theory's predictions; no record was read.

    Of a federated job each site has its own price, and the plan is what they have in common. `if_lost` says, in words
    and of a job on one dataset, what becomes of it if its worker is lost.
    """

    cost: EstimateCost | None
    """At the ledger's present head; null of a federated job, whose sites have one each."""
    method: Declared[MethodSource]
    """That would run, the default where the request names none, and whose it is."""
    plan: Declared[dict[str, Any]]
    """The settings that would run, nothing left open."""
    bound: Declared[Bound]
    """Promise of the method's theorem."""
    fits: Paid[bool]
    """Whether the budget, and the caller's cap, admit it now."""
    jobs_that_still_fit: Paid[int]
    """Number of such draws, one after the other."""
    steps: Declared[int]
    """That it would take."""
    chunks: Declared[int]
    """In which it is paid, each before it reads."""
    rows: Declared[int]
    """Units it would read, public by the owner's word."""
    coefficients: Declared[int]
    """That are estimated, encoded."""
    compute: Declared[dict[str, float]]
    """Work: multiplications, and bytes of all records."""
    head: Drawn[str | None]
    """Of the ledger when it was priced; null of a federated job, and of data that are not uploaded yet."""
    sites: list[SiteEstimate] | None = None
    """Each site's price, by place; null of a job on one dataset."""
    prediction: Declared[Forecast | None] = None
    """Interval widths to expect; null without intervals, and of a federated job."""
    excess: Declared[ExcessForecast | None] = None
    """Promised excess risk; null of methods that promise none."""
    goal: Declared[Reached | ReachedExcess | None] = None
    """Needs of the wanted width or excess risk; null where none was requested."""
    if_lost: Declared[str | None] = None
    """Effect of a lost worker on it; null of a federated job."""
    notes: Declared[list[str]] = Field(default_factory=list)
    """Sentences about unchecked intervals, and what interactions, offset or sampling weights do to coefficients."""

    def plot(self, axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
        """Draw the widths that it predicts with matplotlib, on given axes or new ones, and return them."""
        from farthing.plots import plot_estimate  # noqa: PLC0415 - the service has no use for it

        return plot_estimate(self, axes)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield "method", self.plan.get("kind")
        if self.cost is not None:
            yield from (("budget_share", self.cost.budget_share), ("epsilon", self.cost.epsilon_alone))
        yield from (("fits", self.fits), ("steps", self.steps), ("rows", self.rows))
