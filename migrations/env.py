"""Alembic's way to the database: a connection that was handed over, or the service's own settings."""

from alembic import context
from sqlalchemy import Connection

from core.access.archives import AuditArchive
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.revisions import REVISION_TABLE, refuse_unreleased
from core.db.tables import Job
from core.jobs.mocks import MockJob
from core.jobs.presence import SiteSlot
from core.records.quotas import OpenUpload

TABLES = Job.metadata
"""Of all tables."""
assert MockJob.metadata is SiteSlot.metadata is TABLES is OpenUpload.metadata is AuditArchive.metadata, (
    "tables of several modules have one list"
)


def _run(connection: Connection) -> None:
    """Run the migrations in the connection's transaction."""
    context.configure(
        connection=connection, target_metadata=TABLES, transactional_ddl=True, version_table=REVISION_TABLE
    )
    with context.begin_transaction():
        context.run_migrations()


handed_over = context.config.attributes.get("connection")
if context.is_offline_mode():
    context.configure(
        url=ServiceSettings().url, target_metadata=TABLES, literal_binds=True, version_table=REVISION_TABLE
    )
    with context.begin_transaction():
        context.run_migrations()
elif handed_over is not None:
    _run(handed_over)
else:
    database = Database(ServiceSettings().url)
    with database.engine.connect() as own:
        refuse_unreleased(own)
        _run(own)
        own.commit()
    database.dispose()
