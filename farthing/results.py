"""The answers of a released model, typed."""

from typing import Any

from pydantic import ConfigDict, Field

from farthing.schemas.base import View
from farthing.schemas.jobs import MethodSource


class Answer(View):
    """An answer that the methods of the service shape: members that are not named here are kept."""

    model_config = ConfigDict(extra="allow")


class Banded(Answer):
    """An interval at one level of several."""

    level: float
    """Such as 0.95."""
    interval: tuple[float | None, float | None] | None
    """Its ends; None where no float holds them."""


class Coefficient(Answer):
    """One line of a coefficient table, in the units of the declared columns."""

    name: str
    """As the job's design names it, `column[level]` of a category."""
    estimate: float | None
    """In units of the declared columns; None where no float holds it."""
    std_error: float | None
    """Privacy noise counted; None where no intervals were asked for."""
    z: float | None
    """Estimate over standard error; None without one."""
    p_value: float | None
    """Two-sided, that it is 0; None without a standard error."""
    interval: tuple[float | None, float | None] | None
    """At the first level; None without a standard error."""
    intervals: tuple[Banded, ...] = ()
    """At every level, where several were asked for; else empty."""
    flags: tuple[str, ...] = ()
    """Faults that a method found in it, in words; all but `clamped` and `weighted` withhold its interval."""
    foreseen_error: float | None = None
    """The standard error that the plan foresees with what the job learned; None of methods that learn nothing."""
    kept_weight: float | None = None
    """The part of its column's spread that far records' lower weights keep, 0 to 1; None: not counted."""


class Scale(Answer):
    """A residual scale that was estimated with the coefficients, in the target's units."""

    estimate: float
    """In the target's units."""
    std_error: float | None = None
    """The same units; None where none is known."""
    interval: tuple[float | None, float | None] | None = None
    """At the first level; None without a standard error."""


class Layer(Answer):
    """A layer of a network: the shape that it makes of a record, and the number of its parameters."""

    place: str
    """Such as `0`, or `2.1` inside a residual."""
    kind: str
    """Such as linear or conv2d."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Its own."""
    output: tuple[int, ...]
    """Shape of what it makes of one record."""
    parameters: int
    """Numbers in it."""


class SitePromise(Answer):
    """The promise of one site of a federated job, by its own ledger, to the people of its own scope and to no others.

    All but place and state are None where this key may not see the site; `privacy` also where it was asked nothing.
    """

    place: int
    """Of the site in the federated job, from 0."""
    state: str
    """Of its own job: one that was lost has failed or was cancelled."""
    dataset: str | None = None
    """`ds_...`; None: not for this key to see."""
    scope: str | None = None
    """`sc_...`: the people to whom it promises; None: not for this key to see."""
    job: str | None = None
    """The site's own, `job_...`; None: not for this key to see."""
    privacy: dict[str, Any] | None = None
    """The promise of all that its ledger has charged it: mu, rho, epsilon, delta, adjacency, label, implies; None: was
    asked nothing, or not for this key to see."""


class SweepChoice(Answer):
    """The candidate that a sweep released, and its score; nothing says how many candidates were trained."""

    candidate: int | None
    """Its place among the candidates, from 0; None: no run was drawn, or each that was drawn failed."""
    candidates: int
    """Number of candidates."""
    optimizer: dict[str, Any] | None = None
    """Its method and settings, nothing left open; None without a candidate."""
    ridge: float | None = None
    """Its ridge; None without a candidate."""
    score: float | None = None
    """Mean error, from 0 to 1, with noise: the least of several, so too small on average; None without a candidate."""
    score_scale: float
    """Standard deviation of the noise on a score."""
    way: str
    """The way it was priced, selection or composition."""


class Summary(Answer):
    """A coefficient table with private intervals and what it cost; `notes` says what to be wary of.

    Of a network, its layers and how it was trained instead of coefficients. Of a federated job's model, `sites` has
    each site's own promise, and `privacy` what each that stayed to the end promises at least.
    """

    model: str
    """`mdl_...`."""
    job: str
    """That released it, `job_...`."""
    optimizer: str
    """The method."""
    method: MethodSource | None = None
    """Its name and whose it is; None of a network."""
    n: int
    """Units that were declared, public by the owner's word; excluded records are among them."""
    complete: dict[str, Any] | None = None
    """Records with all values that the model needs: `estimate`, `interval` and `level`; None: nobody counted them."""
    level: float | None = None
    """Of the intervals in the table; None of a network."""
    levels: tuple[float, ...] = ()
    """Each level that was asked for; empty of a network."""
    correction: str | None = None
    """Way in which intervals count the noise of the last steps; None where there is none."""
    coefficients: list[Coefficient]
    """One line each; none of a network."""
    scale: Scale | None = None
    """Of residuals, where it was estimated; None where it was not."""
    flags: dict[str, Any] = Field(default_factory=dict)
    """Events that the fit met on its way, as numbers and truths."""
    notes: tuple[str, ...] = ()
    """Cautions, in sentences."""
    sweep: SweepChoice | None = None
    """The candidate that won; None where the job was no sweep."""
    privacy: dict[str, Any] = Field(default_factory=dict)
    """The promise: mu, rho, epsilon, delta, adjacency, and what it implies."""
    sites: tuple[SitePromise, ...] = ()
    """The promise of each site of a federated job, by place; empty of other jobs."""
    kind: str | None = None
    """Of the model, such as logistic; None: not given."""
    layers: tuple[Layer, ...] = ()
    """Of a network; else empty."""
    parameters: int | None = None
    """Numbers of a network; None of other models."""
    trained_parameters: int | None = None
    """Those of them that training changed; None of other models."""
    trained: str | None = None
    """The parts that training changed, in words; None of other models."""
    start: str | None = None
    """Where a network's training started, in words; None of other models."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Of a network: clip, noise, batch; else empty."""


class Interval(Answer):
    """A coefficient's interval."""

    name: str
    """The coefficient's."""
    interval: tuple[float | None, float | None] | None
    """At the first level, in declared units; None where none is known."""
    intervals: tuple[Banded, ...] = ()
    """At every level, where several were asked for; else empty."""


class OddsRatio(Answer):
    """exp(coefficient) of a logistic or multinomial model; null where no float holds it."""

    name: str
    """The coefficient's."""
    odds_ratio: float | None
    """For a change by one declared unit; None where no float holds it."""
    interval: tuple[float | None, float | None] | None
    """At the first level; None where none is known."""
    intervals: tuple[Banded, ...] = ()
    """At every level, where several were asked for; else empty."""


class RateRatio(Answer):
    """exp(coefficient) of a Poisson model; null where no float holds it."""

    name: str
    """The coefficient's."""
    rate_ratio: float | None
    """For a change by one declared unit; None where no float holds it."""
    interval: tuple[float | None, float | None] | None
    """At the first level; None where none is known."""
    intervals: tuple[Banded, ...] = ()
    """At every level, where several were asked for; else empty."""


class Equivalence(Answer):
    """Two one-sided tests that something lies within a margin."""

    margin: float
    """In the units of what is tested."""
    p_value: float
    """Larger of the two tests'."""


class Contrast(Answer):
    """A linear combination of coefficients."""

    weights: dict[str, float]
    """By coefficient."""
    estimate: float
    """In declared units."""
    std_error: float | None
    """The same units; None where none is known."""
    z: float | None
    """Estimate less the value, over the standard error; None where that is 0 or unknown."""
    p_value: float | None
    """Of the asked alternative; None without z."""
    interval: tuple[float, float] | None
    """At the first level; None where none is known."""
    equivalence: Equivalence | None = None
    """Whether it lies within a margin; None where none was given."""
    notes: tuple[str, ...] = ()
    """Cautions, in sentences."""


class WaldTest(Answer):
    """A joint test of linear hypotheses; `redundant` are those that follow from others."""

    statistic: float
    """Chi-squared if the hypotheses hold."""
    degrees_of_freedom: int
    """Hypotheses less the redundant ones."""
    p_value: float
    """That all of them hold."""
    redundant: tuple[int, ...] = ()
    """Places of those that follow from others, from 0."""
    notes: tuple[str, ...] = ()
    """Cautions, in sentences."""

    @property
    def pvalue(self) -> float:
        """The p value, as statsmodels calls it."""
        return self.p_value


class Region(Answer):
    """An ellipsoid at one level; `outline` is the closed border of an ellipse, for plotting."""

    level: float
    """Such as 0.95."""
    radius: float
    """In standard errors: the root of `radius_squared`."""
    radius_squared: float
    """Quantile of chi-squared."""
    half_axes: list[float]
    """Lengths along `axes`, in declared units, the longest first."""
    volume: float | None
    """In declared units; None where no float holds it."""
    log_volume: float
    """Natural logarithm of it."""
    inside: bool | None = None
    """Whether the point lies in it; None without a point."""
    outline: list[tuple[float, float]] | None = None
    """Points to plot, in declared units; None but of two coefficients."""


class Ellipsoid(Answer):
    """Where some coefficients may be together; `axes` are unit vectors, one a row, the longest first."""

    coefficients: list[str]
    """Names, in the order of all vectors here."""
    centre: list[float]
    """The estimates, in declared units."""
    shape: list[list[float]]
    """Their covariance, one row a coefficient."""
    degrees_of_freedom: int
    """Number of coefficients."""
    axes: list[list[float]]
    """Unit vectors."""
    regions: list[Region]
    """One a level."""
    point: dict[str, Any] | None = None
    """The asked point, its statistic and p value; None: none was asked."""
    notes: tuple[str, ...] = ()
    """Cautions, in sentences."""


class Compared(Answer):
    """One coefficient of two models; bounds hold whatever is not known, and are null where no test is justified."""

    name: str
    """The coefficient's."""
    first: dict[str, Any] | None
    """Its line in the first model; None: not in it."""
    second: dict[str, Any] | None
    """Its line in the second; None: not in it."""
    difference: float | None
    """Second less first, in declared units; None where a model lacks it."""
    std_error_bound: float | None
    """The most that the difference's can be; None where no bound is known."""
    z_bound: float | None
    """Difference over that; None without it."""
    p_value_bound: float | None
    """Two-sided, that nothing differs; None without it."""
    difference_in_std_errors: float | None
    """Of the first model that has one; None where none has."""
    intervals_overlap: bool | None
    """Whether they do; None where a model has none."""
    width_ratio: float | None
    """Second interval over first; None where a model has none."""


class Comparison(Answer):
    """Two models of one target side by side, and what is assumed of their errors."""

    relation: str
    """same_equation, same_people, different_people or no_covariance."""
    assumes: str
    """The statement that the relation permits, in a sentence."""
    level: float
    """Of the intervals, such as 0.95."""
    models: list[dict[str, Any]]
    """Both, with what they cost."""
    coefficients: list[Compared]
    """One line each, of either model."""
    joint: dict[str, Any] | None = None
    """A test that nothing differs; None where none is justified."""
