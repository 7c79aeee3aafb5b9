"""Which datasets exist for a caller."""

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, NotFound
from core.db import reads as queries
from core.db.tables import Dataset
from core.service.context import Caller
from core.service.scopes import viewer


def find_dataset(session: Session, caller: Caller, dataset_id: str) -> Dataset:
    """Return a dataset that exists for the caller.

    Raises:
        NotFound: it does not.
    """
    found = queries.dataset(session, viewer(caller), dataset_id)
    if found is None:
        raise no_dataset()
    return found


def no_dataset(pointer: str = "/dataset") -> NotFound:
    """Return the refusal of a dataset that does not exist for a caller."""
    return NotFound("There is no such dataset.", FieldError(pointer, "name a dataset that you may see"))


def refuse_unready(dataset: Dataset, *fields: FieldError, name: str = "This dataset") -> None:
    """Refuse a job on a dataset whose records no job can read.

    Raises:
        Conflict: it is pending, a draft, or erased.
    """
    if dataset.state == "ready":
        return
    fix = "; its owner sends its records, and seals it where it is a draft" if dataset.state == "pending" else ""
    raise Conflict(f"{name} is {dataset.state}: no job can read it{fix}.", *fields)
