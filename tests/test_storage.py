"""Records at rest, through the whole service: in an object store, tampered with, under a wrong key, and after erasure.

The service runs as `farthing up` does, with FARTHING_STORAGE_URL=s3://... and a real object store over HTTP.
"""

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.base.settings import ServiceSettings
from core.db.tables import Dataset
from core.records.bucket import Bucket
from core.records.records import kept_of, open_records
from tests.support.embedded import COLUMNS, KEY, ROOT, SEEDS, START_SECONDS, Embedded, embedded, toy_csv
from tests.support.object_store import everything, new_bucket, object_store

MARKER = 54.20731  # an age that is in every file of these tests, and nowhere else
AS_TEXT, AS_NUMBER = b"54.20731", struct.pack("<d", MARKER)


def people() -> bytes:
    """Return new toy rows with one that can be looked for."""
    return toy_csv(2000, seed=next(SEEDS)) + f"{MARKER},b,7.5,yes\n".encode()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket for records, and one for the witness beside it."""
    with object_store():
        name = new_bucket()
        new_bucket(f"{name}-witness")
        yield name


@pytest.fixture(scope="module")
def service(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    home = tmp_path_factory.mktemp("storage") / "home"
    with embedded(home, storage_url=f"s3://{bucket}/records", witness=f"s3://{bucket}-witness") as running:
        yield running


def stored(service: Embedded, dataset: str) -> Dataset:
    database = service.database()
    try:
        with database.read() as session:
            return session.get_one(Dataset, dataset)
    finally:
        database.dispose()


def holding_marker(home: Path, bucket: str) -> list[str]:
    """Return every file and object in which a cell's value stands in the clear."""
    found = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file()}
    found |= everything(bucket) | everything(f"{bucket}-witness")
    assert len(found) > 5
    return [name for name, content in found.items() if AS_TEXT in content or AS_NUMBER in content]


def test_records_are_uploaded_trained_on_and_erased_in_an_object_store(service: Embedded, bucket: str) -> None:
    dataset = service.upload(people())
    row = stored(service, dataset)
    assert row.wrapped_key is not None
    assert f"records/{row.location}" in everything(bucket)
    assert not (service.home / "records").exists() or not list((service.home / "records").iterdir())
    assert service.http.get("/readyz").status_code == 200
    assert service.wait(service.submit(dataset))["state"] == "succeeded"
    assert list((service.home / "spool").iterdir()) == []
    assert not (service.home / "witness.jsonl").exists()
    with open_records(service.settings, kept_of(row)) as file:
        assert AS_NUMBER in file.read()  # it is there, for who has the key
    assert holding_marker(service.home, bucket) == []
    assert service.http.delete(f"/v1/datasets/{dataset}").status_code == 202
    deadline = time.monotonic() + START_SECONDS
    while service.get(f"/v1/datasets/{dataset}")["state"] != "erased" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert stored(service, dataset).wrapped_key is None
    assert f"records/{row.location}" not in everything(bucket)
    assert f"erased/{dataset}" in everything(f"{bucket}-witness")


def test_a_record_is_removed_from_an_object_store(service: Embedded, bucket: str) -> None:
    dataset = service.upload(people())
    before = stored(service, dataset)
    removed = service.http.post(f"/v1/datasets/{dataset}/removals", json={"row": 2001}).json()
    assert removed["destroyed"] is True
    after = stored(service, dataset)
    with open_records(service.settings, kept_of(after)) as file:
        assert AS_NUMBER not in file.read()
    assert f"records/{before.location}" not in everything(bucket)
    assert f"records/{after.location}" in everything(bucket)
    assert f"erased/{before.location}" in everything(f"{bucket}-witness")
    assert list((service.home / "spool").iterdir()) == []
    assert service.wait(service.submit(dataset))["state"] == "succeeded"
    assert service.http.get("/readyz").status_code == 200


@pytest.mark.slow
def test_jobs_on_tampered_records_fail_with_one_code_and_nothing_else_is_told(service: Embedded, bucket: str) -> None:
    dataset, another = service.upload(people()), service.upload(people())
    mine, theirs = (f"records/{stored(service, one).location}" for one in (dataset, another))
    place, content = Bucket(f"s3://{bucket}"), everything(bucket)[mine]
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    harms = {
        "flipped": bytes(flipped),
        "cut": content[: len(content) // 2],
        "swapped": everything(bucket)[theirs],
        "frames swapped": content[:16] + content[40:] + content[16:40],
        "gone": None,
    }
    for harm, harmed in harms.items():
        if harmed is None:
            place.erase(mine)
        else:
            place.write(mine, harmed)
        job = service.wait(service.submit(dataset))
        assert (job["state"], job["error"], job["result"]) == ("failed", {"code": "trainer-failed"}, None), harm
        assert service.get(f"/v1/datasets/{dataset}/budget")["budget_share"]["reserved"] == "0"
        assert float(job["cost"]["spent"]["budget_share"]) >= float(job["cost"]["reserved"]["budget_share"]) > 0
    place.write(mine, content)
    assert service.wait(service.submit(dataset))["state"] == "succeeded"


def start(home: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    """Start a service that ought to refuse."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    return subprocess.run(
        [sys.executable, "-m", "workers.embedded", "--home", str(home), "--port", "0"],
        cwd=ROOT,
        env=environment | {"FARTHING_ADMIN_KEY": KEY} | changes,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_wrong_or_lost_master_key_is_said_at_start_and_replaced_by_nobody(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    with embedded(home, workers=0) as service:
        service.upload(people())
        key = (home / "master.key").read_text()
        assert (home / "master.key").stat().st_mode & 0o777 == 0o600
        (home / "master.key").write_text("5up5h5cXkGXnn7q9yfkD9y6iFUGTkQ0j8dvqDUPjPuM=\n")
        unready = service.http.get("/readyz")
        assert (unready.status_code, "give the service the key" in unready.json()["detail"]) == (503, True)
    refused = start(home)
    assert refused.returncode == 1
    assert "Records are encrypted under master key" in refused.stderr
    assert "Traceback" not in refused.stderr
    (home / "master.key").unlink()
    refused = start(home)
    assert refused.returncode == 1
    assert "put its file back" in refused.stderr
    assert not (home / "master.key").exists()
    refused = start(other, FARTHING_CLUSTER="true")
    assert refused.returncode == 1
    assert "FARTHING_MASTER_KEY_FILE" in refused.stderr
    with embedded(home, workers=0, master_key=key.strip()) as service:
        assert service.http.get("/readyz").status_code == 200
        service.upload(people())
    for text in (refused.stderr, (home / "stderr.txt").read_text()):
        assert key.strip() not in text


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_a_storage_that_is_away_refuses_uploads_and_keeps_nothing(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path / "home")
    with embedded(settings.home, workers=0, storage_url="s3://no-such-bucket-here/x") as service:
        unready = service.http.get("/readyz")
        assert (unready.status_code, unready.json()["code"]) == (503, "not-ready")
        metadata = {"name": "toy", "budget": {"epsilon": "1", "delta": "1e-6"}, "columns": COLUMNS}
        parts = [
            ("metadata", (None, json.dumps(metadata), "application/json")),
            ("file", ("toy.csv", people(), "text/csv")),
        ]
        answer = service.http.post("/v1/datasets", files=parts)
        assert answer.status_code == 503, answer.text
        assert "secret" not in answer.text
        assert service.get("/v1/datasets")["data"] == []
        assert list(settings.spool_path.iterdir()) == []
