"""Tables of files that no dataset names: uploads in parts on their way in, and files whose place another one took."""

from sqlalchemy import BigInteger, Float, ForeignKey, Integer, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base, Id


class PartedUpload(Base):
    """An upload in parts, upl_...; its row goes a day after its last part, or a day after it was completed."""

    __tablename__ = "parted_uploads"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("principals.id"), index=True)
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps the parts
    bytes: Mapped[int] = mapped_column(BigInteger)  # of the whole file, as its owner announced it
    part_bytes: Mapped[int] = mapped_column(BigInteger)  # of each part but the last
    media_type: Mapped[str] = mapped_column(String(100))
    wrapped_key: Mapped[str | None] = mapped_column(Text)  # of the parts, under the site's master key; None: completed
    created_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float, index=True)  # of the last part
    completed_at: Mapped[float | None] = mapped_column(Float)


class UploadPart(Base):
    """One part of an upload: where it is stored, encrypted, and its digest, sealed under the upload's key."""

    __tablename__ = "upload_parts"

    upload_id: Mapped[str] = mapped_column(ForeignKey("parted_uploads.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)  # from 1
    site: Mapped[str] = mapped_column(String(40), server_default="")  # as its upload's
    location: Mapped[str] = mapped_column(String(100), unique=True)  # in the storage
    sealed_digest: Mapped[bytes] = mapped_column(LargeBinary)  # SHA-256 of the part


class Removal(Base):
    """The file that a dataset had before a record was removed from it; which record it was is kept nowhere."""

    __tablename__ = "removals"

    location: Mapped[str] = mapped_column(String(100), primary_key=True)  # of the earlier file; its key is gone
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps the records
    removed_at: Mapped[float] = mapped_column(Float)
    destroyed_at: Mapped[float | None] = mapped_column(Float)  # None: a job that began before may read it yet
