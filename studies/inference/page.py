"""Report what the experiments gave: every figure in a report, and one line each on the page of the paper."""

import json
from pathlib import Path
from typing import Any

from studies.inference.results import table

FIRST, LAST = "<!-- results -->", "<!-- end of results -->"
HEAD = "| experiment | subject | figures that agree with the reference |\n|---|---|---|"


def fill(page: Path, folder: Path, studies: str) -> None:
    """Write the report of all stored experiments, and the table between the marks of the page.

    Args:
        page: Markdown with the two marks.
        folder: holds each experiment's JSON and figures, and takes the report, `README.md`.
        studies: the part of `studies` that runs them.
    """
    text = page.read_text()
    before, rest = text.split(FIRST)
    _, after = rest.split(LAST)
    stored = [json.loads(path.read_text()) for path in sorted(folder.glob("[a-z][0-9][0-9]*.json"))]
    sections = "\n".join(table(one, studies) for one in stored)
    (folder / "README.md").write_text(f"# Experiments of docs/papers/{page.name}\n\n{sections}")
    rows = "\n".join(map(_line, stored))
    page.write_text(f"{before}{FIRST}\n\n{HEAD}\n{rows}\n\n{LAST}{after}")


def _line(stored: dict[str, Any]) -> str:
    judged = [row["agrees"] for row in stored["rows"] if row["agrees"] is not None]
    agreeing = f"{sum(judged)} of {len(judged)}" if judged else "none to compare"
    return f"| {stored['experiment']} | {stored['title']} | {agreeing} |"
