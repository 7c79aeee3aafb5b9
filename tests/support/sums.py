"""Sums of what a scope was charged, made from its entries where a test or a benchmark wrote those itself."""

import json
from collections import Counter

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Entry, Scope
from core.ledger import charged


def add_up(session: Session, scope_id: str) -> None:
    """Make a scope's sums, of which there are none yet, from all of its entries, as a forger would."""
    rows = session.execute(
        select(Entry.kind, Entry.job_id, Entry.body)
        .where(Entry.scope_id == scope_id, Entry.kind.in_((*charged.DRAWING, "compensate", "reconcile")))
        .order_by(Entry.seq),
        execution_options={"yield_per": 1000},
    )
    by_job: dict[str | None, Counter[str]] = {}
    forgotten: Counter[str] = Counter()
    for kind, job_id, content in rows:
        body = json.loads(content)
        if kind in charged.DRAWING:
            by_job.setdefault(job_id, Counter()).update(charged._runs_of([content]))
        elif kind == "reconcile":
            moved = body["accounts"].get(scope_id, {"spent": []})
            forgotten.update(charged._forgotten(session, scope_id, moved["spent"]))
        elif body["fraction"] == "1":
            by_job.pop(job_id, None)
    whole: Counter[str] = Counter()
    for counted in (*by_job.values(), forgotten):
        whole.update(counted)
    charged._add(session, session.get_one(Scope, scope_id), whole)
