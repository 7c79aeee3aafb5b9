"""A released model as an object: its table, intervals, regions, tests, comparisons and predictions, free of charge."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, overload

from farthing.coefficients import Coefficients
from farthing.descriptions import Description
from farthing.frames import Frame, is_frame, rows_of
from farthing.handles import Levels, Text, level_at, levels_of
from farthing.inference import Prediction
from farthing.predicting import parts, predict_file, predict_frame
from farthing.results import Comparison
from farthing.schemas.models import TrainedModel

Table = TypeVar("Table", bound=Frame)
FRAME_HEIGHT: Final = 640
"""Of a summary in a notebook, in pixels."""


class Model(Coefficients):
    """Reads one released model; every method asks the service and costs no budget.

    Methods raise `FarthingError` where the service refuses, and `Unreachable` where no answer comes.

    Args:
        wire: the client's connections.
        model: the model's id.
    """

    def __repr__(self) -> str:
        return f"Model({self.id!r})"

    def _repr_html_(self) -> str:
        """Return the summary's page in a frame of its own, for notebooks; it runs nothing and loads nothing."""
        return (
            f'<iframe sandbox title="summary of {escape(self.id)}" style="width:100%;border:0" '
            # The page is escaped as a whole, since it stands within an attribute.
            f'height="{FRAME_HEIGHT}" srcdoc="{escape(self.page())}"></iframe>'
        )

    def summary(self, level: Levels = None, *, alpha: float | None = None) -> Text:
        """Return the coefficient table as text, as statistics packages print it.

        Args:
            level: of the intervals, such as 0.95, or several; None: as `alpha` says.
            alpha: 1 less the level; None: the job's own.
        """
        wanted = level if alpha is None else level_at(alpha)
        return Text(self._get("summary", format="text", level=levels_of(wanted)))

    def page(self, level: Levels = None) -> str:
        """Return the coefficient table as an HTML page with a plot; it needs nothing from anywhere else."""
        return self._get("summary", format="html", level=levels_of(level))

    def pdf(self, level: Levels = None) -> bytes:
        """Return the coefficient table as PDF, without the plot."""
        return self._send("summary", format="pdf", level=levels_of(level)).content

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
        with a level also each mean's standard error and interval. Of a network, what its target asks for. `flags` are
        the faults that concern a row, the job's among them; a row without any has no such field.

        A DataFrame of pandas or polars, or a Table of pyarrow, goes in one request. It comes back with its index and
        its own columns as they are, and columns such as `predicted_probability` and `predicted_lower` after them;
        `predicted_flags` is a text.

        Raises:
            ValueError: the table has a column of such a name already.
        """
        if is_frame(rows):
            return predict_frame(self._wire, self.id, rows, level)
        optional = {} if level is None else {"level": level}
        found: list[dict[str, Any]] = []
        for part in parts(rows):
            told = self._post("predict", {"rows": part} | optional)
            found += [_flagged(one, told.get("flags", ())) for one in told["predictions"]]
        return found

    def get_prediction(self, rows: Any) -> Prediction:  # noqa: ANN401 - rows, or a frame of any library
        """Return predicted means with standard errors and intervals: of the mean, not of a new observation.

        Args:
            rows: mappings in declared units, or a pandas, polars or Arrow table, whose index labels the predictions.
        """
        given, labels = rows_of(rows)
        return Prediction(lambda level: self.predict(given, level=level), labels, self._alpha())

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


def _id(other: Model | str) -> str:
    return other.id if isinstance(other, Model) else other


def _flagged(one: dict[str, Any], job: Sequence[str]) -> dict[str, Any]:
    """Return a prediction with the flags of the whole job before its own."""
    flags = [*job, *one.get("flags", ())]
    return one | ({"flags": flags} if flags else {})
