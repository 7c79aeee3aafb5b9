"""Which datasets exist for a caller."""

from sqlalchemy.orm import Session

from core.base.errors import FieldError, NotFound
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
