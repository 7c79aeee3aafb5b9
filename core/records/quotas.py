"""Disk quotas: bytes of each principal's records, weights, declarations and unfinished uploads at one site.

A dataset's size is counted where its file is stored.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, String, cast, delete, func, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from core.db import clock
from core.db.base import Base, Id
from core.db.tables import Dataset, Principal, PublicWeights
from core.records import parts


class OpenUpload(Base):
    """An upload that is being received or decoded, upl_...; its row goes with it."""

    __tablename__ = "uploads"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    site: Mapped[str] = mapped_column(String(40), server_default="")  # whose disk it is on
    bytes: Mapped[int] = mapped_column(BigInteger)  # received so far, or said to come, whichever is more
    seen_at: Mapped[float] = mapped_column(Float)  # when it last grew


@dataclass(frozen=True)
class Usage:
    """Bytes of one principal at one site."""

    stored: int
    """Of records, public weights and declarations."""
    pending: int
    """Of uploads that are being received or decoded, and of those in parts, as they were announced."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.stored + self.pending


def usage(session: Session, owner_id: str, site: str, *, without: str | None = None) -> Usage:
    """Return what a principal's files take.

    Args:
        session: a snapshot or a transaction.
        owner_id: owner of the files.
        site: where.
        without: an upload that is not to be counted.
    """
    records = _sum(session, Dataset.bytes, Dataset.owner_id == owner_id, Dataset.site == site)
    weights = _sum(session, PublicWeights.bytes, PublicWeights.owner_id == owner_id, PublicWeights.site == site)
    here: list[Any] = [OpenUpload.owner_id == owner_id, OpenUpload.site == site]
    if without is not None:
        here.append(OpenUpload.id != without)
    pending = _sum(session, OpenUpload.bytes, *here) + parts.pending_bytes(session, owner_id, site)
    return Usage(records + weights, pending)


def _sum(session: Session, column: Any, *where: Any) -> int:  # noqa: ANN401 - any column and conditions
    # SQLite and PostgreSQL sum BIGINT to other types
    return int(session.execute(select(cast(func.coalesce(func.sum(column), 0), BigInteger)).where(*where)).scalar_one())


def lock(session: Session, owner_id: str) -> None:
    """Lock a principal, so that what is counted stays true until the end of the transaction."""
    # FOR NO KEY UPDATE: others may still add rows that refer to the principal.
    session.execute(select(Principal.id).where(Principal.id == owner_id).with_for_update(key_share=True)).scalar_one()


def begin(session: Session, upload_id: str, owner_id: str, site: str, said_bytes: int) -> None:
    """Note an upload that begins, and how long it is said to be."""
    seen_at = clock.read(session)
    session.add(OpenUpload(id=upload_id, owner_id=owner_id, site=site, bytes=said_bytes, seen_at=seen_at))
    session.flush()


def grow(session: Session, upload_id: str, received_bytes: int) -> None:
    """Note how much of an upload has come."""
    grown = {"bytes": func.max(OpenUpload.bytes, received_bytes), "seen_at": clock.read(session)}
    # SQLite's MAX of two values is an aggregate in PostgreSQL, which has GREATEST instead.
    if session.get_bind().dialect.name != "sqlite":
        grown["bytes"] = func.greatest(OpenUpload.bytes, received_bytes)
    session.execute(update(OpenUpload).where(OpenUpload.id == upload_id).values(grown))


def end(session: Session, upload_id: str) -> None:
    """Forget an upload that has become something else, or nothing."""
    session.execute(delete(OpenUpload).where(OpenUpload.id == upload_id))


def remove_silent(session: Session, seconds: float) -> None:
    """Forget uploads that have not grown for so long: the process that received them has died."""
    session.execute(delete(OpenUpload).where(OpenUpload.seen_at < clock.read(session) - seconds))
