"""Every table of 0.1.0, the first release, and the triggers that keep the ledger and the audit log append-only.

Revision 0001. It is released, so it is never edited: a change of the tables is a revision of its own (CONTRIBUTING.md,
"A change of the tables").
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
ARCHIVED = "EXISTS (SELECT 1 FROM audit_archives a WHERE OLD.id BETWEEN a.first_id AND a.last_id)"
"""Of a line of the audit log: an archive holds it, so that it may be deleted here."""


def upgrade() -> None:
    _make_tables()
    if op.get_bind().dialect.name == "sqlite":
        _guard_on_sqlite()
    else:
        _guard_on_postgresql()


def _guard_on_sqlite() -> None:
    """Make UPDATE and DELETE of the ledger, the audit log and its archives fail; archived lines of the audit log may go."""
    for table in ("entries", "audit", "audit_archives"):
        for verb in ("UPDATE", "DELETE"):
            condition = f" WHEN NOT {ARCHIVED}" if (table, verb) == ("audit", "DELETE") else ""
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table}{condition} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def _guard_on_postgresql() -> None:
    """Do the same, and make TRUNCATE fail."""
    op.execute(
        "CREATE FUNCTION farthing_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    op.execute(
        "CREATE FUNCTION farthing_archived_only() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF TG_OP = 'DELETE' AND {ARCHIVED} THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    for table in ("entries", "audit", "audit_archives"):
        check = "farthing_archived_only" if table == "audit" else "farthing_append_only"
        op.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {check}()"
        )
        op.execute(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION farthing_append_only()"
        )


def _make_tables() -> None:
    op.create_table('audit',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=True),
    sa.Column('action', sa.String(length=100), nullable=False),
    sa.Column('target', sa.String(length=200), nullable=True),
    sa.Column('status', sa.Integer(), nullable=False),
    sa.Column('code', sa.String(length=60), nullable=True),
    sa.Column('request_id', sa.String(length=60), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_audit'))
    )
    op.create_index(op.f('ix_audit_principal_id'), 'audit', ['principal_id'], unique=False)
    op.create_index(op.f('ix_audit_target'), 'audit', ['target'], unique=False)
    op.create_table('audit_archives',
    sa.Column('seq', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('first_id', sa.String(length=40), nullable=False),
    sa.Column('last_id', sa.String(length=40), nullable=False),
    sa.Column('lines', sa.Integer(), nullable=False),
    sa.Column('file', sa.String(length=200), nullable=False),
    sa.Column('digest', sa.String(length=80), nullable=False),
    sa.Column('prev_hash', sa.String(length=80), nullable=False),
    sa.Column('hash', sa.String(length=80), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint('seq', name=op.f('pk_audit_archives'))
    )
    op.create_table('principals',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('role', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.Column('disabled_at', sa.Float(), nullable=True),
    sa.Column('disabled_reason', sa.Text(), nullable=True),
    sa.CheckConstraint("role IN ('owner', 'analyst', 'auditor', 'admin')", name=op.f('ck_principals_role')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_principals'))
    )
    op.create_table('secrets',
    sa.Column('name', sa.String(length=40), nullable=False),
    sa.Column('value', sa.String(length=200), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_secrets'))
    )
    op.create_table('workers',
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('queues', sa.String(length=16), nullable=False),
    sa.Column('slots', sa.Integer(), nullable=False),
    sa.Column('gpus', sa.Integer(), nullable=False),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('meets', sa.Boolean(), server_default='0', nullable=False),
    sa.Column('version', sa.String(length=40), nullable=False),
    sa.Column('started_at', sa.Float(), nullable=False),
    sa.Column('seen_at', sa.Float(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_workers'))
    )
    op.create_table('api_keys',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('salt', sa.String(length=32), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('supplied', sa.Boolean(), server_default='0', nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.Column('expires_at', sa.Float(), nullable=True),
    sa.Column('revoked_at', sa.Float(), nullable=True),
    sa.Column('last_used_at', sa.Float(), nullable=True),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_api_keys_principal_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_keys'))
    )
    op.create_index(op.f('ix_api_keys_principal_id'), 'api_keys', ['principal_id'], unique=False)
    op.create_table('idempotency',
    sa.Column('principal_id', sa.String(length=40), nullable=False),
    sa.Column('route', sa.String(length=100), nullable=False),
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('request_hash', sa.String(length=64), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('body', JSON, nullable=True),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_idempotency_principal_id_principals')),
    sa.PrimaryKeyConstraint('principal_id', 'route', 'key', name=op.f('pk_idempotency'))
    )
    op.create_table('identity_keys',
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('wrapped', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_identity_keys_owner_id_principals')),
    sa.PrimaryKeyConstraint('owner_id', 'site', name=op.f('pk_identity_keys'))
    )
    op.create_table('public_weights',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('tensors', JSON, nullable=False),
    sa.Column('bytes', sa.BigInteger(), nullable=False),
    sa.Column('digest', sa.String(length=100), nullable=False),
    sa.Column('location', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_public_weights_owner_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_public_weights')),
    sa.UniqueConstraint('owner_id', 'digest', 'site', name=op.f('uq_public_weights_owner_id_digest_site'))
    )
    op.create_index(op.f('ix_public_weights_owner_id'), 'public_weights', ['owner_id'], unique=False)
    op.create_table('scopes',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('unit', JSON, nullable=False),
    sa.Column('adjacency', sa.String(length=16), nullable=False),
    sa.Column('units', sa.BigInteger(), nullable=False),
    sa.Column('frozen_reason', sa.Text(), nullable=True),
    sa.Column('approval', sa.Boolean(), nullable=False),
    sa.Column('witnessed', sa.Boolean(), server_default='0', nullable=False),
    sa.Column('unwitnessed', JSON, server_default='[]', nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('head', sa.String(length=80), nullable=False),
    sa.Column('gaussian_rho', sa.String(length=80), server_default='0', nullable=False),
    sa.Column('other_rho', sa.String(length=80), server_default='0', nullable=False),
    sa.Column('unpriced', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_scopes_owner_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_scopes'))
    )
    op.create_index(op.f('ix_scopes_owner_id'), 'scopes', ['owner_id'], unique=False)
    op.create_table('uploads',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('bytes', sa.BigInteger(), nullable=False),
    sa.Column('seen_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_uploads_owner_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_uploads'))
    )
    op.create_index(op.f('ix_uploads_owner_id'), 'uploads', ['owner_id'], unique=False)
    op.create_table('accounts',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=True),
    sa.Column('epsilon', sa.String(length=32), nullable=False),
    sa.Column('delta', sa.String(length=32), nullable=False),
    sa.Column('declared', JSON, nullable=False),
    sa.Column('closed_at', sa.Float(), nullable=True),
    sa.Column('order_1', sa.Integer(), nullable=False),
    sa.Column('order_2', sa.Integer(), nullable=False),
    sa.Column('order_3', sa.Integer(), nullable=False),
    sa.Column('order_4', sa.Integer(), nullable=False),
    sa.Column('weight_1', sa.String(length=8), nullable=False),
    sa.Column('weight_2', sa.String(length=8), nullable=False),
    sa.Column('weight_3', sa.String(length=8), nullable=False),
    sa.Column('weight_4', sa.String(length=8), nullable=False),
    sa.Column('cap_1', sa.BigInteger(), nullable=False),
    sa.Column('cap_2', sa.BigInteger(), nullable=False),
    sa.Column('cap_3', sa.BigInteger(), nullable=False),
    sa.Column('cap_4', sa.BigInteger(), nullable=False),
    sa.Column('spent_1', sa.BigInteger(), nullable=False),
    sa.Column('spent_2', sa.BigInteger(), nullable=False),
    sa.Column('spent_3', sa.BigInteger(), nullable=False),
    sa.Column('spent_4', sa.BigInteger(), nullable=False),
    sa.Column('reserved_1', sa.BigInteger(), nullable=False),
    sa.Column('reserved_2', sa.BigInteger(), nullable=False),
    sa.Column('reserved_3', sa.BigInteger(), nullable=False),
    sa.Column('reserved_4', sa.BigInteger(), nullable=False),
    sa.Column('draws', sa.BigInteger(), server_default='0', nullable=False),
    sa.CheckConstraint('spent_1 + reserved_1 <= cap_1 OR spent_2 + reserved_2 <= cap_2 OR spent_3 + reserved_3 <= cap_3 OR spent_4 + reserved_4 <= cap_4', name=op.f('ck_accounts_within_cap')),
    sa.CheckConstraint('spent_1 >= 0 AND reserved_1 >= 0 AND spent_2 >= 0 AND reserved_2 >= 0 AND spent_3 >= 0 AND reserved_3 >= 0 AND spent_4 >= 0 AND reserved_4 >= 0', name=op.f('ck_accounts_signs')),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_accounts_principal_id_principals')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_accounts_scope_id_scopes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_accounts'))
    )
    op.create_index(op.f('ix_accounts_scope_id'), 'accounts', ['scope_id'], unique=False)
    op.create_table('datasets',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=True),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('request', JSON, nullable=False),
    sa.Column('columns', JSON, nullable=False),
    sa.Column('rows', sa.BigInteger(), nullable=True),
    sa.Column('fingerprint', sa.String(length=40), nullable=True),
    sa.Column('location', sa.Text(), nullable=True),
    sa.Column('location_digest', sa.String(length=100), nullable=True),
    sa.Column('bytes', sa.BigInteger(), nullable=True),
    sa.Column('wrapped_key', sa.Text(), nullable=True),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('validation', JSON, nullable=True),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.CheckConstraint("state IN ('pending', 'ready', 'erasing', 'erased')", name=op.f('ck_datasets_state')),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_datasets_owner_id_principals')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_datasets_scope_id_scopes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_datasets'))
    )
    op.create_index(op.f('ix_datasets_owner_id'), 'datasets', ['owner_id'], unique=False)
    op.create_index(op.f('ix_datasets_scope_id'), 'datasets', ['scope_id'], unique=False)
    op.create_table('entries',
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('job_id', sa.String(length=40), nullable=True),
    sa.Column('attempt', sa.Integer(), nullable=True),
    sa.Column('chunk', sa.Integer(), nullable=True),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('prev_hash', sa.String(length=80), nullable=False),
    sa.Column('hash', sa.String(length=80), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_entries_scope_id_scopes')),
    sa.PrimaryKeyConstraint('scope_id', 'seq', name=op.f('pk_entries')),
    sa.UniqueConstraint('job_id', 'attempt', 'chunk', 'scope_id', 'kind', name=op.f('uq_entries_job_id_attempt_chunk_scope_id_kind'))
    )
    op.create_table('scope_events',
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('event', sa.Text(), nullable=False),
    sa.Column('times', sa.BigInteger(), nullable=False),
    sa.CheckConstraint('times >= 0', name=op.f('ck_scope_events_times')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_scope_events_scope_id_scopes')),
    sa.PrimaryKeyConstraint('scope_id', 'digest', name=op.f('pk_scope_events'))
    )
    op.create_table('verified_heads',
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('maker', sa.String(length=16), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('code', sa.String(length=64), nullable=False),
    sa.Column('made_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_verified_heads_scope_id_scopes')),
    sa.PrimaryKeyConstraint('scope_id', 'maker', name=op.f('pk_verified_heads'))
    )
    op.create_table('access',
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_access_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_access_principal_id_principals')),
    sa.PrimaryKeyConstraint('dataset_id', 'principal_id', name=op.f('pk_access'))
    )
    op.create_index(op.f('ix_access_principal_id'), 'access', ['principal_id'], unique=False)
    op.create_table('identities',
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.Column('sealed', sa.LargeBinary(), nullable=False),
    sa.Column('moved', sa.Boolean(), server_default='0', nullable=False),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_identities_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_identities_owner_id_principals')),
    sa.PrimaryKeyConstraint('dataset_id', name=op.f('pk_identities'))
    )
    op.create_index(op.f('ix_identities_owner_id'), 'identities', ['owner_id'], unique=False)
    op.create_table('identity_counts',
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('tag', sa.String(length=40), nullable=False),
    sa.Column('sealed', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_identity_counts_dataset_id_datasets')),
    sa.PrimaryKeyConstraint('dataset_id', 'tag', name=op.f('pk_identity_counts'))
    )
    op.create_table('jobs',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('grant_id', sa.String(length=40), nullable=True),
    sa.Column('spec', JSON, nullable=False),
    sa.Column('optimizer', sa.String(length=60), nullable=False),
    sa.Column('price', JSON, nullable=False),
    sa.Column('schedule', JSON, nullable=False),
    sa.Column('chunks', JSON, nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('error_code', sa.String(length=40), nullable=True),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('steps', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('chunks_spent', sa.Integer(), nullable=False),
    sa.Column('allowance', JSON, server_default='{}', nullable=False),
    sa.Column('allowance_spent', JSON, server_default='{}', nullable=False),
    sa.Column('draws', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('fence_epoch', sa.String(length=40), nullable=False),
    sa.Column('fence', sa.BigInteger(), nullable=False),
    sa.Column('worker', sa.String(length=200), nullable=True),
    sa.Column('lease_until', sa.Float(), nullable=True),
    sa.Column('device', sa.String(length=8), server_default='cpu', nullable=False),
    sa.Column('priority', sa.Integer(), server_default='0', nullable=False),
    sa.Column('expires_at', sa.Float(), nullable=True),
    sa.Column('request_id', sa.String(length=60), nullable=True),
    sa.Column('labels', JSON, nullable=False),
    sa.Column('event_seq', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.Column('started_at', sa.Float(), nullable=True),
    sa.Column('finished_at', sa.Float(), nullable=True),
    sa.Column('federation_id', sa.String(length=40), nullable=True),
    sa.Column('place', sa.Integer(), nullable=True),
    sa.Column('site', sa.String(length=40), server_default='', nullable=False),
    sa.CheckConstraint("error_code IS NULL OR error_code IN ('trainer-failed', 'worker-lost', 'limit-exceeded', 'diverged', 'gpu-unavailable', 'access-withdrawn', 'client-lost')", name=op.f('ck_jobs_error_code')),
    sa.CheckConstraint("state IN ('queued', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled', 'expired')", name=op.f('ck_jobs_state')),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_jobs_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_jobs_owner_id_principals')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_jobs_scope_id_scopes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_jobs'))
    )
    op.create_index('ix_jobs_certify', 'jobs', ['id'], unique=False, sqlite_where=sa.text("optimizer = 'certify'"), postgresql_where=sa.text("optimizer = 'certify'"))
    op.create_index(op.f('ix_jobs_dataset_id'), 'jobs', ['dataset_id'], unique=False)
    op.create_index('ix_jobs_ended', 'jobs', ['finished_at'], unique=False)
    op.create_index('ix_jobs_federation', 'jobs', ['federation_id', 'place'], unique=False)
    op.create_index('ix_jobs_live', 'jobs', ['owner_id', 'place'], unique=False, sqlite_where=sa.text('finished_at IS NULL'), postgresql_where=sa.text('finished_at IS NULL'))
    op.create_index('ix_jobs_live_scope', 'jobs', ['scope_id'], unique=False, sqlite_where=sa.text('finished_at IS NULL'), postgresql_where=sa.text('finished_at IS NULL'))
    op.create_index(op.f('ix_jobs_owner_id'), 'jobs', ['owner_id'], unique=False)
    op.create_index('ix_jobs_queued', 'jobs', ['site', 'owner_id', 'priority', 'created_at', 'device'], unique=False, sqlite_where=sa.text("state = 'queued' AND place IS NULL"), postgresql_where=sa.text("state = 'queued' AND place IS NULL"))
    op.create_index(op.f('ix_jobs_scope_id'), 'jobs', ['scope_id'], unique=False)
    op.create_index('ix_jobs_waiting', 'jobs', ['state', 'created_at'], unique=False)
    op.create_table('attempts',
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('fence', sa.BigInteger(), nullable=False),
    sa.Column('worker', sa.String(length=200), nullable=False),
    sa.Column('started_at', sa.Float(), nullable=False),
    sa.Column('opened_at', sa.Float(), nullable=True),
    sa.Column('ended_at', sa.Float(), nullable=True),
    sa.Column('outcome', sa.String(length=40), nullable=True),
    sa.Column('software', JSON, nullable=True),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_attempts_job_id_jobs')),
    sa.PrimaryKeyConstraint('job_id', 'number', name=op.f('pk_attempts'))
    )
    op.create_table('checkpoints',
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('chunk', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('state', sa.LargeBinary(), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_checkpoints_job_id_jobs')),
    sa.PrimaryKeyConstraint('job_id', 'chunk', name=op.f('pk_checkpoints'))
    )
    op.create_table('job_events',
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('seq', sa.Integer(), nullable=False),
    sa.Column('kind', sa.String(length=40), nullable=False),
    sa.Column('data', JSON, nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_job_events_job_id_jobs')),
    sa.PrimaryKeyConstraint('job_id', 'seq', name=op.f('pk_job_events'))
    )
    op.create_table('labels',
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('key', sa.String(length=64), nullable=False),
    sa.Column('value', sa.String(length=256), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_labels_job_id_jobs')),
    sa.PrimaryKeyConstraint('job_id', 'key', name=op.f('pk_labels'))
    )
    op.create_index(op.f('ix_labels_value'), 'labels', ['value'], unique=False)
    op.create_table('models',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('release', JSON, nullable=False),
    sa.Column('approval', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_models_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_models_job_id_jobs')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_models')),
    sa.UniqueConstraint('job_id', name=op.f('uq_models_job_id'))
    )
    op.create_index(op.f('ix_models_dataset_id'), 'models', ['dataset_id'], unique=False)
    op.create_table('seats',
    sa.Column('job_id', sa.String(length=40), nullable=False),
    sa.Column('site', sa.String(length=40), nullable=False),
    sa.Column('worker', sa.String(length=200), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('until', sa.Float(), nullable=False),
    sa.Column('public_key', sa.String(length=100), nullable=False),
    sa.Column('sealed_key', sa.Text(), nullable=True),
    sa.Column('address', sa.String(length=300), nullable=True),
    sa.Column('outcome', sa.String(length=200), nullable=True),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_seats_job_id_jobs')),
    sa.PrimaryKeyConstraint('job_id', 'site', name=op.f('pk_seats'))
    )
    op.create_table('approvals',
    sa.Column('model_id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('verdict', sa.String(length=16), nullable=False),
    sa.CheckConstraint("verdict IN ('pending', 'approved', 'rejected')", name=op.f('ck_approvals_verdict')),
    sa.ForeignKeyConstraint(['model_id'], ['models.id'], name=op.f('fk_approvals_model_id_models')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_approvals_scope_id_scopes')),
    sa.PrimaryKeyConstraint('model_id', 'scope_id', name=op.f('pk_approvals'))
    )


def downgrade() -> None:
    op.drop_table('approvals')
    op.drop_table('seats')
    op.drop_index(op.f('ix_models_dataset_id'), table_name='models')
    op.drop_table('models')
    op.drop_index(op.f('ix_labels_value'), table_name='labels')
    op.drop_table('labels')
    op.drop_table('job_events')
    op.drop_table('checkpoints')
    op.drop_table('attempts')
    op.drop_index('ix_jobs_waiting', table_name='jobs')
    op.drop_index(op.f('ix_jobs_scope_id'), table_name='jobs')
    op.drop_index('ix_jobs_queued', table_name='jobs', sqlite_where=sa.text("state = 'queued' AND place IS NULL"), postgresql_where=sa.text("state = 'queued' AND place IS NULL"))
    op.drop_index(op.f('ix_jobs_owner_id'), table_name='jobs')
    op.drop_index('ix_jobs_live_scope', table_name='jobs', sqlite_where=sa.text('finished_at IS NULL'), postgresql_where=sa.text('finished_at IS NULL'))
    op.drop_index('ix_jobs_live', table_name='jobs', sqlite_where=sa.text('finished_at IS NULL'), postgresql_where=sa.text('finished_at IS NULL'))
    op.drop_index('ix_jobs_federation', table_name='jobs')
    op.drop_index('ix_jobs_ended', table_name='jobs')
    op.drop_index(op.f('ix_jobs_dataset_id'), table_name='jobs')
    op.drop_index('ix_jobs_certify', table_name='jobs', sqlite_where=sa.text("optimizer = 'certify'"), postgresql_where=sa.text("optimizer = 'certify'"))
    op.drop_table('jobs')
    op.drop_table('identity_counts')
    op.drop_index(op.f('ix_identities_owner_id'), table_name='identities')
    op.drop_table('identities')
    op.drop_index(op.f('ix_access_principal_id'), table_name='access')
    op.drop_table('access')
    op.drop_table('verified_heads')
    op.drop_table('scope_events')
    op.drop_table('entries')
    op.drop_index(op.f('ix_datasets_scope_id'), table_name='datasets')
    op.drop_index(op.f('ix_datasets_owner_id'), table_name='datasets')
    op.drop_table('datasets')
    op.drop_index(op.f('ix_accounts_scope_id'), table_name='accounts')
    op.drop_table('accounts')
    op.drop_index(op.f('ix_uploads_owner_id'), table_name='uploads')
    op.drop_table('uploads')
    op.drop_index(op.f('ix_scopes_owner_id'), table_name='scopes')
    op.drop_table('scopes')
    op.drop_index(op.f('ix_public_weights_owner_id'), table_name='public_weights')
    op.drop_table('public_weights')
    op.drop_table('identity_keys')
    op.drop_table('idempotency')
    op.drop_index(op.f('ix_api_keys_principal_id'), table_name='api_keys')
    op.drop_table('api_keys')
    op.drop_table('workers')
    op.drop_table('secrets')
    op.drop_table('principals')
    op.drop_table('audit_archives')
    op.drop_index(op.f('ix_audit_target'), table_name='audit')
    op.drop_index(op.f('ix_audit_principal_id'), table_name='audit')
    op.drop_table('audit')
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION farthing_archived_only()")
        op.execute("DROP FUNCTION farthing_append_only()")
