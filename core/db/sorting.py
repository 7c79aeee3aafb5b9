"""Order of lists: the columns that a list may be sorted by, and the row after which a page begins.

A cursor is the id of a page's last row, in every order. No key shows more than the list itself: a name that the viewer
may not read counts as empty. State and cost are no keys: both change before the time grid shows it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from core.db.reads import Viewer, sees_dataset, sees_principal
from core.db.tables import Dataset, Job, Principal
from core.methods.registry import METHODS

AGE: Final = "made"
"""The column that every list has: ids grow with time."""
JOB_COLUMNS: Final = (AGE, "name", "dataset", "by", "method")
MODEL_COLUMNS: Final = (AGE, "name", "dataset", "kind", "method", "by")
DATASET_COLUMNS: Final = (AGE, "name", "owner", "records")
Keys = Mapping[str, ColumnElement[Any]]
_TITLES: Final = {card.kind: card.title for card in (method.card() for method in METHODS)}


@dataclass(frozen=True)
class Order:
    """The column that a list is sorted by; rows with the same value stand newest first."""

    by: str = AGE
    descending: bool = True


NEWEST: Final = Order()


def job_keys(viewer: Viewer) -> Keys:
    """Return what jobs may be sorted by."""
    read = or_(Job.federation_id.is_(None), Job.place.is_not(None))  # a federated job's row names its first site
    seen = select(Dataset.name).where(Dataset.id == Job.dataset_id, read, sees_dataset(viewer))
    by = select(Principal.name).where(Principal.id == Job.owner_id, sees_principal(viewer))
    return {"name": _name(), "dataset": _text(seen), "by": _text(by), "method": _method()}


def model_keys() -> Keys:
    """Return what models may be sorted by, joined with their jobs, senders and the datasets that the viewer sees."""
    dataset = case((Job.federation_id.is_(None), Dataset.name), else_="")
    return {
        "name": _name(),
        "dataset": func.lower(func.coalesce(dataset, "")),
        "kind": _kind(),
        "method": _method(),
        "by": func.lower(Principal.name),
    }


def dataset_keys(viewer: Viewer) -> Keys:
    """Return what datasets may be sorted by."""
    owner = select(Principal.name).where(Principal.id == Dataset.owner_id, sees_principal(viewer))
    return {"name": func.lower(Dataset.name), "owner": _text(owner), "records": func.coalesce(Dataset.rows, -1)}


def _text(found: Select[Any]) -> ColumnElement[str]:
    return func.lower(func.coalesce(found.scalar_subquery(), ""))


def _kind() -> ColumnElement[str]:
    return func.coalesce(Job.spec["model"]["kind"].as_string(), "")


def _name() -> ColumnElement[str]:
    """Return the name of a job or model: its own, or its kind and target."""
    target = func.coalesce(literal(" of ").concat(Job.spec["model"]["target"].as_string()), "")
    return func.lower(func.coalesce(func.nullif(Job.labels["name"].as_string(), ""), _kind().concat(target)))


def _method() -> ColumnElement[str]:
    return func.lower(case(_TITLES, value=Job.optimizer, else_=Job.optimizer))


def cut(
    session: Session,
    wanted: Select[Any],
    visible: Select[Any],
    keys: Callable[[], Keys],
    row: InstrumentedAttribute[str],
    order: Order,
    after: str | None,
) -> Select[Any]:
    """Return a list's statement, sorted and begun after a row.

    Args:
        session: a snapshot.
        wanted: the statement with its filters.
        visible: the same before its filters; the row at the cursor may have left the filter since.
        keys: returns what rows may be sorted by; it is not asked where they are sorted by age.
        row: the column of the rows' ids.
        order: of the rows.
        after: the id of the last page's last row; a row that does not exist for the viewer begins the list anew.
    """
    if order.by == AGE:
        if after:
            wanted = wanted.where(row < after if order.descending else row > after)
        return wanted.order_by(row.desc() if order.descending else row)
    key, place = keys()[order.by], None
    if after:
        at = visible.with_only_columns(key).where(row == after)
        place = session.execute(at).scalar_one_or_none()
    if place is not None:
        beyond = key < place if order.descending else key > place
        wanted = wanted.where(or_(beyond, and_(key == place, row < after)))
    return wanted.order_by(key.desc() if order.descending else key, row.desc())
