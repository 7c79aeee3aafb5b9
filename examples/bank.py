"""The bank marketing data as its owner would declare it: public bounds and categories, nothing computed from rows."""

import gzip
import json
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "data" / "bank-full.csv.gz"

# Bounds are those of ordinary customers: values beyond them are clamped, and tight bounds make narrow intervals.
# The first value of a category is the baseline of its contrasts, so a usual one comes first.
DECLARATION: dict[str, Any] = json.loads((PATH.parent / "bank.json").read_text())
COLUMNS: list[dict[str, Any]] = DECLARATION["columns"]


def metadata(name: str = "bank", epsilon: str = "3", delta: str = "1e-6", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return what the owner declares when uploading."""
    return DECLARATION | {"name": name, "budget": {"epsilon": epsilon, "delta": delta}} | more


def records() -> bytes:
    """Return the data as CSV text with a header."""
    return gzip.decompress(PATH.read_bytes())
