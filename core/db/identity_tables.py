"""Tables of what is known of uploads for their owners alone: keys that are wrapped, and what is sealed under them."""

from typing import Any

from sqlalchemy import ForeignKey, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base, Json


class IdentityKey(Base):
    """An owner's key at a site, under which uploads there are compared with each other (`core.ledger.identities`)."""

    __tablename__ = "identity_keys"

    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), primary_key=True)
    site: Mapped[str] = mapped_column(String(40), primary_key=True, server_default="")
    wrapped: Mapped[str] = mapped_column(Text)  # under the site's master key


class Identity(Base):
    """The summary of an upload, for its owner alone: sealed under the owner's key at the site that keeps it."""

    __tablename__ = "identities"

    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    site: Mapped[str] = mapped_column(String(40), server_default="")
    sealed: Mapped[bytes] = mapped_column(LargeBinary)  # core.ledger.identities.OwnedUpload
    moved: Mapped[bool] = mapped_column(default=False, server_default="0")  # its records left for another scope


class IdentityCounts(Base):
    """Rows of an upload counted by a keyed hash of some of its columns, sealed as its identity is."""

    __tablename__ = "identity_counts"

    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    tag: Mapped[str] = mapped_column(String(40), primary_key=True)  # of the set of columns
    sealed: Mapped[bytes] = mapped_column(LargeBinary)


class Draft(Base):
    """A pending dataset that its owner has not sealed: nobody else sees it. The row stays if the draft is erased."""

    __tablename__ = "drafts"

    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    declared: Mapped[Any] = mapped_column(Json)  # the metadata as the owner gave them, without defaults
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)  # core.ledger.identities.Staged; None: no records
