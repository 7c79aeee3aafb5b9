"""A released model as an object: its table, intervals, regions, tests, comparisons and predictions, free of charge."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, overload

from httpx import Response

from farthing.descriptions import Description
from farthing.predicting import Frame, is_frame, parts, predict_file, predict_frame
from farthing.restrictions import parse_all
from farthing.results import Comparison, Contrast, Ellipsoid, Interval, OddsRatio, RateRatio, Summary, WaldTest
from farthing.schemas.models import TrainedModel
from farthing.wire import Wire

Levels = float | Sequence[float] | None
"""One level, several, or None for the job's own."""
Table = TypeVar("Table", bound=Frame)
FRAME_HEIGHT: Final = 640
"""Of a summary in a notebook, in pixels."""


class Text(str):
    """Text of several lines that a prompt or a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Model:
    """Reads one released model; every method asks the service and costs no budget.

    Methods raise `FarthingError` where the service refuses, and `Unreachable` where no answer comes.

    Args:
        wire: the client's connections.
        model: the model's id.
    """

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self.id = model

    def __repr__(self) -> str:
        return f"Model({self.id!r})"

    def _repr_html_(self) -> str:
        """Return the summary's page in a frame of its own, for notebooks; it runs nothing and loads nothing."""
        return (
            f'<iframe sandbox title="summary of {escape(self.id)}" style="width:100%;border:0" '
            # The page is escaped as a whole, since it stands within an attribute.
            f'height="{FRAME_HEIGHT}" srcdoc="{escape(self.page())}"></iframe>'
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The coefficients' names, as the summary prints them."""
        return tuple(one.name for one in self.table().coefficients)

    def summary(self, level: Levels = None) -> Text:
        """Return the coefficient table as text, as statistics packages print it."""
        return Text(self._get("summary", format="text", level=_levels(level)))

    def page(self, level: Levels = None) -> str:
        """Return the coefficient table as an HTML page with a plot; it needs nothing from anywhere else."""
        return self._get("summary", format="html", level=_levels(level))

    def pdf(self, level: Levels = None) -> bytes:
        """Return the coefficient table as PDF, without the plot."""
        return self._send("summary", format="pdf", level=_levels(level)).content

    def table(self, level: Levels = None) -> Summary:
        """Return the coefficient table with private intervals, in the units of the declared columns."""
        return Summary.model_validate(self._read("summary", level=_levels(level)))

    def frame(self, level: float | None = None) -> Any:  # noqa: ANN401 - pandas is no dependency
        """Return the coefficient table as a pandas DataFrame, coefficients as its index.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = import_module("pandas")
        rows = [
            {
                "estimate": one.estimate,
                "std_error": one.std_error,
                "z": one.z,
                "p_value": one.p_value,
                "lower": None if one.interval is None else one.interval[0],
                "upper": None if one.interval is None else one.interval[1],
            }
            for one in self.table(level).coefficients
        ]
        return pandas.DataFrame(rows, index=pandas.Index(self.names, name="coefficient"))

    def description(self, level: float | None = None, *, about: str = "population") -> Description:
        """Return what a job that describes columns released.

        Args:
            level: of the intervals; None: the job's own.
            about: `population`: intervals count sampling and noise; `records`: noise alone.
        """
        return Description.model_validate(self._read("description", level=level, about=about))

    def description_text(self, level: float | None = None, *, about: str = "population") -> Text:
        """Return the same description as text."""
        return Text(self._get("description", format="text", level=level, about=about))

    def conf_int(
        self, level: Levels = None, *, method: str = "pointwise", coefficients: Sequence[str] | None = None
    ) -> list[Interval]:
        """Return intervals of coefficients.

        Args:
            level: one or several.
            method: `pointwise`, or `bonferroni`, `sidak` or `scheffe`, which hold all at once.
            coefficients: those to compare; None: all.
        """
        wanted = {} if coefficients is None else {"coefficient": list(coefficients)}
        answer = self._read("intervals", level=_levels(level), method=method, **wanted)
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
        body: dict[str, Any] = {"coefficients": list(coefficients), "levels": _levels(level) or []}
        return Ellipsoid.model_validate(self._post("regions", body | ({} if point is None else {"point": dict(point)})))

    def odds_ratios(self, level: Levels = None) -> list[OddsRatio]:
        """Return a logistic model's odds ratios, or a multinomial one's against its baseline."""
        answer = self._read("odds-ratios", level=_levels(level))
        return [OddsRatio.model_validate(item) for item in answer["odds_ratios"]]

    def rate_ratios(self, level: Levels = None) -> list[RateRatio]:
        """Return a Poisson model's rate ratios."""
        answer = self._read("rate-ratios", level=_levels(level))
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

    def test(
        self,
        hypotheses: str | Mapping[str, float] | Sequence[str | Mapping[str, float]],
        values: Iterable[float] | None = None,
    ) -> WaldTest:
        """Test jointly that linear combinations of coefficients equal given values (Wald).

        Args:
            hypotheses: text such as `"age = 0, job[b] = job[c]"`; or values by coefficient, `{"age": 0}`; or a list of
                coefficients and of weights by coefficient, with their `values`, by default 0.
            values: one for each item of a list.

        Raises:
            RestrictionError: a text cannot be read; it says where.
        """
        if isinstance(hypotheses, str):
            rows, wanted = parse_all([hypotheses], self.names)
        elif isinstance(hypotheses, Mapping):
            rows, wanted = [{name: 1.0} for name in hypotheses], list(hypotheses.values())
        else:
            rows = [{one: 1.0} if isinstance(one, str) else dict(one) for one in hypotheses]
            wanted = [0.0] * len(rows) if values is None else list(values)
        return WaldTest.model_validate(self._post("tests", {"hypotheses": rows, "values": wanted}))

    def compare(self, other: "Model | str", *, level: float | None = None) -> Comparison:
        """Return this model and another one of the same target side by side, and what their difference allows."""
        return Comparison.model_validate(self._read(f"compare/{_id(other)}", level=level))

    def compare_text(self, other: "Model | str", *, level: float | None = None) -> Text:
        """Return the same comparison as text."""
        return Text(self._get(f"compare/{_id(other)}", format="text", level=level))

    @overload
    def predict(self, rows: Table, *, level: float | None = None) -> Table: ...

    @overload
    def predict(self, rows: Iterable[Mapping[str, Any]], *, level: float | None = None) -> list[dict[str, Any]]: ...

    def predict(self, rows: Any, *, level: float | None = None) -> Any:
        """Return predictions for rows in declared units; arrays may be NumPy's.

        `probability` of a logistic model, `value` of a linear one, `mean` of a Poisson one, `probabilities` by class;
        with a level also each mean's standard error and interval. Of a network, what its target asks for.

        A DataFrame of pandas or polars, or a Table of pyarrow, goes in one request. It comes back with its index and
        its own columns as they are, and columns such as `predicted_probability` and `predicted_lower` after them.

        Raises:
            ValueError: the table has a column of such a name already.
        """
        if is_frame(rows):
            return predict_frame(self._wire, self.id, rows, level)
        optional = {} if level is None else {"level": level}
        found: list[dict[str, Any]] = []
        for part in parts(rows):
            found += self._post("predict", {"rows": part} | optional)["predictions"]
        return found

    def predict_file(self, path: str | Path, out: str | Path | BinaryIO, *, level: float | None = None) -> None:
        """Write the rows of a file of CSV, Parquet or Arrow into another, with the predictions beside them.

        Args:
            path: of the rows.
            out: a path that ends in .csv, .parquet or .arrows, which may be another format; or an open file for CSV.
            level: also write each mean's standard error and interval.

        Raises:
            ValueError: an ending is none of these, or both files are one.
        """
        predict_file(self._wire, self.id, path, out, level)

    def iterates(self) -> list[list[float]]:
        """Return the iterates that the job kept, evenly spaced and the last with them; none where it kept none.

        In encoded units, as a job about this model takes them as its points.
        """
        release = self._wire.get(f"/v1/models/{self.id}")["release"]
        return list((release or {}).get("iterates") or [])

    def methods(self) -> str:
        """Return a paragraph that a paper's methods section may quote."""
        return str(self._read("methods")["text"])

    def export(self, kind: str = "json") -> bytes:
        """Return the model as `json` or `safetensors`, a network also as `onnx`."""
        return self._wire.send("GET", self._path("export"), params={"format": kind}).content

    def approve(self, reason: str | None = None) -> None:
        """Let the release be seen, where its scope asks for the owner's approval; a reason stays in the ledger."""
        self._wire.post(self._path("approve"), None if reason is None else {"reason": reason})

    def reject(self, reason: str) -> None:
        """Keep the release from being seen; its cost stays spent, and the reason stays in the ledger."""
        self._wire.post(self._path("reject"), {"reason": reason})

    def delete(self) -> TrainedModel:
        """Take the model back, as the submitter of its job or an owner of the data; its figures are deleted for good.

        The ledger, the job and its charge stay.
        """
        return TrainedModel.model_validate(self._wire.send("DELETE", f"/v1/models/{self.id}").json())

    def _path(self, part: str) -> str:
        return f"/v1/models/{self.id}/{part}"

    def _read(self, part: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - query values are whatever httpx takes
        return self._wire.get(self._path(part), **query)

    def _get(self, part: str, **query: Any) -> str:  # noqa: ANN401 - as above
        return self._send(part, **query).text

    def _send(self, part: str, **query: Any) -> Response:  # noqa: ANN401 - as above
        params = {name: value for name, value in query.items() if value is not None}
        return self._wire.send("GET", self._path(part), params=params)

    def _post(self, part: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._wire.post(self._path(part), body)


def _levels(level: Levels) -> list[float] | None:
    """Return levels as a repeated query parameter; None: the job's own."""
    if level is None:
        return None
    return [level] if isinstance(level, int | float) else list(level)


def _id(other: Model | str) -> str:
    return other.id if isinstance(other, Model) else other
