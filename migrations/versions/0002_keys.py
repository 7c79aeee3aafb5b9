"""Keys name their maker and the time from which they open; sign-ins, invitations, drafts, uploads in parts have tables.

Clones name the job that they repeat. Notices have webhooks, mail addresses, deliveries and marks.

Revision 0002. Keys of before have neither: their maker is not known, and they open at once.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("made_by", sa.String(length=40), nullable=True))
    op.add_column("api_keys", sa.Column("starts_at", sa.Float(), nullable=True))
    op.add_column("jobs", sa.Column("clone_of", sa.String(length=40), nullable=True))
    op.execute("UPDATE jobs SET optimizer = 'one_pass_clipped_sgd' WHERE optimizer = 'certified_clipped_sgd'")
    op.drop_index("ix_jobs_certify", table_name="jobs")
    op.execute("UPDATE jobs SET optimizer = 'check_bound' WHERE optimizer = 'certify'")
    checks = sa.text("optimizer = 'check_bound'")
    op.create_index("ix_jobs_check_bound", "jobs", ["id"], sqlite_where=checks, postgresql_where=checks)
    op.create_table(
        "console_sessions",
        sa.Column("digest", sa.String(length=64), primary_key=True),
        sa.Column("key_id", sa.String(length=40), sa.ForeignKey("api_keys.id"), nullable=False, index=True),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False, index=True),
    )
    op.create_table(
        "sign_in_links",
        sa.Column("digest", sa.String(length=64), primary_key=True),
        sa.Column("key_id", sa.String(length=40), sa.ForeignKey("api_keys.id"), nullable=False, index=True),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "drafts",
        sa.Column("dataset_id", sa.String(length=40), sa.ForeignKey("datasets.id"), primary_key=True),
        sa.Column("declared", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
    )

    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("digest", sa.String(length=64), nullable=False, unique=True),
        sa.Column("made_by", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False, index=True),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("note", sa.String(length=200), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), sa.ForeignKey("datasets.id"), nullable=True),
        sa.Column("budget_cap", JSON, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("withdrawn_at", sa.Float(), nullable=True),
        sa.Column("accepted_at", sa.Float(), nullable=True),
        sa.Column("principal_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=True),
    )
    _add_notices()
    _add_uploads_in_parts()


def _add_notices() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("principal_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False, index=True),
        sa.Column("key_id", sa.String(length=40), sa.ForeignKey("api_keys.id"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("kinds", JSON, nullable=False),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("previous_until", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("failing_since", sa.Float(), nullable=True),
        sa.Column("off_at", sa.Float(), nullable=True),
        sa.Column("off_reason", sa.String(length=20), nullable=True),
    )
    op.create_table(
        "mail_addresses",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("principal_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False, unique=True),
        sa.Column("address", sa.String(length=254), nullable=True),
        sa.Column("kinds", JSON, nullable=False),
        sa.Column("nonce", sa.String(length=40), nullable=False),
        sa.Column("code_until", sa.Float(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("codes", sa.Integer(), nullable=False),
        sa.Column("codes_since", sa.Float(), nullable=False),
        sa.Column("sent_at", sa.Float(), nullable=False),
        sa.Column("confirmed_at", sa.Float(), nullable=True),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("principal_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False, index=True),
        sa.Column("target_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("source", sa.String(length=160), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("happened_at", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=False),
        sa.Column("held_until", sa.Float(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("trouble", sa.String(length=40), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.CheckConstraint("state IN ('waiting', 'delivered', 'given-up')", name="state"),
        sa.UniqueConstraint("target_id", "source"),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["state", "next_at"])
    op.create_table(
        "notice_marks",
        sa.Column("name", sa.String(length=120), primary_key=True),
        sa.Column("at", sa.Float(), nullable=False),
    )


def _add_uploads_in_parts() -> None:
    op.create_table(
        "parted_uploads",
        sa.Column("id", sa.String(length=40), primary_key=True),
        sa.Column("dataset_id", sa.String(length=40), sa.ForeignKey("datasets.id"), nullable=False, index=True),
        sa.Column("owner_id", sa.String(length=40), sa.ForeignKey("principals.id"), nullable=False, index=True),
        sa.Column("site", sa.String(length=40), server_default="", nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("part_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.String(length=100), nullable=False),
        sa.Column("wrapped_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False, index=True),
        sa.Column("completed_at", sa.Float(), nullable=True),
    )
    op.create_table(
        "upload_parts",
        sa.Column("upload_id", sa.String(length=40), sa.ForeignKey("parted_uploads.id"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("site", sa.String(length=40), server_default="", nullable=False),
        sa.Column("location", sa.String(length=100), nullable=False, unique=True),
        sa.Column("sealed_digest", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    for table in ("upload_parts", "parted_uploads", "notice_marks", "deliveries", "mail_addresses", "webhooks"):
        op.drop_table(table)
    op.drop_table("drafts")
    op.drop_table("invitations")
    op.drop_table("sign_in_links")
    op.drop_table("console_sessions")
    op.drop_index("ix_jobs_check_bound", table_name="jobs")
    op.execute("UPDATE jobs SET optimizer = 'certify' WHERE optimizer = 'check_bound'")
    checks = sa.text("optimizer = 'certify'")
    op.create_index("ix_jobs_certify", "jobs", ["id"], sqlite_where=checks, postgresql_where=checks)
    op.execute("UPDATE jobs SET optimizer = 'certified_clipped_sgd' WHERE optimizer = 'one_pass_clipped_sgd'")
    op.drop_column("jobs", "clone_of")
    op.drop_column("api_keys", "starts_at")
    op.drop_column("api_keys", "made_by")
