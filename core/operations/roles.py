"""A login of each site to the shared PostgreSQL, with the rights that the site's own API and workers need alone.

The role's name says whose it is: `farthing_site_north`. It owns nothing, so that it can neither change tables nor turn
their triggers off. It makes no principals and no keys, and lifts no freeze. Rows that are one site's (its records,
workers, sessions and weights) are changed by that site's role alone: a trigger checks the role. All else, the ledger
first of all, is shared and has to be: any site's worker settles jobs with clients of all.
"""

from typing import Final

from sqlalchemy.orm import Session

from core.access.archives import AuditArchive
from core.base.errors import Conflict
from core.db.base import Base
from core.db.database import Database
from core.db.notice_tables import Delivery, MailAddress, NoticeMark, Webhook
from core.db.upload_tables import PartedUpload, Removal, UploadPart
from core.jobs.presence import SiteSlot, Worker
from core.jobs.sweep import CONTACT
from core.ledger.claims import FROZEN
from core.records.quotas import OpenUpload

UPLOADS: Final = OpenUpload.__tablename__
_IN_PARTS: Final = (PartedUpload.__tablename__, UploadPart.__tablename__)
PREFIX: Final = "farthing_site_"
_MADE_BY_THE_SERVICE: Final = frozenset(
    {"principals", "api_keys", "console_sessions", "invitations", "sign_in_links", AuditArchive.__tablename__}
)
_NEVER_SEEN: Final = frozenset(
    {Webhook.__tablename__, MailAddress.__tablename__, Delivery.__tablename__, NoticeMark.__tablename__}
)
"""Notices are the service's own: secrets, addresses of people, and what they are written."""
_NEVER_CHANGED: Final = frozenset({"entries", "audit"})
_DELETED_FROM: Final = (
    "access",
    "checkpoints",
    "idempotency",
    "public_weights",
    SiteSlot.__tablename__,
    UPLOADS,
    *_IN_PARTS,
    "verified_heads",
    Worker.__tablename__,
)
_COLUMNS: Final = {"principals": "name", "api_keys": "last_used_at, revoked_at"}
"""Without the right to change some column of a row nobody may lock it."""
_GUARDED: Final = (
    "datasets",
    "identities",
    "identity_keys",
    "public_weights",
    "secrets",
    "seats",
    UPLOADS,
    *_IN_PARTS,
    Removal.__tablename__,
    "workers",
)

_GUARD: Final = f"""
CREATE OR REPLACE FUNCTION farthing_own_site() RETURNS trigger LANGUAGE plpgsql AS $guard$
DECLARE
    own text := substring(current_user::text from '^{PREFIX}(.*)$');
    allowed boolean := true;
BEGIN
    IF own IS NOT NULL AND TG_TABLE_NAME = 'datasets' THEN
        IF TG_OP = 'UPDATE' THEN allowed := OLD.location IS NULL OR OLD.site = own; END IF;
        allowed := allowed AND (NEW.location IS NULL OR NEW.site = own);
    ELSIF own IS NOT NULL AND TG_TABLE_NAME = 'secrets' AND TG_OP = 'UPDATE' THEN
        allowed := NEW.name = OLD.name AND OLD.name IN (
            '{CONTACT}', '{FROZEN}', 'seen-' || left(encode(sha256(convert_to(own, 'UTF8')), 'hex'), 32));
    ELSIF own IS NOT NULL AND TG_TABLE_NAME <> 'secrets' THEN
        IF TG_OP <> 'DELETE' THEN allowed := NEW.site = own; END IF;
        IF TG_OP <> 'INSERT' THEN allowed := allowed AND OLD.site = own; END IF;
        IF TG_TABLE_NAME = 'seats' AND TG_OP = 'UPDATE' AND OLD.site <> own THEN
            -- Whoever completes the sites begins the attempt, and tells every seat so; who sits there it cannot say.
            allowed := (NEW.job_id, NEW.site, NEW.worker, NEW.public_key, NEW.address, NEW.outcome)
                IS NOT DISTINCT FROM (OLD.job_id, OLD.site, OLD.worker, OLD.public_key, OLD.address, OLD.outcome);
        ELSIF TG_TABLE_NAME = 'seats' AND TG_OP = 'DELETE' AND OLD.site <> own THEN
            allowed := EXISTS (SELECT FROM jobs WHERE jobs.id = OLD.job_id AND jobs.finished_at IS NOT NULL);
        ELSIF TG_TABLE_NAME = 'workers' AND TG_OP = 'DELETE' AND OLD.site <> own THEN
            allowed := OLD.seen_at < extract(epoch FROM clock_timestamp()) - 3600;
        END IF;
    END IF;
    IF NOT allowed THEN
        RAISE EXCEPTION 'a row of another site' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $guard$
"""  # noqa: S608 - of constants of ours


def role_of(site: str) -> str:
    """Return the name of a site's role."""
    return f"{PREFIX}{site}"


def make_role(database: Database, site: str) -> str:
    """Make a site's role, or bring its rights up to date; return its name. It cannot log in before it has a password.

    Args:
        database: as its owner, who may make roles.
        site: a site's name, as `FARTHING_SITE` takes it.

    Raises:
        Conflict: the database is SQLite, which has no roles.
        LedgerBusy: others hold its tables; nothing was changed.
    """
    if database.is_sqlite:
        raise Conflict("SQLite has no roles: sites share a PostgreSQL database.")
    return database.transaction(_make, role_of(site))


def _make(session: Session, role: str) -> str:
    """Make a role with its rights, and what triggers are missing.

    Those that are there stay: to make one again locks its table against every writer, and one lock after the other
    crosses those of the sites that run. Their deeds are the function's, which is always made anew.
    """
    connection = session.connection()
    if connection.exec_driver_sql("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).first() is None:
        # CREATE ROLE takes no parameters; the form of a site's name leaves no quote in it.
        connection.exec_driver_sql(f'CREATE ROLE "{role}" LOGIN')
    connection.exec_driver_sql(_GUARD)
    there = set(connection.exec_driver_sql("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").scalars())
    for table in _GUARDED:
        if f"{table}_own_site" not in there:
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_own_site BEFORE INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION farthing_own_site()"
            )
    for right in _rights():
        connection.exec_driver_sql(f'GRANT {right} TO "{role}"')
    return role


def _rights() -> list[str]:
    """Return what a site's role may do, as GRANT spells it."""
    tables = sorted(set(Base.metadata.tables) - _NEVER_SEEN)
    everything = ", ".join([*tables, "schema_revision"])
    added = ", ".join(table for table in tables if table not in _MADE_BY_THE_SERVICE)
    changed = ", ".join(table for table in tables if table not in _MADE_BY_THE_SERVICE | _NEVER_CHANGED)
    return [
        "USAGE ON SCHEMA public",
        f"SELECT ON {everything}",
        f"INSERT ON {added}",
        f"UPDATE ON {changed}",
        f"DELETE ON {', '.join(_DELETED_FROM)}",
        *(f"UPDATE ({columns}) ON {table}" for table, columns in _COLUMNS.items()),
    ]
