"""Runs that take long, stored one by one as lines of JSON: an interrupted process goes on from there."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "results" / "second_order"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs that are stored; a line that was cut off is none."""
    found = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def append(path: Path, run: Mapping[str, Any]) -> None:
    """Store one more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write(("\n" if cut_off else "") + json.dumps(run) + "\n")


def is_over(minutes: float | None) -> bool:
    """Say whether this process has had so many minutes of processor time; None: never."""
    return minutes is not None and time.process_time() > 60 * minutes
