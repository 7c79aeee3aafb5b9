"""Large files by the SDK and the command line: over lines that break, in a new process, and after a refusal."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from farthing import Client, DraftRefused, FarthingError
from farthing.parts import IN_PARTS_BYTES
from tests.farthing.test_cli import surroundings
from tests.support.embedded import COLUMNS, KEY, ROOT, SEEDS, Embedded, toy_csv

PARTS = 3
SIZE = 18 * 2**20


def metadata(**changes: Any) -> dict[str, Any]:
    return {"name": "large", "columns": COLUMNS, "budget": {"epsilon": "3"}, **changes}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of three parts: 300 people, each with a long note that is not declared."""
    head, *lines = toy_csv(300, seed=next(SEEDS)).decode().splitlines()
    note = "x" * (SIZE // 300)
    path = tmp_path / "large.csv"
    path.write_text("\n".join([f"{head},note", *(f"{line},{note}" for line in lines), ""]))
    assert path.stat().st_size > IN_PARTS_BYTES
    return path


@contextmanager
def breaking(service: Embedded, *after: int) -> Iterator[str]:
    """A line to the service whose first connections break after so many bytes each; yield its address."""
    limits = list(after)
    there = urlsplit(service.url)
    running: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, most: int | None) -> None:
        passed = 0
        with suppress(OSError):
            while piece := source.recv(2**16):
                passed += len(piece)
                if most is not None and passed > most:
                    break
                target.sendall(piece)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def connect(near: socket.socket, most: int | None) -> None:
        with near, socket.create_connection((there.hostname or "", there.port or 0)) as far:
            back = threading.Thread(target=pump, args=(far, near, None))
            back.start()
            pump(near, far, most)
            back.join()

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                running.append(threading.Thread(target=connect, args=(near, limits.pop(0) if limits else None)))
                running[-1].start()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert not limits, "every connection that was to break has broken"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()
        listener.close()
        for one in running:
            one.join(timeout=30)


def sent_parts(client: Client, dataset: str) -> list[str]:
    """Return the numbers of the parts that the service took, in the order of their answers."""
    targets = [line.target or "" for line in client.audit() if line.action.startswith("PUT ") and line.status == 200]
    return [target.rsplit("/", 1)[1] for target in reversed(targets) if f"{dataset}/uploads/" in target]


def test_it_goes_on_after_connections_that_break(service: Embedded, client: Client, large: Path) -> None:
    seen: list[tuple[int, int]] = []
    with breaking(service, 2**20, 9 * 2**20, 5 * 2**20) as url, Client(url, KEY) as far:
        made = far.upload(large, metadata(), progress=lambda there, whole: seen.append((there, whole)))
    assert (made.state, made.rows) == ("ready", 300)
    assert sent_parts(client, made.id) == ["1", "2", "3"], "each was taken once"
    size = large.stat().st_size
    assert seen == [(8 * 2**20, size), (16 * 2**20, size), (size, size)]
    assert client.uploads(made.id) == []
    assert client.upload(large, metadata()) == client.dataset(made.id), "an answer that was lost is given again"


def test_a_small_file_is_sent_whole_and_told_of_once(client: Client, records: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = client.upload(records, metadata(), progress=lambda there, whole: seen.append((there, whole)))
    assert made.rows == 300
    assert seen == [(records.stat().st_size,) * 2]
    assert sent_parts(client, made.id) == []


def test_a_draft_that_is_refused_keeps_the_file_until_it_is_mended(client: Client, large: Path) -> None:
    wrong = [{**COLUMNS[0], "name": "years"}, *COLUMNS[1:]]
    with pytest.raises(DraftRefused) as refused:
        client.upload(large, metadata(columns=wrong, seal=False))
    assert refused.value.errors[0]["pointer"] == "/columns/0/name"
    draft = refused.value.dataset
    (open_,) = client.uploads(draft)
    assert (open_.received_count, open_.part_count) == (PARTS, PARTS)
    client.mend(draft, {"columns": COLUMNS})
    assert client.send_records(draft, large).rows == 300
    assert len(sent_parts(client, draft)) == PARTS, "no part was sent twice"
    assert client.seal(draft).state == "ready"
    assert len(client.uploads(draft)) == 0


def test_a_refused_dataset_leaves_nothing_and_may_be_tried_again(client: Client, large: Path) -> None:
    wrong = [{**COLUMNS[0], "name": "years"}, *COLUMNS[1:]]
    before = {one.id for one in client.datasets()}
    for _ in range(2):
        with pytest.raises(FarthingError) as refused:
            client.upload(large, metadata(columns=wrong))
        assert refused.value.code == "invalid-request"
    left = [one for one in client.datasets() if one.id not in before]
    assert [one.state for one in left] == ["erased"] * 2
    assert client.upload(large, metadata()).state == "ready"


def test_other_bytes_of_the_same_length_take_the_place_of_the_first(client: Client, large: Path) -> None:
    content = large.read_bytes()
    head, first, rest = content.split(b"\n", 2)
    other = large.with_name("other.csv")
    other.write_bytes(b"\n".join([head, first, rest[:-3] + b"yy\n"]))
    draft = client._wire.post("/v1/datasets", metadata(seal=False))["id"]
    place = f"/v1/datasets/{draft}/uploads"
    client._wire.post(place, {"bytes": len(content), "media_type": "text/csv"})
    assert client.send_records(draft, large).rows == 300
    upload = client._wire.post(place, {"bytes": len(content), "media_type": "text/csv"})["id"]
    assert client.send_records(draft, other).rows == 300
    assert client._wire.get(f"{place}/{upload}")["state"] == "completed"


def test_an_upload_can_be_ended(client: Client) -> None:
    draft = client._wire.post("/v1/datasets", metadata(seal=False))["id"]
    client._wire.post(f"/v1/datasets/{draft}/uploads", {"bytes": 100})
    (one,) = client.uploads(draft)
    client.end_upload(draft, one.id)
    assert client.uploads(draft) == []


def test_a_command_that_is_killed_is_repeated_and_goes_on(service: Embedded, client: Client, large: Path) -> None:
    declared = large.with_name("metadata.json")
    declared.write_text(json.dumps(metadata()))
    command = [sys.executable, "-m", "farthing.cli", "upload", str(large), "-m", str(declared), "--json"]
    before = {one.id for one in client.datasets()}
    with breaking(service) as url:
        environment = surroundings(service, {}) | {"FARTHING_URL": url}
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL}
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        dataset = wait_for_part(client, before)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(timeout=30)
    took = sent_parts(client, dataset)
    assert len(took) >= 1
    options["env"] = surroundings(service, {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == dataset
    assert sorted(sent_parts(client, dataset)) == ["1", "2", "3"], "no part was taken twice"


def wait_for_part(client: Client, before: set[str]) -> str:
    """Return the dataset that is new, once a part of its file is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for one in client.datasets():
            if one.id not in before and any(upload.received_count for upload in client.uploads(one.id)):
                return one.id
        time.sleep(0.02)
    raise AssertionError("no part came")
