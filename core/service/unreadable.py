"""Datasets of which many cells could not be read, for their owner alone."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from core.base.errors import Refusal
from core.db.tables import Dataset
from core.records.decoding.validation import open_report
from core.records.encryption import Tampered
from core.records.master_key import load_master_keys
from core.service.context import Caller, Context

MANY: Final = 0.01
"""A share of a column's cells from which the column is worth a look."""


@dataclass(frozen=True)
class Unreadable:
    """The worst column of a dataset."""

    dataset: str
    name: str
    column: str
    cells: int
    part: float
    """Of the column's cells."""


def of(context: Context, caller: Caller, limit: int) -> list[Unreadable]:
    """Return those of the caller's newest datasets, at most `limit` looked at, that have many unreadable cells."""
    with context.database.read() as session:
        mine = Dataset.owner_id == caller.id, Dataset.state == "ready"
        kept = Dataset.validation.is_not(None), Dataset.wrapped_key.is_not(None)
        newest = select(Dataset).where(*mine, *kept).order_by(Dataset.id.desc()).limit(limit)
        # Other sites keep the keys of their datasets.
        here = [one for one in session.execute(newest).scalars() if one.site == context.settings.site]
        found = [(one.id, one.name, one.validation or {}, one.wrapped_key or "") for one in here]
    shown = []
    keys = load_master_keys(context.settings) if found else None
    for dataset, name, sealed, wrapped in found:
        with suppress(Refusal, Tampered):  # the page of the dataset says what is wrong with its report
            assert keys is not None, "there are datasets"
            worst = _worst(open_report(sealed, keys.unwrap(dataset, wrapped), dataset))
            if worst is not None:
                shown.append(Unreadable(dataset, name, *worst))
    return shown


def _worst(report: Mapping[str, Any]) -> tuple[str, int, float] | None:
    """Return the column with the most unreadable cells, their number and their part, where they are many."""
    rows = int(report["rows"])
    worst = max(report["columns"], key=lambda one: int(one["unreadable"]))
    cells = int(worst["unreadable"])
    return (str(worst["name"]), cells, cells / rows) if rows and cells / rows >= MANY else None
