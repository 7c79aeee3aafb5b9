"""Disk: each owner may have so much of it, and what is refused leaves nothing behind."""

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from tests.support.api import Service, csv, metadata, running, upload
from tests.support.load import head, opened, status_of

MOST = 300_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("small"), FARTHING_DISK_BYTES_PER_OWNER=str(MOST)) as found:
        yield found


def usage(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/usage").json()
    return found


def spooled(service: Service) -> int:
    folder = service.home / "spool"
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def test_an_owner_sees_what_is_used_and_what_is_left(small: Service) -> None:
    owner, _ = small.someone("owner")
    assert usage(owner) == {
        "object": "usage",
        "stored_bytes": 0,
        "pending_bytes": 0,
        "most_bytes": MOST,
        "remaining_bytes": MOST,
    }
    made = upload(owner, shift=1)
    after = usage(owner)
    stored = {path.name: path.stat().st_size for path in (small.home / "records").iterdir()}
    assert after["stored_bytes"] == sum(stored.values())
    assert after["pending_bytes"] == 0
    owner.delete(f"/v1/datasets/{made['id']}")
    deadline = time.monotonic() + 60
    while usage(owner)["stored_bytes"]:
        assert time.monotonic() < deadline, "what is erased is given back"
        time.sleep(0.5)


def test_one_that_says_to_be_too_large_is_refused_before_its_body(small: Service) -> None:
    """At 9f63d67 an owner could fill the disk, 2 GiB an upload."""
    _, made = small.someone("owner")
    kind = "multipart/form-data; boundary=x"
    with opened(small, head("/v1/datasets", made["key"], MOST + 1, kind=kind)) as connection:
        assert status_of(connection, 10) == 413


def test_one_that_does_not_say_is_refused_on_its_way_and_leaves_nothing(small: Service) -> None:
    owner, _ = small.someone("owner")
    before = small.files()

    def pieces() -> Iterator[bytes]:
        text = json.dumps(metadata())
        yield f'--x\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{text}\r\n'.encode()
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="p.csv"\r\nContent-Type: text/csv\r\n\r\n'
        yield csv(400)
        for _ in range(60):
            yield b"18,other,no\n" * 1000
        yield b"\r\n--x--\r\n"

    answer = owner.post("/v1/datasets", content=pieces(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert (answer.status_code, answer.json()["code"]) == (413, "disk-quota-exceeded")
    assert answer.json()["actor"] == "owner"
    assert small.files() == before
    assert spooled(small) == 0
    assert usage(owner)["pending_bytes"] == usage(owner)["stored_bytes"] == 0


def test_uploads_at_the_same_time_do_not_pass_it_together(small: Service) -> None:
    owner, _ = small.someone("owner")
    statuses: list[int] = []

    def send(shift: int) -> None:
        parts: list[tuple[str, Any]] = [
            ("metadata", (None, json.dumps(metadata(name=f"n{shift}")), "application/json")),
            ("file", ("p.csv", csv(5000, shift), "text/csv")),
        ]
        for _ in range(60):
            answer = owner.post("/v1/datasets", files=parts)
            if answer.status_code not in {429, 503}:
                break
            time.sleep(0.3)
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=send, args=(shift,)) for shift in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {201, 413}
    assert usage(owner)["stored_bytes"] <= MOST
    assert spooled(small) == 0


def test_weights_and_declarations_count_too(small: Service) -> None:
    owner, _ = small.someone("owner")
    content = save({"0.weight": np.zeros((100, 100))})
    octets = {"Content-Type": "application/octet-stream"}
    assert owner.post("/v1/pretrained", content=content, headers=octets).status_code == 201
    assert usage(owner)["stored_bytes"] == len(content)
    assert owner.post("/v1/datasets", json=metadata()).status_code == 201
    assert usage(owner)["stored_bytes"] > len(content)
    large = save({"0.weight": np.ones((200, 200))})
    refused = owner.post("/v1/pretrained", content=large, headers=octets)
    assert (refused.status_code, refused.json()["code"]) == (413, "disk-quota-exceeded")


def test_the_service_keeps_a_little_of_its_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("full")
    free = os.statvfs(home).f_bavail * os.statvfs(home).f_frsize
    with running(home, FARTHING_MIN_FREE_DISK_BYTES=str(10 * free)) as full:
        owner, _ = full.someone("owner")
        refused = owner.post("/v1/datasets", json=metadata())
        assert (refused.status_code, refused.json()["code"]) == (503, "disk-full")
        assert owner.get("/v1/datasets").status_code == 200


def free_bytes(folder: Any) -> int:
    return os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize


@pytest.mark.parametrize("way", ["received", "decoded"])
def test_an_upload_that_grows_stops_before_the_disk_is_full(tmp_path_factory: pytest.TempPathFactory, way: str) -> None:
    """An upload of unannounced length, or a thousand times as large once decoded, once took the last free byte.

    At 6675922 both were looked at only as they began: 400 MB went to a disk of which 60 MB were to be used.
    """
    home, rows, width = tmp_path_factory.mktemp("growing"), 250_000, 200
    columns = [{"name": f"c{place}", "type": "number", "lower": 0, "upper": 1} for place in range(width)]
    with running(home, FARTHING_MIN_FREE_DISK_BYTES=str(free_bytes(home) - 60 * 2**20)) as growing:
        owner, _ = growing.someone("owner")
        if way == "received":
            media, pieces = "text/csv", [b"c0\n", *[b"0." + b"1" * (2**20 - 3) + b"\n"] * 400]
            columns = columns[:1]
        else:
            table = pa.table({one["name"]: np.tile(np.arange(50.0), rows // 50) for one in columns})
            file = io.BytesIO()
            pq.write_table(table, file, row_group_size=rows)
            media, pieces = "application/vnd.apache.parquet", [file.getvalue()]
            assert len(pieces[0]) < 40e6

        def body() -> Iterator[bytes]:
            text = json.dumps({**metadata(), "columns": columns})
            yield f'--x\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{text}\r\n--x\r\n'.encode()
            yield f'Content-Disposition: form-data; name="file"; filename="p"\r\nContent-Type: {media}\r\n\r\n'.encode()
            yield from pieces
            yield b"\r\n--x--\r\n"

        before = growing.files()
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = owner.post("/v1/datasets", content=body(), headers=kind, timeout=300)
        assert (answer.status_code, answer.json()["code"]) == (503, "disk-full"), answer.text
        assert growing.files() == before
        assert spooled(growing) == 0
        assert usage(owner)["pending_bytes"] == usage(owner)["stored_bytes"] == 0
