"""Mock jobs have a table of their own.

Revision 0003.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
STATES = "'queued', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled', 'expired'"
CODES = (
    "'trainer-failed', 'worker-lost', 'limit-exceeded', 'diverged', 'gpu-unavailable', 'access-withdrawn', "
    "'client-lost'"
)


def upgrade() -> None:
    op.create_table(
        "mock_jobs",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("owner_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), sa.ForeignKey("datasets.id"), nullable=False, index=True),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("columns", JSON, nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("adjacency", sa.String(length=16), nullable=False),
        sa.Column("terms", JSON, nullable=False),
        sa.Column("schedule", JSON, nullable=False),
        sa.Column("cost", JSON, nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("history", JSON, nullable=False),
        sa.Column("release", JSON, nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("error_code", sa.String(length=40), nullable=True),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("request_id", sa.String(length=60), nullable=True),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.CheckConstraint("substr(id, 1, 5) = 'mock_'", name="id"),
        sa.CheckConstraint(f"state IN ({STATES})", name="state"),
        sa.CheckConstraint(f"error_code IS NULL OR error_code IN ({CODES})", name="error_code"),
    )
    op.create_index("ix_mock_jobs_owner_created", "mock_jobs", ["owner_id", "created_at"])
    live = sa.text("finished_at IS NULL")
    op.create_index(
        "ix_mock_jobs_live", "mock_jobs", ["state", "owner_id"], sqlite_where=live, postgresql_where=live
    )


def downgrade() -> None:
    op.drop_table("mock_jobs")
