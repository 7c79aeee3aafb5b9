"""Which revision tables are at, and bringing them to this code's: by Alembic, which takes long to load and few need."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

MIGRATIONS: Final = Path(__file__).resolve().parents[2] / "migrations"


def alembic_config() -> Config:
    """Return the migrations' configuration."""
    return Config(str(MIGRATIONS / "alembic.ini"))


def upgrade(connection: Connection) -> None:
    """Bring tables to this code's revision, in the connection's transaction."""
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def revision_of(connection: Connection) -> str | None:
    """Return the tables' revision, None before the first migration."""
    return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str | None:
    """Return this code's revision."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()
