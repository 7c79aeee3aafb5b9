"""A queued job that no living supervisor could take says what it waits for."""

from collections.abc import Iterator

import httpx
import pytest

from core.jobs import workers
from tests.support.api import Service, job, running, submit, upload


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("waiting")) as found:
        yield found


def see(place: Service, name: str, queues: str, gpus: int = 0, site: str = "") -> None:
    database = place.database()
    try:
        database.transaction(workers.see, name=name, queues=queues, slots=1, gpus=gpus, version="1", site=site)
    finally:
        database.dispose()


def leave(place: Service, name: str) -> None:
    database = place.database()
    try:
        database.transaction(workers.leave, name)
    finally:
        database.dispose()


def waits_for(client: httpx.Client, job_id: str) -> str | None:
    one = client.get(f"/v1/jobs/{job_id}").json()["waits_for"]
    (listed,) = [found["waits_for"] for found in client.get("/v1/jobs").json()["data"] if found["id"] == job_id]
    assert one == listed
    return None if one is None else str(one)


def test_any_worker_then_none(place: Service) -> None:
    """At 9f63d67 it said nothing, however long the job waited."""
    client = place.client()
    made = submit(client, job(upload(client)["id"], mu="0.01", resources={"device": "cpu"})).json()["id"]
    assert waits_for(client, made) == "any worker"
    see(place, "elsewhere:1", "cpu", site="north")
    assert waits_for(client, made) == "any worker", "one of a site does not read these records"
    see(place, "here:1", "gpu", gpus=1)
    assert waits_for(client, made) == "a worker that serves the queue cpu"
    see(place, "here:2", "cpu")
    assert waits_for(client, made) is None
    for name in ("elsewhere:1", "here:1", "here:2"):
        leave(place, name)


def test_one_with_a_gpu(place: Service) -> None:
    client = place.client()
    see(place, "gpu:1", "gpu", gpus=1)
    asked = job(upload(client)["id"], mu="0.01", resources={"device": "cuda"})
    made = submit(client, asked)
    assert made.status_code == 202, made.text
    assert waits_for(client, made.json()["id"]) is None
    leave(place, "gpu:1")
    see(place, "cpu:1", "cpu")
    assert waits_for(client, made.json()["id"]) == "a worker with a GPU"
    leave(place, "cpu:1")
    assert waits_for(client, made.json()["id"]) == "a worker with a GPU"
