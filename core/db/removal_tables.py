"""The table of earlier files of datasets from which a record was removed on request."""

from sqlalchemy import Float, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base


class Removal(Base):
    """The file that a dataset had before a record was removed from it; which record it was is kept nowhere."""

    __tablename__ = "removals"

    location: Mapped[str] = mapped_column(String(100), primary_key=True)  # of the earlier file; its key is gone
    dataset_id: Mapped[str] = mapped_column(ForeignKey("datasets.id"), index=True)
    site: Mapped[str] = mapped_column(String(40), server_default="")  # that keeps the records
    removed_at: Mapped[float] = mapped_column(Float)
    destroyed_at: Mapped[float | None] = mapped_column(Float)  # None: a job that began before may read it yet
