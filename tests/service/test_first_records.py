"""First records beside a request for a key of the same owner: one waits for the other."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from unittest.mock import patch

import pytest
from sqlalchemy.orm import Session

from core.base.errors import Forbidden
from core.data.datasets import parse_metadata
from core.service import keys, opening, uploads
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support.api import csv, metadata


def test_no_key_is_made_for_somebody_while_first_records_arrive(
    context: Context, someone: Someone, admin: Caller
) -> None:
    owner, made, ends = someone("owner"), list[Future[object]](), opening._end_other_keys
    asked = {"name": "second", "role": "owner", "lasts_seconds": None, "idempotency_key": None}
    make = partial(keys.create, context, admin, principal_id=owner.id, **asked)

    def end_slowly(session: Session, caller: Caller) -> None:
        ends(session, caller)
        made.append(pool.submit(make))
        assert not wait(made, timeout=0.3).done, "it waits for the records"

    with ThreadPoolExecutor(1) as pool, patch.object(opening, "_end_other_keys", end_slowly):
        view, _ = uploads.create(context, owner, parse_metadata(metadata()), None, [csv(100, 1)], None)
        assert view["state"] == "ready"
        with pytest.raises(Forbidden, match="holds records"):
            made[0].result()
