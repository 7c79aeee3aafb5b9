"""What several machines need: retry allowances, devices, priorities, deadlines, wrapped keys and known workers.

And public weights, which networks start from; federated jobs, their clients, and who approved of their models; sites
that keep their own records, and their places in federated jobs; what says whether two uploads are of the same people.

And keys with salted hashes, whose principals can be disabled; caps with every access, which can be taken away.

Revision 0002, which grows until the first release. What it adds has defaults; what it takes away, and what becomes of
the data there, stands at each block.
"""

import secrets

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from sqlalchemy.orm import Session

from core.store import datasets
from core.store.clock import now
from core.store.ledger import charged, ledger
from core.store.tables import Access, Account, Dataset, Scope

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
LIVE_JOBS = {"ix_jobs_live": ["owner_id", "place"], "ix_jobs_live_scope": ["scope_id"]}
JOB_COLUMNS = (
    sa.Column("allowance", JSON, nullable=False, server_default="{}"),
    sa.Column("allowance_spent", JSON, nullable=False, server_default="{}"),
    sa.Column("device", sa.String(length=8), nullable=False, server_default="cpu"),
    sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("expires_at", sa.Float(), nullable=True),
    sa.Column("request_id", sa.String(length=60), nullable=True),
    sa.Column("federation_id", sa.String(length=40), nullable=True),
    sa.Column("place", sa.Integer(), nullable=True),
    sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
)
_FAILURES_BEFORE = (
    "error_code IS NULL OR error_code IN "
    "('trainer-failed', 'worker-lost', 'limit-exceeded', 'diverged', 'gpu-unavailable')"
)
_FAILURES = _FAILURES_BEFORE.replace("'gpu-unavailable'", "'gpu-unavailable', 'access-withdrawn'")

# Units of draws: of an account those that its jobs have reserved, of a job those that it has. Entries from before there
# was a count have none, so accounts begin at 0.
DRAWS = sa.Column("draws", sa.BigInteger(), nullable=False, server_default="0")


_KINDS = (
    "CONSTRAINT ck_entries_kind CHECK (kind IN ('open', 'reserve', 'spend', 'settle', 'compensate', 'freeze', "
    "'unfreeze', 'grant', 'reconcile'))"
)
"""As the first release made it. Which kinds there are is the code's to say: what it cannot read does not verify."""


def _change_check(before: str, after: str) -> None:
    """Change the CHECK of the table of entries where it stands: its rows and its triggers stay as they are.

    SQLite cannot alter a CHECK. To copy the table would drop its triggers; so its definition is edited, as SQLite's
    manual shows for constraints that leave what is stored as it is.
    """
    connection = op.get_bind()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'entries'", (before, after)
    )
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")


def _admit_every_kind() -> None:
    """Take the CHECK of the kinds of entries away."""
    if op.get_bind().dialect.name == "sqlite":
        _change_check(f"{_KINDS}, ", "")
    else:
        op.drop_constraint(op.f("ck_entries_kind"), "entries", type_="check")


def _admit_first_kinds() -> None:
    """Put the CHECK back, or refuse where there are entries that it forbids."""
    connection = op.get_bind()
    condition = _KINDS.partition("CHECK ")[2]
    forbidden = f"SELECT kind FROM entries WHERE NOT {condition} LIMIT 1"  # noqa: S608 - a constant of ours
    found = connection.exec_driver_sql(forbidden).scalar_one_or_none()
    if found is not None:
        raise RuntimeError(f"The ledger has entries of the kind {found!r}, which revision 0001 does not know.")
    if connection.dialect.name == "sqlite":
        _change_check("CONSTRAINT fk_entries_scope_id_scopes", f"{_KINDS}, CONSTRAINT fk_entries_scope_id_scopes")
    else:
        op.execute(f"ALTER TABLE entries ADD {_KINDS}")


def upgrade() -> None:
    _keep_salted_hashes_of_keys()
    # The ledger: kinds of entries that the first release did not know.
    _admit_every_kind()
    op.add_column("accounts", DRAWS._copy())
    op.add_column("jobs", DRAWS._copy())
    # The ledger: whether a scope's witness knows it, and where entries may be missing.
    op.add_column("scopes", sa.Column("witnessed", sa.Boolean(), nullable=False, server_default="0"))
    op.add_column("scopes", sa.Column("unwitnessed", JSON, nullable=False, server_default="[]"))
    _widen_check("jobs", "error_code", _FAILURES_BEFORE, _FAILURES)
    op.add_column("accounts", sa.Column("closed_at", sa.Float(), nullable=True))
    for column in JOB_COLUMNS:
        op.add_column("jobs", column._copy())
    op.create_index("ix_jobs_ended", "jobs", ["finished_at"])
    op.create_index(
        "ix_jobs_queued",
        "jobs",
        ["site", "owner_id", "priority", "created_at", "device"],
        sqlite_where=sa.text("state = 'queued' AND place IS NULL"),
        postgresql_where=sa.text("state = 'queued' AND place IS NULL"),
    )
    # Jobs that have not ended: every submission counts its principal's, and every verification compares its scope's.
    for name, columns in LIVE_JOBS.items():
        op.create_index(
            name,
            "jobs",
            columns,
            sqlite_where=sa.text("finished_at IS NULL"),
            postgresql_where=sa.text("finished_at IS NULL"),
        )
    op.create_index("ix_jobs_federation", "jobs", ["federation_id", "place"])
    op.create_index(
        "ix_jobs_certify",
        "jobs",
        ["id"],
        sqlite_where=sa.text("optimizer = 'certify'"),
        postgresql_where=sa.text("optimizer = 'certify'"),
    )
    op.add_column("datasets", sa.Column("wrapped_key", sa.Text(), nullable=True))
    op.add_column("datasets", sa.Column("site", sa.String(length=40), nullable=False, server_default=""))
    # What a job's certificate says of the code and the libraries that computed it.
    op.add_column("attempts", sa.Column("software", JSON, nullable=True))
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("queues", sa.String(length=16), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
        sa.Column("meets", sa.Boolean(), nullable=False, server_default="0"),
        sa.Column("version", sa.String(length=40), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "public_weights",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
        sa.Column("tensors", JSON, nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=100), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_public_weights_owner_id_principals")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_public_weights")),
        sa.UniqueConstraint("owner_id", "digest", "site", name=op.f("uq_public_weights_owner_id_digest_site")),
    )
    op.create_index("ix_public_weights_owner_id", "public_weights", ["owner_id"])
    _let_archived_lines_go()
    # Disk that each principal's files take: what is stored, and what is on its way.
    op.add_column("datasets", sa.Column("bytes", sa.BigInteger(), nullable=True))
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_uploads_owner_id_principals")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_owner_id", "uploads", ["owner_id"])
    op.create_table(
        "approvals",
        sa.Column("model_id", sa.String(length=40), nullable=False),
        sa.Column("scope_id", sa.String(length=40), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.CheckConstraint("verdict IN ('pending', 'approved', 'rejected')", name=op.f("ck_approvals_verdict")),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_approvals_model_id_models")),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name=op.f("fk_approvals_scope_id_scopes")),
        sa.PrimaryKeyConstraint("model_id", "scope_id", name=op.f("pk_approvals")),
    )
    op.create_table(
        "seats",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.Column("public_key", sa.String(length=100), nullable=False),
        sa.Column("sealed_key", sa.Text(), nullable=True),
        sa.Column("address", sa.String(length=300), nullable=True),
        sa.Column("outcome", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_seats_job_id_jobs")),
        sa.PrimaryKeyConstraint("job_id", "site", name=op.f("pk_seats")),
    )
    _keep_sums_of_what_was_charged()
    _keep_how_far_chains_were_verified()
    _keep_identities_in_place_of_digests()
    _give_every_access_its_cap()
    _add_up_what_was_charged()


def _keep_sums_of_what_was_charged() -> None:
    """Make the table of how often each scope was charged for each event, and columns for what that adds up to.

    Both are filled last of all steps.
    """
    for column in ("gaussian_rho", "other_rho"):
        op.add_column("scopes", sa.Column(column, sa.String(length=80), nullable=False, server_default="0"))
    op.add_column("scopes", sa.Column("unpriced", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "scope_events",
        sa.Column("scope_id", sa.String(length=40), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("times >= 0", name=op.f("ck_scope_events_times")),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name=op.f("fk_scope_events_scope_id_scopes")),
        sa.PrimaryKeyConstraint("scope_id", "digest", name=op.f("pk_scope_events")),
    )


def _keep_how_far_chains_were_verified() -> None:
    """Make the table of how far chains were verified; the first verification of each fills it."""
    op.create_table(
        "verified_heads",
        sa.Column("scope_id", sa.String(length=40), nullable=False),
        sa.Column("maker", sa.String(length=16), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name=op.f("fk_verified_heads_scope_id_scopes")),
        sa.PrimaryKeyConstraint("scope_id", "maker", name=op.f("pk_verified_heads")),
    )


def _add_up_what_was_charged() -> None:
    """Add up each chain's entries once; from here on every entry changes the sums itself."""
    session = Session(bind=op.get_bind())
    for scope_id in session.execute(sa.select(Scope.id).order_by(Scope.id)).scalars().all():
        charged.add_up(session, scope_id)
    session.flush()


def _keep_identities_in_place_of_digests() -> None:
    """Drop digests of uploaded bytes with their key, which lay in the clear; datasets have random fingerprints.

    What was stored before has no identity: its owner joins its scope, or states why later uploads are of others.
    """
    op.add_column("datasets", sa.Column("fingerprint", sa.String(length=40), nullable=True))
    op.create_table(
        "identity_keys",
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_identity_keys_owner_id_principals")),
        sa.PrimaryKeyConstraint("owner_id", "site", name=op.f("pk_identity_keys")),
    )
    op.create_table(
        "identities",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("site", sa.String(length=40), nullable=False, server_default=""),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("moved", sa.Boolean(), nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_identities_dataset_id_datasets")),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_identities_owner_id_principals")),
        sa.PrimaryKeyConstraint("dataset_id", name=op.f("pk_identities")),
    )
    op.create_index("ix_identities_owner_id", "identities", ["owner_id"])
    op.create_table(
        "identity_counts",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("tag", sa.String(length=40), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_identity_counts_dataset_id_datasets")),
        sa.PrimaryKeyConstraint("dataset_id", "tag", name=op.f("pk_identity_counts")),
    )
    bind = op.get_bind()
    datasets = sa.table("datasets", sa.column("id"), sa.column("scope_id"), sa.column("fingerprint"))
    drawn = {}
    for dataset_id in bind.execute(sa.select(datasets.c.id).where(datasets.c.scope_id.is_not(None))).scalars().all():
        drawn[dataset_id] = f"fp_{secrets.token_hex(16)}"
        bind.execute(sa.update(datasets).where(datasets.c.id == dataset_id).values(fingerprint=drawn[dataset_id]))
    answers = sa.table(
        "idempotency", *map(sa.column, ("principal_id", "route", "key")), sa.column("body", JSON)
    )
    replays = sa.select(answers).where(answers.c.route == "POST /v1/datasets", answers.c.body.is_not(None))
    for owner, route, key, body in bind.execute(replays).all():
        if body is not None and "digest" in body:
            shown = {name: value for name, value in body.items() if name != "digest"}
            where = (answers.c.principal_id == owner, answers.c.route == route, answers.c.key == key)
            values = {"body": shown | {"fingerprint": drawn.get(body["id"])}}
            bind.execute(sa.update(answers).where(*where).values(values))
    stored = sa.table("secrets", sa.column("name"))
    bind.execute(sa.delete(stored).where(stored.c.name == "digest-key"))
    with op.batch_alter_table("datasets") as batch:
        batch.drop_constraint("uq_datasets_owner_id_digest", type_="unique")
        batch.drop_column("digest")


def _widen_check(table: str, name: str, before: str, after: str) -> None:
    """Put another condition into the place of a table's CHECK.

    SQLite would have to copy the table, and to drop the one that others refer to; it has a way of its own for
    conditions (https://sqlite.org/lang_altertable.html, section 7), which leaves rows, indexes and triggers alone.
    """
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, after)
        return
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = ? AND instr(sql, ?) > 0",
        (before, after, table, before),
    )
    assert changed.rowcount == 1, f"{table} has the condition {name}"
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")


def _give_every_access_its_cap() -> None:
    """Write down what access meant without a cap, all of the budget, in each scope's chain; last of all steps.

    A cap without access gave sight of all of the scope's datasets: these rows are stored now. Access to a dataset that
    has no records, and so no budget, goes: its owner gives it again.
    """
    session = Session(bind=op.get_bind())
    ready = sa.select(Dataset.id).where(Dataset.scope_id.is_not(None))
    session.execute(sa.delete(Access).where(Access.dataset_id.not_in(ready)))
    held = sa.select(Account.principal_id, Dataset.id).join(Dataset, Dataset.scope_id == Account.scope_id)
    for principal_id, dataset_id in session.execute(held.where(Account.principal_id.is_not(None))).all():
        datasets.give_access(session, dataset_id, principal_id)
    given = sa.select(Access.principal_id, Dataset.scope_id).join(Dataset, Dataset.id == Access.dataset_id).distinct()
    capped = sa.exists().where(Account.scope_id == Dataset.scope_id, Account.principal_id == Access.principal_id)
    found = session.execute(given.where(~capped, Dataset.owner_id != Access.principal_id)).all()
    for principal_id, scope_id in sorted(found):
        terms = ledger.balance(session, scope_id).terms
        ledger.set_grant(session, scope_id, principal_id, terms, {"cap": "all"}, actor="migration")
    session.flush()


def _keep_salted_hashes_of_keys() -> None:
    """Drop hashes without a salt, and first letters of secrets; principals can be disabled.

    A key of before cannot be given a salt, for nobody has its text; whether an operator's own was any good nobody can
    tell from its hash. So all of them end here: `farthing admin-key` makes an admin's, who makes those of the others.
    """
    op.add_column("principals", sa.Column("disabled_at", sa.Float(), nullable=True))
    op.add_column("principals", sa.Column("disabled_reason", sa.Text(), nullable=True))
    keys = sa.table("api_keys", sa.column("revoked_at"), sa.column("created_at"))
    op.execute(sa.update(keys).where(keys.c.revoked_at.is_(None)).values(revoked_at=now()))
    with op.batch_alter_table("api_keys") as batch:
        batch.drop_constraint("uq_api_keys_sha256", type_="unique")
        batch.drop_column("sha256")
        batch.drop_column("prefix")
        batch.add_column(sa.Column("salt", sa.String(length=32), nullable=True))
        batch.add_column(sa.Column("digest", sa.String(length=64), nullable=True))
        batch.add_column(sa.Column("supplied", sa.Boolean(), nullable=False, server_default="0"))


def _keep_plain_hashes_of_keys() -> None:
    """Undo the above: keys with salts end, for the code of before could not find them."""
    op.execute(sa.delete(sa.table("api_keys")))
    with op.batch_alter_table("api_keys") as batch:
        batch.drop_column("supplied")
        batch.drop_column("digest")
        batch.drop_column("salt")
        batch.add_column(sa.Column("prefix", sa.String(length=16), nullable=False))
        batch.add_column(sa.Column("sha256", sa.String(length=64), nullable=False))
        batch.create_unique_constraint("uq_api_keys_sha256", ["sha256"])
    op.drop_column("principals", "disabled_reason")
    op.drop_column("principals", "disabled_at")


def _keep_digests_in_place_of_identities() -> None:
    """Undo the above; digests do not come back."""
    with op.batch_alter_table("datasets") as batch:
        batch.add_column(sa.Column("digest", sa.String(length=100), nullable=True))
        batch.create_unique_constraint("uq_datasets_owner_id_digest", ["owner_id", "digest"])
        batch.drop_column("fingerprint")
    op.drop_table("identity_counts")
    op.drop_table("identities")
    op.drop_table("identity_keys")


ARCHIVED = "EXISTS (SELECT 1 FROM audit_archives a WHERE OLD.id BETWEEN a.first_id AND a.last_id)"


def _let_archived_lines_go() -> None:
    """Archives of the audit trail: their table only grows, and the trail lets those lines go alone that one names."""
    op.create_table(
        "audit_archives",
        sa.Column("seq", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("first_id", sa.String(length=40), nullable=False),
        sa.Column("last_id", sa.String(length=40), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=80), nullable=False),
        sa.Column("prev_hash", sa.String(length=80), nullable=False),
        sa.Column("hash", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit_archives")),
    )
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_archives_no_{verb.lower()} BEFORE {verb} ON audit_archives "
                "BEGIN SELECT RAISE(ABORT, 'audit_archives is append-only'); END"
            )
        op.execute("DROP TRIGGER audit_no_delete")
        op.execute(
            f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit WHEN NOT {ARCHIVED} "
            "BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END"
        )
        return
    op.execute(
        "CREATE TRIGGER audit_archives_append_only BEFORE UPDATE OR DELETE ON audit_archives "
        "FOR EACH ROW EXECUTE FUNCTION farthing_append_only()"
    )
    op.execute(
        "CREATE TRIGGER audit_archives_no_truncate BEFORE TRUNCATE ON audit_archives "
        "FOR EACH STATEMENT EXECUTE FUNCTION farthing_append_only()"
    )
    op.execute(
        "CREATE FUNCTION farthing_archived_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF TG_OP = 'DELETE' AND {ARCHIVED} THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    op.execute("DROP TRIGGER audit_append_only ON audit")
    op.execute(
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION farthing_archived_only()"
    )


def _keep_all_lines() -> None:
    """Undo the above; lines that are in files stay there."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER audit_no_delete")
        op.execute(
            "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END"
        )
    else:
        op.execute("DROP TRIGGER audit_append_only ON audit")
        op.execute(
            "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit "
            "FOR EACH ROW EXECUTE FUNCTION farthing_append_only()"
        )
        op.execute("DROP FUNCTION farthing_archived_only()")
    op.drop_table("audit_archives")


def downgrade() -> None:
    _keep_plain_hashes_of_keys()
    op.drop_column("attempts", "software")
    _admit_first_kinds()
    _keep_all_lines()
    op.drop_table("verified_heads")
    op.drop_table("scope_events")
    for column in ("unpriced", "other_rho", "gaussian_rho"):
        op.drop_column("scopes", column)
    op.drop_table("uploads")
    op.drop_column("datasets", "bytes")
    _keep_digests_in_place_of_identities()
    op.drop_column("scopes", "unwitnessed")
    op.drop_column("scopes", "witnessed")
    op.execute(sa.text("UPDATE jobs SET error_code = NULL WHERE error_code = 'access-withdrawn'"))
    _widen_check("jobs", "error_code", _FAILURES, _FAILURES_BEFORE)
    op.drop_column("accounts", "closed_at")
    op.drop_table("seats")
    op.drop_table("approvals")
    op.drop_table("public_weights")
    op.drop_table("workers")
    op.drop_column("jobs", "draws")
    op.drop_column("accounts", "draws")
    op.drop_column("datasets", "site")
    op.drop_column("datasets", "wrapped_key")
    op.drop_index("ix_jobs_queued", table_name="jobs")
    op.drop_index("ix_jobs_certify", table_name="jobs")
    for name in LIVE_JOBS:
        op.drop_index(name, table_name="jobs")
    op.drop_index("ix_jobs_federation", table_name="jobs")
    op.drop_index("ix_jobs_ended", table_name="jobs")
    for column in reversed(JOB_COLUMNS):
        op.drop_column("jobs", column.name)
