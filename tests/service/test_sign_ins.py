"""Sign-ins and names on both databases: races, and names that the caller may not read."""

import threading
from collections import Counter

from core.access import sessions
from core.base.errors import Unauthenticated
from core.service import naming, sign_ins
from core.service.context import Caller, Context
from tests.service.conftest import Someone


def test_a_link_begins_one_session_however_many_use_it_at_once(context: Context, admin: Caller) -> None:
    link = context.database.transaction(sessions.make_link, admin.key_id)
    start = threading.Barrier(8)
    seen: list[str] = []

    def use() -> None:
        start.wait()
        try:
            sign_ins.by_link(context, link)
            seen.append("in")
        except Unauthenticated:
            seen.append("out")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(seen) == Counter({"in": 1, "out": 7})


def test_sessions_of_one_principal_end_together(context: Context, someone: Someone) -> None:
    first, second = someone("analyst"), someone("analyst")
    tokens = [context.database.transaction(sessions.begin, caller.key_id) for caller in (first, first, second)]
    assert [found and found.id for found in sign_ins.callers(context, tokens)] == [first.id, first.id, second.id]
    assert sign_ins.end_all(context, first) == 2
    assert [found and found.id for found in sign_ins.callers(context, tokens)] == [None, None, second.id]


def test_people_read_names_that_the_api_shows_them(context: Context, admin: Caller, someone: Someone) -> None:
    owner, analyst = someone("owner"), someone("analyst")
    ids = [owner.id, analyst.id, admin.id, None, "pr_nobody", "sc_1"]
    assert naming.names(context, analyst, ids) == {analyst.id: "analyst"}
    assert naming.names(context, owner, ids) == {owner.id: "owner"}
    assert naming.names(context, admin, ids) == {owner.id: "owner", analyst.id: "analyst", admin.id: "admin"}
