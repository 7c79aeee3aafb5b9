"""Tables beside scopes and jobs: answered requests, audit, sign-ins, invitations, values made once, verified heads."""

from typing import Any

from sqlalchemy import BigInteger, Float, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base, Id, Json


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
    """Lines of the audit log: evt_...; append-only."""

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


class VerifiedHead(Base):
    """Marks of verified chains, under a code that needs the master key: core.ledger.marks."""

    __tablename__ = "verified_heads"

    scope_id: Mapped[str] = mapped_column(ForeignKey("scopes.id"), primary_key=True)
    maker: Mapped[str] = mapped_column(String(16), primary_key=True)  # the name of the key
    seq: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(Text)  # canonical JSON of a core.ledger.states.State
    code: Mapped[str] = mapped_column(String(64))  # HMAC-SHA-256 of `state`
    made_at: Mapped[float] = mapped_column(Float)


class ConsoleSession(Base):
    """A sign-in to the console that goes on: core.access.sessions."""

    __tablename__ = "console_sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)  # of the cookie
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    begun_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float, index=True)


class SignInLink(Base):
    """A link that begins one session and waits to be used."""

    __tablename__ = "sign_in_links"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)  # of the token
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    expires_at: Mapped[float] = mapped_column(Float)


class Invitation(Base):
    """A one-time link by which a new colleague becomes a principal: core.access.invitations."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)  # of the token
    made_by: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    role: Mapped[str] = mapped_column(String(16))
    note: Mapped[str] = mapped_column(String(200))  # for whom, in words
    dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))  # to which it gives access
    budget_cap: Mapped[Any | None] = mapped_column(Json)  # of that access
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)
    withdrawn_at: Mapped[float | None] = mapped_column(Float)
    accepted_at: Mapped[float | None] = mapped_column(Float)
    principal_id: Mapped[str | None] = mapped_column(ForeignKey("principals.id"))  # that accepted it
