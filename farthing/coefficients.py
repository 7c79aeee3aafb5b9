"""The coefficients of a released model, under the names that statsmodels gives them, and what may be asked of them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from farthing.errors import WrongInput
from farthing.extras import needed
from farthing.handles import Handle, Levels, level_at, levels_of
from farthing.hypotheses import Hypotheses, in_words, restrictions
from farthing.inference import TTests
from farthing.labelled import series, table
from farthing.plots import plot_coefficients
from farthing.results import (
    Coefficient,
    Contrast,
    Ellipsoid,
    Interval,
    OddsRatio,
    RateRatio,
    Summary,
    SweepChoice,
    WaldTest,
)
from farthing.schemas.models import CovarianceView


class Coefficients(Handle):
    """The part of a model that reads its coefficients.

    Figures are in the units of the declared columns. `params`, `bse`, `tvalues` and `pvalues` are pandas Series with
    the coefficients' names as index, and `cov_params()` and `conf_int()` DataFrames; without pandas they are dicts with
    the same keys. A figure that the service withholds, such as the standard error of a flagged coefficient, is NaN.
    """

    @cached_property
    def _own(self) -> Summary:
        """The table at the job's own level; a release never changes, so it is read once."""
        return self.table()

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names, as the summary prints them; none of a network."""
        return tuple(one.name for one in self._own.coefficients)

    @property
    def params(self) -> Any:  # noqa: ANN401 - pandas may be absent
        """The estimates by coefficient, in declared units: the change of the linear predictor for one unit."""
        return series(self.names, [one.estimate for one in self._lines()])

    @property
    def bse(self) -> Any:  # noqa: ANN401 - as above
        """The standard errors by coefficient, in declared units; they count sampling and privacy noise."""
        return series(self.names, [one.std_error for one in self._lines()])

    @property
    def tvalues(self) -> Any:  # noqa: ANN401 - as above
        """Estimate over standard error by coefficient, without unit; a standard normal if the coefficient is 0."""
        return series(self.names, [one.z for one in self._lines()])

    @property
    def pvalues(self) -> Any:  # noqa: ANN401 - as above
        """Two-sided p values by coefficient, between 0 and 1, that it is 0."""
        return series(self.names, [one.p_value for one in self._lines()])

    @property
    def nobs(self) -> int:
        """The number of units that were declared; public, and excluded records are among them."""
        return self._own.n

    @property
    def notes(self) -> tuple[str, ...]:
        """Cautions about the estimates and their intervals, in sentences: such as that these are unchecked."""
        return self._own.notes

    @property
    def sweep(self) -> SweepChoice | None:
        """The candidate that won, its settings and its noised score; None where the job was no sweep."""
        return self._own.sweep

    def cov_params(self) -> Any:  # noqa: ANN401 - as above
        """Return the covariance of the estimates, shape (p, p), in products of declared units.

        Raises:
            FarthingError: the job asked for no intervals, or the method has none.
        """
        found = CovarianceView.model_validate(self._read("covariance"))
        return table(found.coefficients, dict(zip(found.coefficients, found.covariance, strict=True)))

    def conf_int(self, alpha: float | None = None, *, level: float | None = None) -> Any:  # noqa: ANN401 - as above
        """Return each coefficient's interval, shape (p, 2): lower ends in column 0 and upper ends in column 1.

        Args:
            alpha: 1 less the level, such as 0.05; None: as `level` says.
            level: such as 0.95; None: the job's own.
        """
        found = self.intervals(level_at(alpha) if alpha is not None else level)
        ends = [one.interval or (None, None) for one in found]
        return table([one.name for one in found], {0: [low for low, _ in ends], 1: [high for _, high in ends]})

    def table(self, level: Levels = None) -> Summary:
        """Return the coefficient table with private intervals, in the units of the declared columns."""
        return Summary.model_validate(self._read("summary", level=levels_of(level)))

    def frame(self, level: float | None = None) -> Any:  # noqa: ANN401 - pandas is no dependency
        """Return the coefficient table as a pandas DataFrame, coefficients as its index.

        Raises:
            MissingExtra: pandas is not installed.
        """
        pandas = needed("pandas", "model.frame()")
        found = self.table(level).coefficients
        rows = [
            {
                "estimate": one.estimate,
                "std_error": one.std_error,
                "z": one.z,
                "p_value": one.p_value,
                "lower": None if one.interval is None else one.interval[0],
                "upper": None if one.interval is None else one.interval[1],
            }
            for one in found
        ]
        index = pandas.Index([one.name for one in found], name="coefficient")
        # As floats, None is NaN, also in a column that has nothing else.
        return pandas.DataFrame(rows, index=index, dtype="float64")

    def plot(self, coefficients: Sequence[str] | None = None, *, level: float | None = None, axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
        """Draw estimates and intervals with matplotlib, and return the axes.

        Args:
            coefficients: names; None: all but intercepts.
            level: of the intervals; None: the job's own.
            axes: to draw on; None: new ones.

        Raises:
            MissingExtra: matplotlib is not installed.
            WrongInput: a name is unknown, or there is nothing to draw.
        """
        found = {one.name: one for one in self.table(level).coefficients}
        wanted = (
            [name for name in found if name.split(": ")[-1] != "intercept"] if coefficients is None else coefficients
        )
        unknown = next((name for name in wanted if name not in found), None)
        if unknown is not None:
            raise WrongInput(f"There is no coefficient {unknown!r}.", "/coefficients", f"one of {', '.join(found)}")
        return plot_coefficients([found[name] for name in wanted], level or self._own.level or 0.95, axes)

    def intervals(
        self, level: Levels = None, *, method: str = "pointwise", coefficients: Sequence[str] | None = None
    ) -> list[Interval]:
        """Return intervals of coefficients, also such that all hold at once.

        Args:
            level: one or several.
            method: `pointwise`, or `bonferroni`, `sidak` or `scheffe`, which hold all at once.
            coefficients: those to compare; None: all.
        """
        wanted = {} if coefficients is None else {"coefficient": list(coefficients)}
        answer = self._read("intervals", level=levels_of(level), method=method, **wanted)
        return [Interval.model_validate(item) for item in answer["intervals"]]

    def ellipsoid(
        self, coefficients: Sequence[str], level: Levels = None, *, point: Mapping[str, float] | None = None
    ) -> Ellipsoid:
        """Return the region that holds some coefficients together; two of them have an outline to plot.

        Args:
            coefficients: names, each once.
            level: one or several.
            point: a value for each of them: whether it is inside, and its p value.
        """
        body: dict[str, Any] = {"coefficients": list(coefficients), "levels": levels_of(level) or []}
        return Ellipsoid.model_validate(self._post("regions", body | ({} if point is None else {"point": dict(point)})))

    def odds_ratios(self, level: Levels = None) -> list[OddsRatio]:
        """Return a logistic model's odds ratios, or a multinomial one's against its baseline."""
        answer = self._read("odds-ratios", level=levels_of(level))
        return [OddsRatio.model_validate(item) for item in answer["odds_ratios"]]

    def rate_ratios(self, level: Levels = None) -> list[RateRatio]:
        """Return a Poisson model's rate ratios."""
        answer = self._read("rate-ratios", level=levels_of(level))
        return [RateRatio.model_validate(item) for item in answer["rate_ratios"]]

    def contrast(
        self,
        weights: Mapping[str, float],
        *,
        level: float | None = None,
        value: float = 0.0,
        alternative: str = "two_sided",
        margin: float | None = None,
        method: str = "pointwise",
    ) -> Contrast:
        """Return a linear combination of coefficients with its interval and tests.

        Args:
            weights: a number for each coefficient.
            level: of the interval.
            value: the value that it is tested against.
            alternative: `two_sided`, `greater` or `less`.
            margin: also test that it lies within so much of `value`.
            method: `scheffe`: the interval holds together with those of all combinations.
        """
        body = {"weights": dict(weights), "value": value, "alternative": alternative, "method": method}
        optional = {name: told for name, told in (("level", level), ("margin", margin)) if told is not None}
        return Contrast.model_validate(self._post("contrasts", body | optional))

    def t_test(self, hypotheses: Hypotheses, values: Iterable[float] | None = None) -> TTests:
        """Test linear combinations of coefficients, each on its own; one request each.

        Args:
            hypotheses: as for `wald_test`.
            values: as for `wald_test`.

        Raises:
            MissingExtra: as `wald_test`.
            WrongInput: as `wald_test`.
        """
        rows, wanted = self._restrictions(hypotheses, values)
        found = [self.contrast(row, value=value) for row, value in zip(rows, wanted, strict=True)]
        labels = [in_words(row, value) for row, value in zip(rows, wanted, strict=True)]
        return TTests(labels, found, self._alpha())

    def wald_test(self, hypotheses: Hypotheses, values: Iterable[float] | None = None) -> WaldTest:
        """Test jointly that linear combinations of coefficients equal given values (Wald).

        Args:
            hypotheses: text such as `"age = 0, job[b] = job[c]"`; or values by coefficient, `{"age": 0}`; or a list of
                coefficients and of weights by coefficient, with their `values`.
            values: one for each item of a list; None: 0.

        Raises:
            MissingExtra: a text, which needs `farthing[notebook]`.
            WrongInput: a text cannot be read; it points at the place.
        """
        rows, wanted = self._restrictions(hypotheses, values)
        return WaldTest.model_validate(self._post("tests", {"hypotheses": rows, "values": wanted}))

    def _restrictions(
        self, hypotheses: Hypotheses, values: Iterable[float] | None
    ) -> tuple[list[dict[str, float]], list[float]]:
        # Only a text needs the names, and so a request.
        return restrictions(hypotheses, self.names if isinstance(hypotheses, str) else (), values)

    def _alpha(self) -> float:
        """Return 1 less the level of the job's own intervals."""
        return round(1 - (self._own.level or 0.95), 12)

    def _lines(self) -> Sequence[Coefficient]:
        """Return the lines of the table.

        Raises:
            WrongInput: there are none, as of a network.
        """
        if not self._own.coefficients:
            raise WrongInput(
                f"{self.id} has no coefficients.", "/model", "read its .summary(), or fit a regression model"
            )
        return self._own.coefficients
