"""Keys name their maker, and the time from which they open anything.

Revision 0002. Keys of before have neither: their maker is not known, and they open at once.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("made_by", sa.String(length=40), nullable=True))
    op.add_column("api_keys", sa.Column("starts_at", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("api_keys", "starts_at")
    op.drop_column("api_keys", "made_by")
