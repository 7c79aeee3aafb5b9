"""Earlier files of datasets from which a record was removed have a table.

Revision 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "removals",
        sa.Column("location", sa.String(length=100), primary_key=True),
        sa.Column("dataset_id", sa.String(length=40), sa.ForeignKey("datasets.id"), nullable=False, index=True),
        sa.Column("site", sa.String(length=40), server_default="", nullable=False),
        sa.Column("removed_at", sa.Float(), nullable=False),
        sa.Column("destroyed_at", sa.Float(), nullable=True),
    )


def downgrade() -> None:
    op.drop_table("removals")
