"""Uploads in parts under attack: keys that end half way, datasets that close meanwhile, parts that come too late."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from core.db.upload_tables import PartedUpload
from core.records import parts as rows
from tests.api.test_parts import (
    PART,
    begun,
    complete,
    cut,
    declared,
    digest,
    numbers,
    parts_in,
    people,
    send,
    send_all,
    spooled,
    wait_for,
)
from tests.support.api import Service
from tests.support.load import head, opened, status_of


@contextmanager
def half_sent(service: Service, place: str, key: str, number: int, part: bytes) -> Iterator[socket.socket]:
    """Send the first half of a part, and wait until the service has begun to store it."""
    lines = [f"{name}: {value}" for name, value in digest(part).items()]
    first = head(f"{place}/parts/{number}", key, len(part), *lines, method="PUT") + part[: len(part) // 2]
    before = len(spooled(service))
    with opened(service, first) as connection:
        wait_for(lambda: len(spooled(service)) > before, "the part is being received")
        yield connection


def finish(connection: socket.socket, part: bytes) -> int | None:
    connection.sendall(part[len(part) // 2 :])
    return status_of(connection, 30)


def change(service: Service, place: str, **values: Any) -> None:
    database = service.database()
    one = update(PartedUpload).where(PartedUpload.id == place.rsplit("/", 1)[1]).values(**values)
    database.transaction(lambda session: session.execute(one))
    database.dispose()


class TestKeys:
    @pytest.mark.parametrize("how", ["revoke", "rotate", "disable"])
    def test_one_that_ends_within_a_part_stores_nothing(self, service: Service, how: str) -> None:
        owner, made = service.someone("owner")
        content = people()
        place, cuts = begun(owner, declared(owner), content), cut(content)
        send(owner, place, 1, cuts[0])
        stored = parts_in(service)
        left = owner
        with half_sent(service, place, made["key"], 2, cuts[1]) as connection:
            if how == "disable":
                path = f"/v1/principals/{made['principal']}/disable"
                assert service.client().post(path, json={"reason": "has left"}).status_code == 200
            elif how == "revoke":
                assert service.client().post(f"/v1/keys/{made['id']}/revoke").status_code == 200
            else:
                left = service.client(owner.post(f"/v1/keys/{made['id']}/rotate").json()["key"])
            assert finish(connection, cuts[1]) == 401
        wait_for(lambda: spooled(service) == [], "nothing is left of it")
        assert parts_in(service) <= stored
        if how == "rotate":
            assert numbers(left, place) == [1], "the upload is its principal's, and goes on with another key"
            send_all(left, place, content)
            assert complete(left, place).json()["state"] == "ready"

    def test_one_that_has_ended_sends_and_completes_nothing(self, service: Service) -> None:
        owner, made = service.someone("owner")
        content = people(100)
        place = begun(owner, declared(owner), content)
        send_all(owner, place, content)
        fresh = service.client(owner.post(f"/v1/keys/{made['id']}/rotate").json()["key"])
        for answer in (send(owner, place, 1, content), complete(owner, place), owner.get(place), owner.delete(place)):
            assert answer.status_code == 401, answer.text
        assert complete(fresh, place).json()["state"] == "ready"


class TestTooLate:
    def test_a_dataset_that_has_its_records_takes_no_more(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        content, other = people(100), people(100)
        dataset = declared(owner, seal=False)
        first, second = begun(owner, dataset, content), begun(owner, dataset, other)
        send_all(owner, first, content)
        send_all(owner, second, other)
        assert complete(owner, first).json()["state"] == "draft"
        sealed = owner.post(f"/v1/datasets/{dataset}/seal")
        assert sealed.json()["state"] == "ready", sealed.text
        for answer in (send(owner, second, 1, other), complete(owner, second)):
            assert answer.status_code == 409, answer.text
        again = complete(owner, first)
        assert (again.status_code, again.json()["state"]) == (200, "ready"), "what is done is answered"
        assert send(owner, first, 1, content).status_code == 409
        assert owner.get(f"/v1/datasets/{dataset}").json()["rows"] == 100
        kinds = [one["kind"] for one in owner.get(f"/v1/scopes/{sealed.json()['scope']}/entries").json()["data"]]
        assert kinds == ["open", "upload"]
        assert owner.delete(second).status_code == 204
        assert owner.get("/v1/usage").json()["pending_bytes"] == 0

    def test_a_dataset_that_is_sealed_within_a_part_keeps_its_records(self, service: Service) -> None:
        owner, made = service.someone("owner")
        content, other = people(100), people(100)
        dataset = declared(owner, seal=False)
        first, second = begun(owner, dataset, content), begun(owner, dataset, other, part_bytes=PART)
        send_all(owner, first, content)
        complete(owner, first)
        with half_sent(service, second, made["key"], 1, other) as connection:
            assert owner.post(f"/v1/datasets/{dataset}/seal").json()["state"] == "ready"
            status = finish(connection, other)
        assert status in {200, 409}
        assert complete(owner, second).status_code == 409
        assert owner.get(f"/v1/datasets/{dataset}").json()["rows"] == 100

    def test_a_dataset_that_is_erased_within_a_part_keeps_none(self, service: Service) -> None:
        owner, made = service.someone("owner")
        content = people()
        dataset, before = declared(owner), parts_in(service)
        place, cuts = begun(owner, dataset, content), cut(content)
        send(owner, place, 1, cuts[0])
        with half_sent(service, place, made["key"], 2, cuts[1]) as connection:
            assert owner.delete(f"/v1/datasets/{dataset}").status_code == 202
            assert finish(connection, cuts[1]) in {404, 409}
        wait_for(lambda: spooled(service) == [], "nothing is left of it")
        wait_for(lambda: parts_in(service) <= before, "the parts that were there are erased")

    @pytest.mark.parametrize("column", ["seen_at", "created_at"])
    def test_an_upload_that_has_run_out_is_gone_for_every_request(self, service: Service, column: str) -> None:
        owner, _ = service.someone("owner")
        content = people(100)
        dataset = declared(owner)
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        seconds = rows.KEPT_SECONDS if column == "seen_at" else rows.LONGEST_SECONDS
        change(service, place, **{column: getattr(PartedUpload, column) - seconds - 1})
        for answer in (owner.get(place), send(owner, place, 1, content), complete(owner, place), owner.delete(place)):
            assert answer.status_code == 404, answer.text
        assert owner.get(f"/v1/datasets/{dataset}/uploads").json()["data"] == []
        assert owner.get(f"/v1/datasets/{dataset}").json()["state"] == "pending"


class TestNumbers:
    @pytest.mark.parametrize("number", ["0", "-1", "3", "9999999999999999999", "%31%00", "..", "1e0"])
    def test_one_that_the_upload_has_not(self, service: Service, owner: httpx.Client, number: str) -> None:
        content = people(100)
        place = begun(owner, declared(owner), content)
        before = parts_in(service)
        answer = owner.put(f"{place}/parts/{number}", content=content, headers=digest(content))
        assert answer.status_code in {404, 405, 422}, answer.text
        assert numbers(owner, place) == []
        assert parts_in(service) <= before

    def test_a_length_that_is_announced_and_not_sent(self, service: Service) -> None:
        """A part in chunks announces no length: its bytes are counted all the same."""
        owner, _ = service.someone("owner")
        content = people(100)
        place = begun(owner, declared(owner), content)
        for sent in (content[:-1], content + b"x", b""):
            answer = owner.put(f"{place}/parts/1", content=iter([sent]), headers=digest(sent))
            assert answer.status_code in {411, 422}, answer.text
        assert numbers(owner, place) == []


@pytest.fixture
def owner(service: Service) -> httpx.Client:
    return service.someone("owner")[0]
