"""Which supervisors there are, by when each was last seen: nothing here decides who may write, fences do."""

from collections.abc import Sequence
from hashlib import sha256

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from core.db import clock
from core.db.service_tables import Secret
from core.jobs.presence import Worker
from core.ledger.claims import put_secret


def see(
    session: Session,
    *,
    name: str,
    queues: str,
    slots: int,
    gpus: int,
    version: str,
    site: str = "",
    meets: bool = False,
) -> None:
    """Note that a supervisor lives.

    Args:
        session: an open write transaction.
        name: machine and process.
        queues: the queues it takes from: ``cpu``, ``gpu`` or ``cpu,gpu``.
        slots: the number of jobs that it runs at a time.
        gpus: the number of them on a GPU.
        version: of its code.
        site: the site whose records it reads; empty: the service's own.
        meets: whether trainers of other sites can reach its own.
    """
    at = clock.read(session)
    worker = session.get(Worker, name)
    if worker is None:
        worker = Worker(name=name, queues=queues, slots=slots, gpus=gpus, version=version, started_at=at, seen_at=at)
        session.add(worker)
    worker.seen_at, worker.site, worker.meets = at, site, meets
    session.flush()
    if meets:
        put_secret(session, _seen(site), repr(at))  # outlives the row, which goes when a supervisor ends in order


def leave(session: Session, name: str) -> None:
    """Forget a supervisor that ends in order."""
    session.execute(delete(Worker).where(Worker.name == name))


def remove_silent(session: Session, seconds: float) -> None:
    """Forget supervisors that were not seen for so long."""
    session.execute(delete(Worker).where(Worker.seen_at < clock.read(session) - seconds))


def known(session: Session, limit: int) -> Sequence[Worker]:
    """Return up to `limit` supervisors, the last seen first."""
    return session.execute(select(Worker).order_by(Worker.seen_at.desc(), Worker.name).limit(limit)).scalars().all()


def sites(session: Session, seconds: float, *, meeting: bool = False) -> set[str]:
    """Return the sites of supervisors that were seen within so many seconds; of those only that others can reach."""
    alive = Worker.seen_at >= clock.now() - seconds
    return set(
        session.execute(select(Worker.site).where(alive & Worker.meets if meeting else alive).distinct()).scalars()
    )


def serving(session: Session, seconds: float) -> set[tuple[str, str]]:
    """Return the sites and devices, as jobs name them, that supervisors seen within so many seconds serve."""
    alive = select(Worker.site, Worker.queues, Worker.gpus).where(Worker.seen_at >= clock.now() - seconds).distinct()
    served = set[tuple[str, str]]()
    for site, queues, gpus in session.execute(alive):
        named = queues.split(",")
        if "cpu" in named:
            served |= {(site, "auto"), (site, "cpu")}
        if "gpu" in named and gpus:
            served |= {(site, "auto"), (site, "cuda")}
    return served


def last_seen(session: Session, site: str) -> float:
    """Return when a supervisor of a site was last seen that others can reach, 0 where none ever was."""
    statement = select(Secret.value).where(Secret.name == _seen(site))
    return float(session.execute(statement).scalar_one_or_none() or 0.0)


def _seen(site: str) -> str:
    """Return under which name it is kept when a site was last seen; names are shorter than a site's may be."""
    return f"seen-{sha256(site.encode()).hexdigest()[:32]}"


def any_with_gpu(session: Session, seconds: float) -> bool:
    """Tell whether a supervisor with a GPU was seen within so many seconds."""
    alive = (Worker.gpus > 0) & (Worker.seen_at >= clock.now() - seconds)
    return bool(session.execute(select(exists().where(alive))).scalar_one())


def any_on(session: Session, machine: str, since: float) -> bool:
    """Tell whether a supervisor of one machine was seen since a time."""
    # A machine's name may hold % or _, which LIKE would take for any letters.
    named = Worker.name.startswith(f"{machine}:", autoescape=True)
    return bool(session.execute(select(exists().where(named, Worker.seen_at >= since))).scalar_one())
