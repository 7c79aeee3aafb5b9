"""Use cases on both databases, without HTTP."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.access.bootstrap import first_admin
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.service import health, keys
from core.service.context import Caller, Context, Role
from core.service.witnessing import start
from tests.support import entry

Someone = Callable[[Role], Caller]


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Iterator[Context]:
    settings = ServiceSettings(home=tmp_path, visible_grid_seconds=0, database_url=str(database.url))
    settings.records_path.mkdir(exist_ok=True)
    found = Context(settings, database)
    start(found)
    health.start(found)
    yield found
    found.stop()


@pytest.fixture
def admin(context: Context) -> Caller:
    secret = context.database.transaction(first_admin, None)
    assert secret is not None
    found = entry.holder(context, secret)
    assert found is not None
    return found


@pytest.fixture
def someone(context: Context, admin: Caller) -> Someone:
    def make(role: Role) -> Caller:
        made, _ = keys.create(
            context, admin, name=role, role=role, principal_id=None, lasts_seconds=None, idempotency_key=None
        )
        assert made.key is not None
        found = entry.holder(context, made.key)
        assert found is not None
        own = entry.holder(context, keys.rotate(context, found, found.key_id).key or "")
        assert own is not None, "it uploads nothing by a key that the admin has seen"
        return own

    return make
