"""Tests and predictions with their uncertainty, under the names that statsmodels gives them.

Figures are pandas objects where pandas is installed, else dicts with the same keys (`farthing.labelled`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final

from farthing.handles import level_at
from farthing.labelled import series, table
from farthing.results import Contrast

Predicted = Callable[[float], list[dict[str, Any]]]
_MEANS: Final = ("probability", "value", "mean")
"""Fields of a prediction that is one number."""


class TTests:
    """Tests of linear combinations of coefficients, each on its own: two-sided, by the normal law.

    Args:
        labels: the hypotheses in words, such as `age = 0`.
        found: the service's answers.
        alpha: 1 less the level of the job's own intervals.
    """

    def __init__(self, labels: Sequence[str], found: Sequence[Contrast], alpha: float) -> None:
        self._labels, self._found, self._alpha = list(labels), list(found), alpha

    @property
    def effect(self) -> Any:  # noqa: ANN401 - pandas may be absent
        """The combinations as estimated, by hypothesis; in declared units."""
        return series(self._labels, [one.estimate for one in self._found])

    @property
    def sd(self) -> Any:  # noqa: ANN401 - as above
        """Their standard errors, sampling and privacy noise together; in declared units."""
        return series(self._labels, [one.std_error for one in self._found])

    @property
    def tvalue(self) -> Any:  # noqa: ANN401 - as above
        """Effect less the tested value, over the standard error; a standard normal if the hypothesis holds."""
        return series(self._labels, [one.z for one in self._found])

    @property
    def pvalue(self) -> Any:  # noqa: ANN401 - as above
        """Two-sided p values."""
        return series(self._labels, [one.p_value for one in self._found])

    def conf_int(self, alpha: float | None = None) -> Any:  # noqa: ANN401 - as above
        """Return the intervals of the combinations, lower ends in column 0 and upper ends in column 1.

        Args:
            alpha: 1 less the level; None: the job's own.
        """
        return table(self._labels, dict(enumerate(self._ends(alpha))))

    def summary_frame(self, alpha: float | None = None) -> Any:  # noqa: ANN401 - as above
        """Return the table of the tests, one line a hypothesis; `alpha` as for `conf_int`."""
        lower, upper = self._ends(alpha)
        return table(
            self._labels,
            {
                "coef": [one.estimate for one in self._found],
                "std err": [one.std_error for one in self._found],
                "z": [one.z for one in self._found],
                "P>|z|": [one.p_value for one in self._found],
                "Conf. Int. Low": lower,
                "Conf. Int. Upp.": upper,
            },
        )

    def __repr__(self) -> str:
        lines = [f"{'':<40} {'coef':>11} {'std err':>11} {'z':>9} {'P>|z|':>8}"]
        lines += [
            f"{label:<40} {_short(one.estimate):>11} {_short(one.std_error):>11} {_short(one.z):>9} "
            f"{_short(one.p_value, 3):>8}"
            for label, one in zip(self._labels, self._found, strict=True)
        ]
        return "\n".join([*lines, *dict.fromkeys(f"Note: {note}" for one in self._found for note in one.notes)])

    def _ends(self, alpha: float | None) -> tuple[list[float | None], list[float | None]]:
        reach = NormalDist().inv_cdf((1 + level_at(self._alpha if alpha is None else alpha)) / 2)
        errors = [one.std_error for one in self._found]
        lower, upper = (
            [
                None if error is None else one.estimate + sign * reach * error
                for one, error in zip(self._found, errors, strict=True)
            ]
            for sign in (-1, 1)
        )
        return lower, upper


class Prediction:
    """Predicted means of rows with their uncertainty: of the mean, not of a new observation.

    Args:
        predicted: asks the service for the predictions at a level.
        labels: of the rows.
        alpha: 1 less the level of the job's own intervals.
    """

    def __init__(self, predicted: Predicted, labels: Sequence[Hashable], alpha: float) -> None:
        self._predicted, self._alpha = predicted, alpha
        self._rows = list(labels)
        self._own = predicted(level_at(alpha))

    @property
    def predicted_mean(self) -> Any:  # noqa: ANN401 - pandas may be absent
        """The means by row, in the target's units or as probabilities; by row and class of a multinomial model."""
        return self._series(self._own, "probabilities", *_MEANS)

    @property
    def se_mean(self) -> Any:  # noqa: ANN401 - as above
        """The means' standard errors, sampling and privacy noise together."""
        return self._series(self._own, "std_errors", "std_error")

    @property
    def flags(self) -> Any:  # noqa: ANN401 - as above
        """The flags that concern each row, a list by row; mostly empty."""
        return series(self._rows, [one.get("flags", []) for one in self._own])

    def conf_int(self, alpha: float | None = None) -> Any:  # noqa: ANN401 - as above
        """Return the means' intervals, lower ends in column 0 and upper ends in column 1.

        Args:
            alpha: 1 less the level; None: the job's own.
        """
        labels, ends = self._flat(self._at(alpha), "intervals", "interval")
        return table(labels, {0: [low for low, _ in ends], 1: [high for _, high in ends]})

    def summary_frame(self, alpha: float | None = None) -> Any:  # noqa: ANN401 - as above
        """Return the table of the predictions, one line a row; `alpha` as for `conf_int`."""
        found = self._at(alpha)
        labels, means = self._flat(found, "probabilities", *_MEANS)
        _, errors = self._flat(found, "std_errors", "std_error")
        _, ends = self._flat(found, "intervals", "interval")
        return table(
            labels,
            {
                "mean": means,
                "mean_se": errors,
                "mean_ci_lower": [low for low, _ in ends],
                "mean_ci_upper": [high for _, high in ends],
            },
        )

    def __repr__(self) -> str:
        return f"Prediction of {len(self._rows)} rows; .summary_frame() has the table"

    def _at(self, alpha: float | None) -> list[dict[str, Any]]:
        return self._own if alpha is None or alpha == self._alpha else self._predicted(level_at(alpha))

    def _series(self, found: Sequence[Mapping[str, Any]], *fields: str) -> Any:  # noqa: ANN401 - as above
        return series(*self._flat(found, *fields))

    def _flat(self, found: Sequence[Mapping[str, Any]], *fields: str) -> tuple[list[Hashable], list[Any]]:
        """Return labels and values of the first of some fields that there is; one a class where it is by class."""
        labels: list[Hashable] = []
        values: list[Any] = []
        for label, row in zip(self._rows, found, strict=True):
            value = next(row[field] for field in fields if field in row)
            by_class = isinstance(value, Mapping)
            labels += [(label, name) for name in value] if by_class else [label]
            values += value.values() if by_class else [value]
        return labels, values


def _short(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
