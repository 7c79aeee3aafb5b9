"""The bank marketing data as its owner would declare it: public bounds and categories, nothing computed from rows."""

import gzip
from pathlib import Path
from typing import Any

PATH = Path(__file__).parent / "data" / "bank-full.csv.gz"

# The first value is the baseline of every contrast: an owner declares a usual one first.
MONTHS = ["may", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
JOBS = [
    "management",
    "technician",
    "entrepreneur",
    "blue-collar",
    "unknown",
    "retired",
    "admin.",
    "services",
    "self-employed",
    "unemployed",
    "housemaid",
    "student",
]


def _category(name: str, values: list[str], other: str | None = None) -> dict[str, Any]:
    return {"name": name, "type": "category", "values": values, "other": other}


def _integer(name: str, lower: int, upper: int) -> dict[str, Any]:
    return {"name": name, "type": "integer", "lower": lower, "upper": upper}


# Bounds say where ordinary customers lie: values beyond them are clamped, and tight bounds make narrow intervals.
COLUMNS: list[dict[str, Any]] = [
    _integer("age", 18, 95),
    _integer("balance", -2_000, 20_000),
    _integer("day", 1, 31),
    _integer("duration", 0, 1_800),
    _integer("campaign", 1, 20),
    _integer("pdays", -1, 400),
    _integer("previous", 0, 20),
    _category("job", JOBS, other="unknown"),
    _category("marital", ["married", "single", "divorced"]),
    _category("education", ["secondary", "tertiary", "primary", "unknown"], other="unknown"),
    {"name": "default", "type": "binary", "values": ["no", "yes"]},
    {"name": "housing", "type": "binary", "values": ["no", "yes"]},
    {"name": "loan", "type": "binary", "values": ["no", "yes"]},
    _category("contact", ["cellular", "telephone", "unknown"], other="unknown"),
    _category("month", MONTHS),
    _category("poutcome", ["unknown", "failure", "other", "success"], other="unknown"),
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]


def metadata(name: str = "bank", epsilon: str = "3", delta: str = "1e-6", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return what the owner declares when uploading."""
    return {
        "name": name,
        "unit": "record",
        "adjacency": "zero_out",
        "budget": {"epsilon": epsilon, "delta": delta},
        "columns": COLUMNS,
    } | more


def records() -> bytes:
    """Return the data as CSV text with a header."""
    return gzip.decompress(PATH.read_bytes())
