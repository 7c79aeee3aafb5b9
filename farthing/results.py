"""What a released model says, typed."""

from typing import Any

from pydantic import Field

from farthing.views import View


class Banded(View):
    """An interval at one level of several."""

    level: float
    interval: tuple[float | None, float | None] | None


class Coefficient(View):
    """One line of a coefficient table, in the units of the declared columns."""

    name: str
    estimate: float | None
    std_error: float | None
    z: float | None
    p_value: float | None
    interval: tuple[float | None, float | None] | None
    intervals: tuple[Banded, ...] = ()


class Scale(View):
    """A residual scale that was estimated with the coefficients, in the target's units."""

    estimate: float
    std_error: float | None = None
    interval: tuple[float | None, float | None] | None = None


class Layer(View):
    """A layer of a network: what it makes of a record, and how many parameters it has."""

    place: str
    kind: str
    settings: dict[str, Any] = Field(default_factory=dict)
    output: tuple[int, ...]
    parameters: int


class Summary(View):
    """A coefficient table with private intervals and what it cost; `notes` says what to be wary of.

    Of a network, its layers and how it was trained instead of coefficients.
    """

    model: str
    job: str
    optimizer: str
    n: int
    level: float | None = None
    levels: tuple[float, ...] = ()
    correction: str | None = None
    coefficients: list[Coefficient]
    scale: Scale | None = None
    flags: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    privacy: dict[str, Any] = Field(default_factory=dict)
    kind: str | None = None
    layers: tuple[Layer, ...] = ()
    parameters: int | None = None
    trained_parameters: int | None = None
    trained: str | None = None
    start: str | None = None
    training: dict[str, Any] = Field(default_factory=dict)


class Interval(View):
    """A coefficient's interval."""

    name: str
    interval: tuple[float | None, float | None] | None
    intervals: tuple[Banded, ...] = ()


class OddsRatio(View):
    """exp(coefficient) of a logistic or multinomial model; null where no float holds it."""

    name: str
    odds_ratio: float | None
    interval: tuple[float | None, float | None] | None
    intervals: tuple[Banded, ...] = ()


class RateRatio(View):
    """exp(coefficient) of a Poisson model; null where no float holds it."""

    name: str
    rate_ratio: float | None
    interval: tuple[float | None, float | None] | None
    intervals: tuple[Banded, ...] = ()


class Equivalence(View):
    """Two one-sided tests that something lies within a margin."""

    margin: float
    p_value: float


class Contrast(View):
    """A linear combination of coefficients."""

    weights: dict[str, float]
    estimate: float
    std_error: float | None
    z: float | None
    p_value: float | None
    interval: tuple[float, float] | None
    equivalence: Equivalence | None = None
    notes: tuple[str, ...] = ()


class WaldTest(View):
    """A joint test of linear hypotheses; `redundant` are those that follow from others."""

    statistic: float
    degrees_of_freedom: int
    p_value: float
    redundant: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class Region(View):
    """An ellipsoid at one level; `outline` is the closed border of an ellipse, for plotting."""

    level: float
    radius: float
    radius_squared: float
    half_axes: list[float]
    volume: float | None
    log_volume: float
    inside: bool | None = None
    outline: list[tuple[float, float]] | None = None


class Ellipsoid(View):
    """Where some coefficients may be together; `axes` are unit vectors, one a row, the longest first."""

    coefficients: list[str]
    centre: list[float]
    shape: list[list[float]]
    degrees_of_freedom: int
    axes: list[list[float]]
    regions: list[Region]
    point: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


class Compared(View):
    """One coefficient of two models; bounds hold whatever is not known, and are null where no test is justified."""

    name: str
    first: dict[str, Any] | None
    second: dict[str, Any] | None
    difference: float | None
    std_error_bound: float | None
    z_bound: float | None
    p_value_bound: float | None
    difference_in_std_errors: float | None
    intervals_overlap: bool | None
    width_ratio: float | None


class Comparison(View):
    """Two models of one target side by side, and what is assumed of their errors."""

    relation: str
    assumes: str
    level: float
    models: list[dict[str, Any]]
    coefficients: list[Compared]
    joint: dict[str, Any] | None = None
