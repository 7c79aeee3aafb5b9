"""Every table of the first release, and the triggers that keep the ledger and the audit append-only.

Revision 0001, the first. Suits the code that is running now: expand, then contract.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


APPEND_ONLY = ("entries", "audit")


def _forbid_changes(table: str) -> None:
    """Make UPDATE, DELETE and, where there is one, TRUNCATE of a table fail."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        return
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION farthing_append_only()"
    )
    op.execute(
        f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION farthing_append_only()"
    )


def upgrade() -> None:
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
    op.create_table('principals',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('role', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.CheckConstraint("role IN ('owner', 'analyst', 'auditor', 'admin')", name=op.f('ck_principals_role')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_principals'))
    )
    op.create_table('secrets',
    sa.Column('name', sa.String(length=40), nullable=False),
    sa.Column('value', sa.String(length=200), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_secrets'))
    )
    op.create_table('api_keys',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=False),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('prefix', sa.String(length=16), nullable=False),
    sa.Column('sha256', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.Column('expires_at', sa.Float(), nullable=True),
    sa.Column('revoked_at', sa.Float(), nullable=True),
    sa.Column('last_used_at', sa.Float(), nullable=True),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_api_keys_principal_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_keys')),
    sa.UniqueConstraint('sha256', name=op.f('uq_api_keys_sha256'))
    )
    op.create_index(op.f('ix_api_keys_principal_id'), 'api_keys', ['principal_id'], unique=False)
    op.create_table('idempotency',
    sa.Column('principal_id', sa.String(length=40), nullable=False),
    sa.Column('route', sa.String(length=100), nullable=False),
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('request_hash', sa.String(length=64), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('body', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=True),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['principal_id'], ['principals.id'], name=op.f('fk_idempotency_principal_id_principals')),
    sa.PrimaryKeyConstraint('principal_id', 'route', 'key', name=op.f('pk_idempotency'))
    )
    op.create_table('scopes',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('unit', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('adjacency', sa.String(length=16), nullable=False),
    sa.Column('units', sa.BigInteger(), nullable=False),
    sa.Column('frozen_reason', sa.Text(), nullable=True),
    sa.Column('approval', sa.Boolean(), nullable=False),
    sa.Column('seq', sa.BigInteger(), nullable=False),
    sa.Column('head', sa.String(length=80), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_scopes_owner_id_principals')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_scopes'))
    )
    op.create_index(op.f('ix_scopes_owner_id'), 'scopes', ['owner_id'], unique=False)
    op.create_table('accounts',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('principal_id', sa.String(length=40), nullable=True),
    sa.Column('epsilon', sa.String(length=32), nullable=False),
    sa.Column('delta', sa.String(length=32), nullable=False),
    sa.Column('declared', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
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
    sa.Column('request', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('columns', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('rows', sa.BigInteger(), nullable=True),
    sa.Column('digest', sa.String(length=100), nullable=True),
    sa.Column('location', sa.Text(), nullable=True),
    sa.Column('location_digest', sa.String(length=100), nullable=True),
    sa.Column('validation', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=True),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.CheckConstraint("state IN ('pending', 'ready', 'erasing', 'erased')", name=op.f('ck_datasets_state')),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_datasets_owner_id_principals')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_datasets_scope_id_scopes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_datasets')),
    sa.UniqueConstraint('owner_id', 'digest', name=op.f('uq_datasets_owner_id_digest'))
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
    sa.CheckConstraint("kind IN ('open', 'reserve', 'spend', 'settle', 'compensate', 'freeze', 'unfreeze', 'grant', 'reconcile')", name=op.f('ck_entries_kind')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_entries_scope_id_scopes')),
    sa.PrimaryKeyConstraint('scope_id', 'seq', name=op.f('pk_entries')),
    sa.UniqueConstraint('job_id', 'attempt', 'chunk', 'scope_id', 'kind', name=op.f('uq_entries_job_id_attempt_chunk_scope_id_kind'))
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
    op.create_table('jobs',
    sa.Column('id', sa.String(length=40), nullable=False),
    sa.Column('owner_id', sa.String(length=40), nullable=False),
    sa.Column('dataset_id', sa.String(length=40), nullable=False),
    sa.Column('scope_id', sa.String(length=40), nullable=False),
    sa.Column('grant_id', sa.String(length=40), nullable=True),
    sa.Column('spec', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('optimizer', sa.String(length=60), nullable=False),
    sa.Column('price', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('schedule', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('chunks', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('error_code', sa.String(length=40), nullable=True),
    sa.Column('step', sa.Integer(), nullable=False),
    sa.Column('steps', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('chunks_spent', sa.Integer(), nullable=False),
    sa.Column('fence_epoch', sa.String(length=40), nullable=False),
    sa.Column('fence', sa.BigInteger(), nullable=False),
    sa.Column('worker', sa.String(length=200), nullable=True),
    sa.Column('lease_until', sa.Float(), nullable=True),
    sa.Column('labels', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('event_seq', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.Column('started_at', sa.Float(), nullable=True),
    sa.Column('finished_at', sa.Float(), nullable=True),
    sa.CheckConstraint("error_code IS NULL OR error_code IN ('trainer-failed', 'worker-lost', 'limit-exceeded', 'diverged', 'gpu-unavailable')", name=op.f('ck_jobs_error_code')),
    sa.CheckConstraint("state IN ('queued', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled', 'expired')", name=op.f('ck_jobs_state')),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_jobs_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['owner_id'], ['principals.id'], name=op.f('fk_jobs_owner_id_principals')),
    sa.ForeignKeyConstraint(['scope_id'], ['scopes.id'], name=op.f('fk_jobs_scope_id_scopes')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_jobs'))
    )
    op.create_index(op.f('ix_jobs_dataset_id'), 'jobs', ['dataset_id'], unique=False)
    op.create_index(op.f('ix_jobs_owner_id'), 'jobs', ['owner_id'], unique=False)
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
    sa.Column('data', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
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
    sa.Column('release', sa.JSON().with_variant(postgresql.JSONB(astext_type=sa.Text()), 'postgresql'), nullable=False),
    sa.Column('approval', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.Float(), nullable=False),
    sa.ForeignKeyConstraint(['dataset_id'], ['datasets.id'], name=op.f('fk_models_dataset_id_datasets')),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_models_job_id_jobs')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_models')),
    sa.UniqueConstraint('job_id', name=op.f('uq_models_job_id'))
    )
    op.create_index(op.f('ix_models_dataset_id'), 'models', ['dataset_id'], unique=False)
    if op.get_bind().dialect.name != "sqlite":
        op.execute(
            "CREATE FUNCTION farthing_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table in APPEND_ONLY:
        _forbid_changes(table)


def downgrade() -> None:
    op.drop_index(op.f('ix_models_dataset_id'), table_name='models')
    op.drop_table('models')
    op.drop_index(op.f('ix_labels_value'), table_name='labels')
    op.drop_table('labels')
    op.drop_table('job_events')
    op.drop_table('checkpoints')
    op.drop_table('attempts')
    op.drop_index('ix_jobs_waiting', table_name='jobs')
    op.drop_index(op.f('ix_jobs_scope_id'), table_name='jobs')
    op.drop_index(op.f('ix_jobs_owner_id'), table_name='jobs')
    op.drop_index(op.f('ix_jobs_dataset_id'), table_name='jobs')
    op.drop_table('jobs')
    op.drop_index(op.f('ix_access_principal_id'), table_name='access')
    op.drop_table('access')
    op.drop_table('entries')
    op.drop_index(op.f('ix_datasets_scope_id'), table_name='datasets')
    op.drop_index(op.f('ix_datasets_owner_id'), table_name='datasets')
    op.drop_table('datasets')
    op.drop_index(op.f('ix_accounts_scope_id'), table_name='accounts')
    op.drop_table('accounts')
    op.drop_index(op.f('ix_scopes_owner_id'), table_name='scopes')
    op.drop_table('scopes')
    op.drop_table('idempotency')
    op.drop_index(op.f('ix_api_keys_principal_id'), table_name='api_keys')
    op.drop_table('api_keys')
    op.drop_table('secrets')
    op.drop_table('principals')
    op.drop_index(op.f('ix_audit_target'), table_name='audit')
    op.drop_index(op.f('ix_audit_principal_id'), table_name='audit')
    op.drop_table('audit')
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION farthing_append_only()")
