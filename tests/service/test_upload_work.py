"""An upload runs the same statements whether another owner has its records or not: counted, so that no load matters.

`tests/api/test_identity.py` measures the duration of uploads, marked `timing`.
"""

from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import event, select

from core.data.datasets import parse_metadata
from core.db.tables import Dataset
from core.service import uploads
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support.api import csv, metadata

pytestmark = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
"""Which statements run hangs on neither."""


def statements(context: Context, caller: Caller, content: bytes) -> list[str]:
    """Upload records; return all statements of it, in order."""
    ran: list[str] = []

    def note(_: object, __: object, statement: str, *others: object) -> None:
        del others
        ran.append(statement)

    engines = {context.database._writer, context.database._reader}
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        view, _ = uploads.create(context, caller, parse_metadata(metadata()), None, [content], None)
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)
    assert view["state"] == "ready"
    return ran


def known_and_new(context: Context, someone: Someone) -> tuple[list[str], list[str]]:
    """Upload what another owner has, and what nobody has, each as an owner of its own."""
    statements(context, someone("owner"), csv(100, 1))
    return (
        statements(context, someone("owner"), csv(100, 1)),
        statements(context, someone("owner"), csv(101, 2)),
    )


def test_the_same_statements_run_for_records_that_another_owner_has(context: Context, someone: Someone) -> None:
    known, new = known_and_new(context, someone)
    assert known == new
    assert len(known) > 10, "they were seen"


def test_a_look_at_other_owners_datasets_is_seen(context: Context, someone: Someone) -> None:
    """Planted bug: one statement more where a dataset of anybody's has as many rows."""
    genuine = uploads._fill

    def curious(session: Any, caller: Caller, dataset: Dataset, declared: Any, arrived: Any) -> None:
        rows = set(session.execute(select(Dataset.rows)).scalars())
        if arrived.decoded.rows in rows:
            session.execute(select(Dataset.name))
        genuine(session, caller, dataset, declared, arrived)

    with patch.object(uploads, "_fill", curious):
        known, new = known_and_new(context, someone)
    assert known != new
