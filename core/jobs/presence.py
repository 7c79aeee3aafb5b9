"""Tables of who is there to serve: supervisors, and the places that they take in federated jobs of several sites."""

from sqlalchemy import Float, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.base import Base


class Worker(Base):
    """A supervisor, and when it was last seen; a row that is old says that its machine is gone."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)  # machine:process
    queues: Mapped[str] = mapped_column(String(16))  # cpu | gpu | cpu,gpu
    slots: Mapped[int] = mapped_column(Integer)
    gpus: Mapped[int] = mapped_column(Integer)
    site: Mapped[str] = mapped_column(String(40), server_default="")  # whose records it reads
    meets: Mapped[bool] = mapped_column(server_default="0")  # trainers of other sites can reach its own
    version: Mapped[str] = mapped_column(String(40))
    started_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float)


class SiteSlot(Base):
    """One site's place in a federated job of several: kept free by a worker for a while, then taken in an attempt."""

    __tablename__ = "seats"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    site: Mapped[str] = mapped_column(String(40), primary_key=True)
    worker: Mapped[str] = mapped_column(String(200))
    attempt: Mapped[int] = mapped_column(Integer)  # of the federated job; 0: it is kept free for the next one
    until: Mapped[float] = mapped_column(Float)  # kept free, or leased, until then
    public_key: Mapped[str] = mapped_column(String(100))  # of its worker, for this attempt
    sealed_key: Mapped[str | None] = mapped_column(Text)  # by which the clients know one another, for that key alone
    address: Mapped[str | None] = mapped_column(String(300))  # where they meet, noted by one of them
    outcome: Mapped[str | None] = mapped_column(String(200))  # how its trainers ended, once they have
