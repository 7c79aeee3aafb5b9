"""Reports on how cells were read: sealed, opened by their own dataset's key, and of one length whatever they count."""

import pytest

from core.records.decoding.validation import ColumnReport, ValidationReport, open_report, seal_report
from core.records.encryption import Tampered

KEY = bytes(range(32))


def report(count: int) -> ValidationReport:
    columns = (ColumnReport(name="age", missing=count, filled=count), ColumnReport(name="é", clamped_low=count))
    return ValidationReport(rows=count, incomplete_rows=count, columns=columns)


def test_a_report_is_opened_by_its_own_key_for_its_own_dataset() -> None:
    stored = seal_report(report(7), KEY, "ds_a")
    assert open_report(stored, KEY, "ds_a") == report(7).model_dump(mode="json")
    for key, dataset in ((bytes(32), "ds_a"), (KEY, "ds_b")):
        with pytest.raises(Tampered):
            open_report(stored, key, dataset)


def test_its_length_tells_no_count() -> None:
    lengths = {len(seal_report(report(count), KEY, "ds_a")["sealed"]) for count in (0, 9, 10, 123_456_789, 10**18)}
    assert len(lengths) == 1
