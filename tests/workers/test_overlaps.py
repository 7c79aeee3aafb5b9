"""Records that different owners share: an operator's command finds them, and the audit log names the search."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from core.data.columns import ArrayColumn, DateColumn
from core.records.decoding.summary import RowSummary
from tests.api.test_identity import COLUMNS, made, people, send, text
from tests.support.api import ROOT, Service, running
from workers.overlaps import _take


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path / "home") as found:
        yield found


def overlaps(service: Service, *more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "workers.upkeep", "overlaps", "--home", str(service.home), *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_owners_share_is_for_the_operators_host_alone(service: Service) -> None:
    olga, oscar, ottilie = (service.someone("owner")[0] for _ in range(3))
    records = people(1, 3000)  # a third in common is eight deviations above chance, and below a half
    first = made(send(olga, text(records)))
    wider = [column | ({"upper": 100} if column["name"] == "age" else {}) for column in COLUMNS]
    copy = made(send(oscar, text(records[::-1]), columns=wider))  # declared otherwise, and no refusal
    part = made(send(ottilie, text([*records[:1000], *people(2, 2000)])))
    erased = made(send(ottilie, text([*people(3), *records[:100]])))
    assert ottilie.delete(f"/v1/datasets/{erased['id']}").status_code == 202
    told = overlaps(service)
    assert f"{first['id']} of {first['owner']} and {copy['id']} of {copy['owner']}: 1.00" in told
    assert part["id"] not in told
    assert "1 pairs" in told
    lower = overlaps(service, "--above", "0.1")
    share = re.search(f"{first['id']} of {first['owner']} and {part['id']} of {part['owner']}: ([.0-9]+)", lower)
    assert share is not None, lower
    assert float(share[1]) == pytest.approx(1 / 3, abs=0.1)  # five standard deviations
    assert erased["id"] not in lower
    auditor, _ = service.someone("auditor")
    lines = [json.loads(line) for line in auditor.get("/v1/audit/export?format=jsonl").text.splitlines()]
    looked = [line for line in lines if line["action"] == "operator: overlaps"]
    assert len(looked) == 2
    assert {line["target"] for line in looked} == {None}
    for client in (olga, oscar):
        told_owner = client.get(f"/v1/datasets/{first['id'] if client is olga else copy['id']}/identity").json()
        assert told_owner["overlaps"] == []


def test_a_share_out_of_range_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers.upkeep", "overlaps", "--home", str(tmp_path), "--above", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "from 0 to below 1" in done.stderr


def test_stored_cells_are_summarized_as_decoded_ones() -> None:
    """Days from their lower bound on, and arrays with some missing."""
    day = DateColumn.model_validate({"type": "date", "name": "d", "lower": "2000-01-01", "upper": "2001-01-01"})
    image = ArrayColumn(name="a", shape=(2,), lower=0, upper=255)
    summaries = []
    for stored in (True, False):
        made_of = RowSummary([day, image], b"k" * 32)
        first, second = made_of.columns
        if stored:
            _take(first, day, pa.array([0.0, 31.0, np.nan]))
            _take(second, image, pa.array([[1, 2], None, [3, 4]], pa.list_(pa.uint8(), 2)))
        else:
            first.days(np.array([day.lower.toordinal(), day.lower.toordinal() + 31, np.nan], dtype=np.float64))
            second.arrays(3, np.array([0, 2]), np.array([[1.0, 2.0], [3.0, 4.0]]))
        made_of.add()
        summaries.append(made_of.finish())
    assert summaries[0] == summaries[1]
