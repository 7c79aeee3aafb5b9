"""Made-up rows as a CSV file."""

import csv
import io
from collections.abc import Sequence

from core.data.columns import Column
from core.records.decoding.mock import mock_rows


def mock_csv(columns: Sequence[Column], rows: int, *, seed: int = 0) -> str:
    """Return made-up rows as a CSV text with a header; the columns are no arrays."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [column.name for column in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(mock_rows(columns, rows, seed=seed))
    return text.getvalue()
