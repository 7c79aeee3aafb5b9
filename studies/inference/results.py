"""The results of an experiment: numbers beside those of the paper, a note and a figure."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

Number = float | str | None


@dataclass(frozen=True)
class Row:
    """One compared number; `tolerance` is the largest difference called agreement, None where none is claimed."""

    what: str
    reference: Number
    ours: float
    tolerance: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether both lie within the tolerance of one another; None where nothing is claimed."""
        if self.tolerance is None or not isinstance(self.reference, int | float):
            return None
        return abs(self.ours - self.reference) <= self.tolerance


@dataclass(frozen=True)
class Result:
    """An experiment's outcome."""

    key: str
    """E1 to E15, or V3b."""
    title: str
    settings: str
    rows: tuple[Row, ...]
    note: str
    """Differences from the printed numbers, explained."""
    charts: dict[str, str] = field(default_factory=dict)
    """SVG text by name."""

    @property
    def name(self) -> str:
        """The stem of its files: e01 to e15, or v03b."""
        parts = re.fullmatch(r"([A-Z])(\d+)([a-z]?)", self.key)
        assert parts is not None, "a key is a letter and a number"
        letter, number, further = parts.groups()
        return f"{letter.lower()}{int(number):02d}{further}"

    def write(self, folder: Path, mode: str, seconds: float) -> None:
        """Write `<name>.json` and its figures."""
        folder.mkdir(parents=True, exist_ok=True)
        told = {
            "experiment": self.key,
            "title": self.title,
            "settings": self.settings,
            "mode": mode,
            "seconds": round(seconds, 1),
            "note": self.note,
            "charts": sorted(f"{self.name}-{chart}.svg" for chart in self.charts),
            "rows": [
                {"what": row.what, "reference": tidy(row.reference), "ours": rounded(row.ours), "agrees": row.agrees}
                for row in self.rows
            ],
        }
        (folder / f"{self.name}.json").write_text(json.dumps(told, indent=1) + "\n")
        for chart, text in self.charts.items():
            (folder / f"{self.name}-{chart}.svg").write_text(text)


def tidy(value: Number) -> Number:
    """Return a reference value without the last bits of its arithmetic."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def rounded(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def table(told: dict[str, object], studies: str) -> str:
    """Return a stored result as a section of Markdown, with its figures and the command that makes it."""
    lines = [f"## {told['experiment']}. {told['title']}", "", f"{told['settings']}", ""]
    lines += ["| | reference | ours | |", "|---|---|---|---|"]
    marks = {None: "", True: "agrees", False: "differs"}
    rows = told["rows"]
    assert isinstance(rows, list), "as written"
    for row in rows:
        at = row["reference"]
        reference = "-" if at is None else at if isinstance(at, str) else f"{at:.4g}"
        lines.append(f"| {row['what']} | {reference} | {row['ours']:.4g} | {marks[row['agrees']]} |")
    lines += ["", str(told["note"]), ""]
    charts = told["charts"]
    assert isinstance(charts, list), "as written"
    lines += [f"![{told['title']}]({name})" for name in charts]
    lines += ["", f"<sub>`python -m studies.{studies} {told['experiment']}`, {told['mode']}.</sub>", ""]
    return "\n".join(lines)
