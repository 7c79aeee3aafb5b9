"""The queue: limits of waiting jobs, and the choice of the next one. Fair between principals, then by priority and age.

A principal's row is locked before a job's, as everywhere. A count under that lock stays true until the claim or
submission that made it commits. Any number of supervisors and API processes thus keep to the caps.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Select, and_, exists, func, literal, or_, select
from sqlalchemy.orm import Session, aliased

from core.base.errors import RateLimited
from core.db import clock
from core.db.tables import SEVERAL, Job, Principal

DEVICES: Final = ("auto", "cpu", "cuda")
"""Devices that a job may ask for; `auto` is served by either kind of queue."""
RUNNING: Final = ("running", "cancelling")
RETRY_SECONDS: Final = 30
_MOST_LOOKED_AT: Final = 20


def lock_live(session: Session, owner_ids: Iterable[str]) -> Counter[str]:
    """Lock principals, in the order of their ids, and return how many jobs of each have not ended.

    A federated job counts as one, whatever the number of its sites, as in every count of a principal's jobs.

    Args:
        session: an open write transaction; the principals stay locked until its end.
        owner_ids: the principals that ask.
    """
    owners = sorted(set(owner_ids))
    for owner_id in owners:
        lock_owner(session, owner_id)
    live = select(Job.owner_id, func.count()).where(Job.owner_id.in_(owners), _is_one(), Job.finished_at.is_(None))
    return Counter({row[0]: row[1] for row in session.execute(live.group_by(Job.owner_id))})


def admit(live: int, most_queued: int) -> None:
    """Refuse one more job of a principal with so many that have not ended, where that is the most.

    Raises:
        RateLimited: there are as many already.
    """
    if live >= most_queued:
        raise RateLimited(
            f"{most_queued} of your jobs have not ended yet, the most this service takes of one principal; "
            "wait for some, or cancel them.",
            retry_after_seconds=RETRY_SECONDS,
        )


def next_job(
    session: Session,
    devices: Sequence[str],
    most_running: int,
    site: str = "",
    may_begin: Callable[[Session, Job], bool] = lambda *_: True,
) -> Job | None:
    """Lock and return the queued job that is next, None when there is none; rows that others hold are skipped.

    The highest priority comes first, then the owner with the fewest running jobs, then the oldest. A job that has
    waited longer than it was meant to, and never ran, is left to the sweeper.

    Args:
        session: an open write transaction.
        devices: the devices that may be taken, some of `DEVICES`.
        most_running: jobs of one principal that may run at a time; further ones wait.
        site: that keeps their records.
        may_begin: tells of a job whose lock, after its owner's, is held whether it still may; else it has ended it.
    """
    for owner_id in _owners_in_turn(session, devices, most_running, site):
        with session.begin_nested() as turn:
            ended = 0
            while _may_run(session, owner_id, most_running) and ended < _MOST_LOOKED_AT:
                job = _best_of(session, owner_id, devices, site)
                if job is None:
                    break
                if may_begin(session, job):
                    return job
                ended += 1
            if ended:  # that stays: the next owner's turn comes with the next claim
                return None
            # A rival claimed for this owner between our count and our lock. Who held one owner while waiting for the
            # next could wait for somebody who waits for them.
            turn.rollback()
    return None


def next_of_several(
    session: Session,
    devices: Sequence[str],
    most_running: int,
    site: str,
    *,
    served: Collection[str],
    skip: Collection[str],
    may_begin: Callable[[Session, Job], bool] = lambda *_: True,
) -> Job | None:
    """Lock and return the next queued federated job of several sites that this one is among, None when there is none.

    All sites ask in one order, that of priority and then of age, so that they keep themselves free for the same job. A
    job that some site's absence would block is left out.

    Args:
        session: an open write transaction.
        devices: the devices that may be taken, some of `DEVICES`.
        most_running: jobs of one principal that may run at a time; further ones wait.
        site: the site that must take part.
        served: sites that have a supervisor now.
        skip: jobs that are not to be looked at.
        may_begin: as for `next_job`.
    """
    client = aliased(Job)
    waits = (client.federation_id == Job.id, client.place.is_not(None), client.state == "queued")
    statement = (
        select(Job.id, Job.owner_id)
        .where(_is_queued(), Job.site == SEVERAL, Job.device.in_(devices), _in_time(), Job.id.not_in(list(skip)))
        .where(exists().where(*waits, client.site == site), ~exists().where(*waits, client.site.not_in(list(served))))
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
    )
    for job_id, owner_id in session.execute(statement.limit(_MOST_LOOKED_AT)).all():
        with session.begin_nested() as turn:
            if _may_run(session, owner_id, most_running):
                waiting = select(Job).where(Job.id == job_id, Job.state == "queued")
                locked = waiting.with_for_update(key_share=True, skip_locked=True)
                job = session.execute(locked.execution_options(populate_existing=True)).scalar_one_or_none()
                if job is not None:
                    return job if may_begin(session, job) else None
            turn.rollback()
    return None


def someone_waits(session: Session, devices: Sequence[str], most_running: int, site: str = "") -> bool:
    """Look, without a lock, whether a queued job could start now on one of these devices; arguments as `next_job`."""
    return bool(_owners_in_turn(session, devices, most_running, site))


def _may_run(session: Session, owner_id: str, most_running: int) -> bool:
    """Lock an owner and tell whether one more job may run."""
    lock_owner(session, owner_id)
    return _running(session, owner_id).get(owner_id, 0) < most_running


def _owners_in_turn(session: Session, devices: Sequence[str], most_running: int, site: str) -> list[str]:
    """Return the owners who have a job that waits and may have one more run, the one whose turn it is first."""
    running = _running(session)
    heads = {row[0]: (-row[1], row[2]) for row in session.execute(_heads(devices, site)) if row[1] is not None}
    eligible = (owner_id for owner_id in heads if running.get(owner_id, 0) < most_running)
    return sorted(eligible, key=lambda one: (heads[one][0], running.get(one, 0), heads[one][1], one))


def _heads(devices: Sequence[str], site: str = "") -> Select[str, int | None, float | None]:
    """Return each owner waiting for a site with the highest priority and the oldest job of that, for some devices.

    It jumps from owner to owner in the index, so that ten thousand jobs of one cost no more than ten.
    """
    here = (_is_queued(), Job.site == site)
    waiting = select(func.min(Job.owner_id).label("id")).where(*here).cte("waiting", recursive=True)
    following = select(func.min(Job.owner_id)).where(*here, Job.owner_id > waiting.c.id).scalar_subquery()
    owners = waiting.union_all(select(following).where(waiting.c.id.is_not(None)))
    fitting = (*here, Job.device.in_(devices))
    priority = select(func.max(Job.priority)).where(*fitting, Job.owner_id == owners.c.id).scalar_subquery()
    tops = select(owners.c.id, priority.label("priority")).where(owners.c.id.is_not(None)).cte("tops")
    since = select(func.min(Job.created_at)).where(*fitting, Job.owner_id == tops.c.id, Job.priority == tops.c.priority)
    return select(tops.c.id, tops.c.priority, since.scalar_subquery())


def _running(session: Session, owner_id: str | None = None) -> dict[str, int]:
    """Return how many jobs run, per owner who has any; of one owner where one is named."""
    statement = select(Job.owner_id, func.count()).where(_is_one(), Job.state.in_(RUNNING)).group_by(Job.owner_id)
    if owner_id is not None:
        statement = statement.where(Job.owner_id == owner_id)
    return {row[0]: row[1] for row in session.execute(statement)}


def lock_owner(session: Session, owner_id: str) -> None:
    """Lock a principal's row, as everywhere before its jobs'."""
    session.execute(select(Principal.id).where(Principal.id == owner_id).with_for_update(key_share=True)).scalar_one()


def _best_of(session: Session, owner_id: str, devices: Sequence[str], site: str) -> Job | None:
    """Lock an owner's next job."""
    statement = (
        select(Job)
        .where(_is_queued(), Job.site == site, Job.owner_id == owner_id, Job.device.in_(devices), _in_time())
        .order_by(Job.priority.desc(), Job.created_at, Job.id)
        .limit(1)
        .with_for_update(key_share=True, skip_locked=True)
    )
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one_or_none()


def _in_time() -> ColumnElement[bool]:
    """Return the condition of a job that has not waited too long, or has run before."""
    return or_(Job.expires_at.is_(None), Job.started_at.is_not(None), Job.expires_at > clock.now())


def _is_queued() -> ColumnElement[bool]:
    """Return the condition of the index of waiting jobs, spelt out: a plan for any value could not use the index."""
    return and_(Job.state == literal("queued", literal_execute=True), _is_one())


def _is_one() -> ColumnElement[bool]:
    """Return the condition of a job that is claimed by itself, which a client of a federated job is not."""
    return Job.place.is_(None)
