"""Tables of what the service keeps beside scopes and jobs: answered requests, who asked for what, values made once."""

from typing import Any

from sqlalchemy import Float, ForeignKey, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from core.store.base import Base, Id, Json


class Idempotency(Base):
    """A create request that was answered, or is being answered in an open transaction."""

    __tablename__ = "idempotency"

    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), primary_key=True)
    route: Mapped[str] = mapped_column(String(100), primary_key=True)
    key: Mapped[str] = mapped_column(String(200), primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(64))
    status: Mapped[int | None] = mapped_column(Integer)
    body: Mapped[Any | None] = mapped_column(Json)
    created_at: Mapped[float] = mapped_column(Float)


class Audit(Base):
    """Who asked for what, and how it was answered: evt_...; append-only."""

    __tablename__ = "audit"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    principal_id: Mapped[str | None] = mapped_column(Id, index=True)
    action: Mapped[str] = mapped_column(String(100))
    target: Mapped[str | None] = mapped_column(String(200), index=True)
    status: Mapped[int] = mapped_column(Integer)
    code: Mapped[str | None] = mapped_column(String(60))
    request_id: Mapped[str] = mapped_column(String(60))
    created_at: Mapped[float] = mapped_column(Float)


class Secret(Base):
    """Installation-wide values made once: the ledger's epoch, the installation's id."""

    __tablename__ = "secrets"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[str] = mapped_column(String(200))
