"""Tables of notices: webhooks, mail addresses, deliveries, and how far committed rows were read."""

from typing import Any

from sqlalchemy import CheckConstraint, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base, Id, Json, one_of

DELIVERY_STATES = ("waiting", "delivered", "given-up")


class Webhook(Base):
    """An address to which events of some kinds are posted, whk_...: core.access.webhooks."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))  # once it opens nothing, nothing is posted
    url: Mapped[str] = mapped_column(Text)
    kinds: Mapped[Any] = mapped_column(Json)  # of events
    wrapped: Mapped[str] = mapped_column(Text)  # the secret that signs, under the master key
    previous: Mapped[str | None] = mapped_column(Text)  # the secret before it, the same; it signs too for a day
    previous_until: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[float] = mapped_column(Float)
    failing_since: Mapped[float | None] = mapped_column(Float)  # None: the last attempt was answered well
    off_at: Mapped[float | None] = mapped_column(Float)  # set: nothing but a test is posted
    off_reason: Mapped[str | None] = mapped_column(String(20))


class MailAddress(Base):
    """A principal's email address, eml_...: core.access.emails. The row stays once the address was taken away."""

    __tablename__ = "mail_addresses"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), unique=True)
    address: Mapped[str | None] = mapped_column(String(254))  # None: there is none
    kinds: Mapped[Any] = mapped_column(Json)  # of events
    nonce: Mapped[str] = mapped_column(String(40))  # of the code that confirms the address
    code_until: Mapped[float] = mapped_column(Float)  # then the code confirms nothing
    tries: Mapped[int] = mapped_column(Integer)  # wrong codes since the last one was sent
    codes: Mapped[int] = mapped_column(Integer)  # that were sent since `codes_since`
    codes_since: Mapped[float] = mapped_column(Float)
    sent_at: Mapped[float] = mapped_column(Float)  # when the last code was asked for
    confirmed_at: Mapped[float | None] = mapped_column(Float)


class Delivery(Base):
    """A notice for one webhook or one mail address, msg_...: core.access.deliveries."""

    __tablename__ = "deliveries"
    __table_args__ = (
        CheckConstraint(one_of("state", DELIVERY_STATES), name="state"),
        UniqueConstraint("target_id", "source"),
        Index("ix_deliveries_due", "state", "next_at"),
    )

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    principal_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    target_id: Mapped[str] = mapped_column(Id)  # whk_... or eml_...
    kind: Mapped[str] = mapped_column(String(40))
    source: Mapped[str] = mapped_column(String(160))  # what happened: once for each target
    data: Mapped[Any] = mapped_column(Json)  # identifiers
    happened_at: Mapped[float] = mapped_column(Float)
    created_at: Mapped[float] = mapped_column(Float)
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer)
    next_at: Mapped[float] = mapped_column(Float)
    held_until: Mapped[float | None] = mapped_column(Float)  # by the process that sends it; then another one may
    status: Mapped[int | None] = mapped_column(Integer)  # of the last answer
    trouble: Mapped[str | None] = mapped_column(String(40))  # of the last attempt, in a word
    ended_at: Mapped[float | None] = mapped_column(Float)


class NoticeMark(Base):
    """A time that readers of committed rows keep: their progress, or the start of a condition."""

    __tablename__ = "notice_marks"

    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    at: Mapped[float] = mapped_column(Float)
