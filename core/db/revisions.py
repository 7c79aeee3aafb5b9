"""Which revision tables are at, and bringing them to this code's: by Alembic, which takes long to load and few need."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from core.base.errors import NotReady

MIGRATIONS: Final = Path(__file__).resolve().parents[2] / "migrations"
REVISION_TABLE: Final = "schema_revision"
"""Where the revision is kept. Databases of before 0.1.0 kept theirs in Alembic's usual table, under numbers that mean
something else now, which tells them apart."""

_UNRELEASED: Final = "alembic_version"


def alembic_config() -> Config:
    """Return the migrations' configuration."""
    return Config(str(MIGRATIONS / "alembic.ini"))


def upgrade(connection: Connection) -> None:
    """Bring tables to this code's revision, in the connection's transaction.

    Tables that are one revision ahead stay as they are: this code serves them while a newer release takes over.

    Raises:
        NotReady: the tables are of before 0.1.0, or of a release later than the next one; nothing was changed.
    """
    refuse_unreleased(connection)
    found, head = revision_of(connection), head_revision()
    if found is not None and head is not None and int(found) > int(head):
        if int(found) - int(head) > 1:
            raise NotReady(f"These tables are of revision {found} and this code of {head}: start a newer release.")
        return
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def refuse_unreleased(connection: Connection) -> None:
    """Refuse tables of before the first release.

    Raises:
        NotReady: they are.
    """
    if inspect(connection).has_table(_UNRELEASED):
        raise NotReady(
            "This database was made before 0.1.0, the first release, which reads none such; nothing was changed. Start "
            "with a new home, or an empty database, and keep the old one: it says what was spent on its records, so "
            "count that against the budgets that you declare for the same people."
        )


def revision_of(connection: Connection) -> str | None:
    """Return the tables' revision, None before the first migration."""
    context = MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE})
    return context.get_current_revision()


def head_revision() -> str | None:
    """Return this code's revision."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()
