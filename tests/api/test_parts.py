"""Uploads in parts: sent in any order and over broken connections, checked, encrypted, completed once, erased."""

import base64
import hashlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from sqlalchemy import select, update

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Dataset
from core.db.upload_tables import PartedUpload, UploadPart
from core.operations import backup as backups
from core.records import parts as rows
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.service import datasets as dataset_cases
from core.service.context import Context
from tests.support.api import Service, csv, joined, metadata, running, upload
from tests.support.load import head, opened
from tests.support.object_store import everything
from tests.support.store import create_postgresql

PART = 2**16
NEXT = count(900_000)


def people(rows_: int = 10_000) -> bytes:
    """Return other people's records each time, of some parts."""
    return csv(rows_, 1000 * next(NEXT))


def cut(content: bytes, size: int = PART) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def digest(part: bytes) -> dict[str, str]:
    return {"Content-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(part).digest()).decode()}:"}


def declared(client: httpx.Client, **changes: Any) -> str:
    answer = client.post("/v1/datasets", json=metadata(**changes))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def begun(client: httpx.Client, dataset: str, content: bytes, **changes: Any) -> str:
    """Open an upload and return its address."""
    body = {"bytes": len(content), "media_type": "text/csv", "part_bytes": PART, **changes}
    answer = client.post(f"/v1/datasets/{dataset}/uploads", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["Location"])


def send(client: httpx.Client, place: str, number: int, part: bytes, **headers: str) -> httpx.Response:
    return client.put(f"{place}/parts/{number}", content=part, headers=digest(part) | headers)


def send_all(client: httpx.Client, place: str, content: bytes) -> None:
    for number, part in enumerate(cut(content), 1):
        answer = send(client, place, number, part)
        assert answer.status_code == 200, answer.text


def complete(client: httpx.Client, place: str) -> httpx.Response:
    return client.post(f"{place}/complete")


def numbers(client: httpx.Client, place: str) -> list[int]:
    return [one["number"] for one in client.get(place).json()["parts"]]


def parts_in(service: Service) -> set[str]:
    """Return the names of stored parts; the service's sweeps erase those that earlier tests left behind."""
    return {name for name in service.files() if name.startswith(f"{rows.PREFIX}_")}


def spooled(service: Service) -> list[str]:
    folder = service.home / "spool"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


@pytest.fixture
def owner(service: Service) -> httpx.Client:
    return service.someone("owner")[0]


class TestSending:
    def test_parts_in_any_order_are_the_file(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        dataset = declared(owner)
        before = parts_in(service)
        place = begun(owner, dataset, content)
        opened_ = owner.get(place).json()
        cuts = cut(content)
        assert (opened_["state"], opened_["part_count"], opened_["parts"]) == ("open", len(cuts), [])
        assert len(cuts) > 2
        assert opened_["expires_at"] > opened_["created_at"]
        for number in reversed(range(1, len(cuts) + 1)):
            sent = send(owner, place, number, cuts[number - 1])
            shown = {"number": number, "bytes": len(cuts[number - 1])}
            assert sent.json() == shown | {"digest": digest(cuts[number - 1])["Content-Digest"]}
        assert numbers(owner, place) == list(range(1, len(cuts) + 1))
        (listed,) = owner.get(f"/v1/datasets/{dataset}/uploads").json()["data"]
        assert (listed["id"], listed["received_count"]) == (opened_["id"], len(cuts))
        made = complete(owner, place)
        assert made.status_code == 200, made.text
        assert (made.json()["state"], made.json()["rows"]) == ("ready", 10_000)
        assert complete(owner, place).json() == made.json()
        assert parts_in(service) <= before
        assert spooled(service) == []
        done = owner.get(place).json()
        assert (done["state"], done["parts"]) == ("completed", [])
        assert owner.get(f"/v1/datasets/{dataset}/uploads").json()["data"] == []
        assert send(owner, place, 1, cuts[0]).status_code == 409
        assert owner.delete(place).status_code == 409

    def test_the_report_is_that_of_a_file_sent_whole(self, owner: httpx.Client) -> None:
        content = re.sub(rb"\n\d+\.", b"\nsoon.", people(9000), count=40)
        reports = []
        for whole in (True, False):
            dataset = declared(owner, seal=False)
            if whole:
                put = owner.put(
                    f"/v1/datasets/{dataset}/content", content=content, headers={"Content-Type": "text/csv"}
                )
                assert put.status_code == 200, put.text
            else:
                place = begun(owner, dataset, content)
                send_all(owner, place, content)
                assert complete(owner, place).json()["state"] == "draft"
            report = owner.get(f"/v1/datasets/{dataset}/validation").json()
            reports.append({name: value for name, value in report.items() if name != "dataset"})
        assert reports[0] == reports[1]
        assert reports[0]["columns"][0]["unreadable"] > 0

    def test_a_missing_part_is_named_and_the_others_stay(self, owner: httpx.Client) -> None:
        content = people()
        place = begun(owner, declared(owner), content)
        cuts = cut(content)
        for number in range(1, len(cuts) + 1):
            if number != 2:
                send(owner, place, number, cuts[number - 1])
        refused = complete(owner, place)
        assert (refused.status_code, refused.json()["missing"]) == (409, [{"number": 2}])
        assert "missing: 2" in refused.json()["detail"]
        send(owner, place, 2, cuts[1])
        assert complete(owner, place).json()["state"] == "ready"

    def test_the_same_bytes_again_change_nothing_and_others_take_their_place(
        self, service: Service, owner: httpx.Client
    ) -> None:
        content, other = people(), people()
        place = begun(owner, declared(owner), content)
        first = send(owner, place, 1, cut(content)[0])
        stored = parts_in(service)
        again = send(owner, place, 1, cut(content)[0])
        assert (again.status_code, again.json()) == (200, first.json())
        assert parts_in(service) <= stored
        replaced = send(owner, place, 1, cut(other)[0])
        assert replaced.json()["digest"] != first.json()["digest"]
        assert owner.get(place).json()["parts"] == [replaced.json()]
        assert len(parts_in(service)) <= len(stored)
        owner.delete(place)

    def test_two_clients_send_the_same_part_at_once(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        place, part, before = begun(owner, declared(owner), content), cut(content)[0], parts_in(service)

        def sent(_: int) -> int:
            while (answer := send(owner, place, 1, part)).status_code == 429:
                time.sleep(0.1)
            return answer.status_code

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(sent, range(12))) == {200}
        assert numbers(owner, place) == [1]
        assert len(parts_in(service) - before) == 1
        owner.delete(place)
        assert parts_in(service) <= before

    def test_a_flipped_byte_is_refused_and_nothing_stays(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        place, part = begun(owner, declared(owner), content), cut(content)[0]
        before = parts_in(service)
        flipped = bytes([part[0] ^ 1]) + part[1:]
        refused = owner.put(f"{place}/parts/1", content=flipped, headers=digest(part))
        assert (refused.status_code, refused.json()["code"]) == (422, "digest-mismatch")
        assert refused.json()["retryable"] is True
        assert refused.json()["errors"][0]["pointer"] == "#header/Content-Digest"
        assert numbers(owner, place) == []
        assert parts_in(service) <= before
        assert spooled(service) == []
        owner.delete(place)

    @pytest.mark.parametrize("change", [-1, 1])
    def test_another_length_is_refused(self, owner: httpx.Client, change: int) -> None:
        content = people()
        place = begun(owner, declared(owner), content)
        for number, part in ((1, cut(content)[0]), (len(cut(content)), cut(content)[-1])):
            wrong = part[:-1] if change < 0 else part + b"x"
            refused = send(owner, place, number, wrong)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")
            (named,) = refused.json()["errors"]
            assert named == {"pointer": "#header/Content-Length", "detail": f"send exactly {len(part)} bytes"}
        assert numbers(owner, place) == []
        owner.delete(place)

    @pytest.mark.parametrize(
        "header", [None, "", "sha-256", "sha-256=::", "sha-256=:abc:", "sha-512=:AAAA:", "md5=:AAAA:", "sha-256=abc"]
    )
    def test_a_part_needs_its_digest(self, owner: httpx.Client, header: str | None) -> None:
        content = people(100)
        place = begun(owner, declared(owner), content)
        headers = {} if header is None else {"Content-Digest": header}
        refused = owner.put(f"{place}/parts/1", content=content, headers=headers)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "#header/Content-Digest"
        among = {"Content-Digest": f"sha-512=:AAAA:, {digest(content)['Content-Digest']}"}
        assert owner.put(f"{place}/parts/1", content=content, headers=among).status_code == 200
        owner.delete(place)

    def test_a_part_that_the_file_has_not(self, owner: httpx.Client) -> None:
        content = people(100)
        place = begun(owner, declared(owner), content)
        refused = send(owner, place, 2, content)
        assert (refused.status_code, refused.json()["errors"][0]["detail"]) == (422, "give 1 to 1")
        assert send(owner, place, 0, content).status_code == 422
        owner.delete(place)


class TestOpening:
    def test_it_is_opened_once_for_a_key(self, owner: httpx.Client) -> None:
        dataset, body = declared(owner), {"bytes": 1000, "media_type": "text/csv"}
        headers = {"Idempotency-Key": "once"}
        first = owner.post(f"/v1/datasets/{dataset}/uploads", json=body, headers=headers)
        again = owner.post(f"/v1/datasets/{dataset}/uploads", json=body, headers=headers)
        assert again.json() == first.json()
        assert again.headers["Idempotency-Replayed"] == "true"
        other = owner.post(f"/v1/datasets/{dataset}/uploads", json=body | {"bytes": 999}, headers=headers)
        assert other.json()["code"] == "idempotency-key-reused"
        assert first.json()["part_bytes"] == 8 * 2**20

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, "/bytes"),
            ({"bytes": 0}, "/bytes"),
            ({"bytes": 3 * 2**30}, "/bytes"),
            ({"bytes": 10, "part_bytes": 100}, "/part_bytes"),
            ({"bytes": 10, "part_bytes": 2**30}, "/part_bytes"),
            ({"bytes": 2**30, "part_bytes": PART}, "/part_bytes"),
            ({"bytes": 10, "media_type": "text/html"}, "/media_type"),
            ({"bytes": 10, "name": "x"}, "/name"),
        ],
    )
    def test_what_is_wrong_is_named(self, owner: httpx.Client, body: Any, pointer: str) -> None:
        refused = owner.post(f"/v1/datasets/{declared(owner)}/uploads", json=body)
        assert refused.status_code in {413, 422}, refused.text
        assert [one["pointer"] for one in refused.json()["errors"]] == [pointer]

    def test_few_are_open(self, owner: httpx.Client) -> None:
        dataset = declared(owner)
        places = [begun(owner, dataset, b"x" * 100) for _ in range(8)]
        refused = owner.post(f"/v1/datasets/{dataset}/uploads", json={"bytes": 100})
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert owner.delete(places[0]).status_code == 204
        assert owner.get(places[0]).status_code == 404
        assert owner.delete(places[0]).status_code == 404
        begun(owner, dataset, b"x" * 100)

    def test_a_dataset_with_records_takes_none(self, owner: httpx.Client) -> None:
        made = upload(owner, shift=next(NEXT))
        assert owner.post(f"/v1/datasets/{made['id']}/uploads", json={"bytes": 100}).status_code == 409

    def test_a_key_that_somebody_else_made_opens_none(self, service: Service, owner: httpx.Client) -> None:
        rotated, made = service.someone("owner")
        dataset = declared(rotated)
        admin_made = service.client().post(
            "/v1/keys", json={"name": "x", "role": "owner", "principal": made["principal"]}
        )
        refused = service.client(admin_made.json()["key"]).post(f"/v1/datasets/{dataset}/uploads", json={"bytes": 100})
        assert (refused.status_code, refused.json()["code"]) == (403, "key-not-own")
        assert owner.get(f"/v1/datasets/{dataset}/uploads").status_code == 404


class TestOthers:
    def test_nobody_else_sees_sends_or_completes(self, service: Service, owner: httpx.Client) -> None:
        content = people(100)
        dataset = declared(owner)
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        for role, status in (("owner", 404), ("analyst", None), ("auditor", None), ("admin", 403)):
            stranger, _ = service.someone(role)
            tried = [
                stranger.get(place),
                stranger.get(f"/v1/datasets/{dataset}/uploads"),
                stranger.post(f"/v1/datasets/{dataset}/uploads", json={"bytes": 10}),
                send(stranger, place, 1, content),
                complete(stranger, place),
                stranger.delete(place),
            ]
            for answer in tried:
                assert answer.status_code in ({403, 404} if status is None else {status}), answer.text
        assert complete(owner, place).json()["state"] == "ready"

    def test_an_upload_belongs_to_its_dataset(self, owner: httpx.Client) -> None:
        content, other = people(100), declared(owner)
        place = begun(owner, declared(owner), content)
        elsewhere = f"/v1/datasets/{other}/uploads/{place.rsplit('/', 1)[1]}"
        assert owner.get(elsewhere).status_code == 404
        assert send(owner, elsewhere, 1, content).status_code == 404
        owner.delete(place)

    def test_the_audit_log_names_each_deed_and_hides_what_the_file_was(self, owner: httpx.Client) -> None:
        content = b"age,job,y\n" + b"x,y,z\n" * 30
        dataset = declared(owner)
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        refused = complete(owner, place)
        assert (refused.status_code, refused.json()["code"]) == (422, "many-excluded")
        owner.delete(place)
        lines = owner.get("/v1/audit", params={"limit": 20}).json()["data"]
        found = [(one["action"], one["status"], one["code"]) for one in lines if f"{dataset}/uploads" in one["target"]]
        base = "/v1/datasets/{dataset_id}/uploads"
        assert found == [
            (f"DELETE {base}/{{upload_id}}", 204, None),
            (f"POST {base}/{{upload_id}}/complete", 422, "upload-refused"),
            (f"PUT {base}/{{upload_id}}/parts/{{number}}", 200, None),
            (f"POST {base}", 201, None),
        ]


class TestCompleting:
    def test_a_refused_file_keeps_its_parts_for_a_draft_that_is_mended(
        self, service: Service, owner: httpx.Client
    ) -> None:
        content = people().replace(b"age,job,y", b"years,job,y")
        dataset = declared(owner, seal=False)
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        kept = parts_in(service)
        refused = complete(owner, place)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/columns/0/name")
        assert parts_in(service) <= kept
        columns = owner.get(f"/v1/datasets/{dataset}/draft").json()["declared"]["columns"]
        columns[0]["name"] = "years"
        assert owner.patch(f"/v1/datasets/{dataset}", json={"columns": columns}).status_code == 200
        made = complete(owner, place)
        assert (made.status_code, made.json()["state"], made.json()["rows"]) == (200, "draft", 10_000)
        assert not kept & parts_in(service)
        assert owner.post(f"/v1/datasets/{dataset}/seal").json()["state"] == "ready"

    def test_a_draft_takes_another_file_in_place_of_the_first(self, owner: httpx.Client) -> None:
        dataset = declared(owner, seal=False)
        for count_ in (7000, 8000):
            content = people(count_)
            place = begun(owner, dataset, content)
            send_all(owner, place, content)
            assert complete(owner, place).json()["rows"] == count_

    def test_twice_at_once_makes_one_dataset(self, service: Service, owner: httpx.Client) -> None:
        content = people(20_000)
        dataset, before = declared(owner), len(service.files())
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        answers: list[httpx.Response] = []
        threads = [threading.Thread(target=lambda: answers.append(complete(owner, place))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
        assert answers[0].json() == answers[1].json()
        assert answers[0].json()["id"] == dataset
        kinds = [one["kind"] for one in owner.get(f"/v1/scopes/{answers[0].json()['scope']}/entries").json()["data"]]
        assert kinds == ["open", "upload"]
        assert len(service.files()) == before + 1
        assert spooled(service) == []

    @pytest.mark.parametrize("harm", ["changed", "lost"])
    def test_a_part_that_was_harmed_in_the_storage_is_asked_for_again(
        self, service: Service, owner: httpx.Client, harm: str
    ) -> None:
        content = people()
        place = begun(owner, declared(owner), content)
        before = parts_in(service)
        send(owner, place, 2, cut(content)[1])
        (name,) = parts_in(service) - before
        for number in {*range(1, len(cut(content)) + 1)} - {2}:
            send(owner, place, number, cut(content)[number - 1])
        path = service.home / "records" / name
        raw = bytearray(path.read_bytes())
        path.unlink()
        if harm == "changed":
            raw[len(raw) // 2] ^= 1
            path.write_bytes(raw)
        refused = complete(owner, place)
        assert (refused.status_code, refused.json()["missing"]) == (409, [{"number": 2}])
        assert 2 not in numbers(owner, place)
        send(owner, place, 2, cut(content)[1])
        assert complete(owner, place).json()["state"] == "ready"


class TestBrokenConnections:
    def test_another_process_goes_on(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        place, cuts = begun(owner, declared(owner), content), cut(content)
        send(owner, place, 1, cuts[0])
        key = owner.headers["Authorization"].split()[1]
        with joined(service) as beside:
            other = beside.client(key)
            assert numbers(other, place) == [1]
            for number in range(2, len(cuts) + 1):
                assert send(other, place, number, cuts[number - 1]).status_code == 200
        assert complete(owner, place).json()["state"] == "ready"

    def test_a_connection_that_ends_within_a_part_leaves_the_others(
        self, service: Service, owner: httpx.Client
    ) -> None:
        content = people()
        place, cuts = begun(owner, declared(owner), content), cut(content)
        send(owner, place, 1, cuts[0])
        key = owner.headers["Authorization"].split()[1]
        lines = [f"{name}: {value}" for name, value in digest(cuts[1]).items()]
        with opened(service, head(f"{place}/parts/2", key, PART, *lines, method="PUT") + cuts[1][: PART // 2]) as half:
            wait_for(lambda: spooled(service) != [], "the part is being received")
            half.shutdown(socket.SHUT_RDWR)
        wait_for(lambda: spooled(service) == [], "and nothing is left of it")
        assert numbers(owner, place) == [1]
        for number in range(2, len(cuts) + 1):
            send(owner, place, number, cuts[number - 1])
        assert complete(owner, place).json()["state"] == "ready"

    def test_the_api_is_killed_within_a_part_and_started_again(self, tmp_path: Path) -> None:
        content = people()
        cuts = cut(content)
        with running(tmp_path / "home") as first:
            owner, made = first.someone("owner")
            place = begun(owner, declared(owner), content)
            send(owner, place, 1, cuts[0])
            lines = [f"{name}: {value}" for name, value in digest(cuts[1]).items()]
            sent = head(f"{place}/parts/2", made["key"], PART, *lines, method="PUT") + cuts[1][: PART // 2]
            with opened(first, sent):
                wait_for(lambda: spooled(first) != [], "the part is being received")
                os.kill(first.process.pid, signal.SIGKILL)
                first.process.wait(timeout=30)
            left = [(first.home / "spool" / name).read_bytes() for name in spooled(first)]
            assert left
            assert not any(cuts[1][:20] in raw for raw in left), "what a crash leaves nobody can read"
            with joined(first) as second:
                again = second.client(made["key"])
                assert numbers(again, place) == [1]
                for number in range(2, len(cuts) + 1):
                    assert send(again, place, number, cuts[number - 1]).status_code == 200
                assert complete(again, place).json()["rows"] == 10_000


def wait_for(holds: Any, what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class TestAtRest:
    def test_a_stored_part_is_no_text_and_its_digest_is_sealed(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        before = parts_in(service)
        place = begun(owner, declared(owner), content)
        send_all(owner, place, content)
        names = parts_in(service) - before
        assert len(names) == len(cut(content))
        for name in names:
            raw = (service.home / "records" / name).read_bytes()
            assert raw.startswith(b"farthing-rec")
            assert not any(content[at : at + 12] in raw for at in range(0, len(content) - 12, 997))
        database = service.database()
        with database.read() as session:
            found = session.execute(select(UploadPart).where(UploadPart.location.in_(names))).scalars().all()
            plain = {hashlib.sha256(part).digest() for part in cut(content)}
            assert not any(one in row.sealed_digest for one in plain for row in found)
            upload_ = session.get_one(PartedUpload, found[0].upload_id)
            assert upload_.wrapped_key is not None
            key = load_master_keys(service.settings).unwrap(rows.wrapped_for(upload_.id), upload_.wrapped_key)
            storage = open_storage(service.settings)
            assert b"".join(rows.contents(storage, upload_.id, key, rows.of(session, upload_.id))) == content
            with pytest.raises(rows.PartLost):
                list(rows.contents(storage, upload_.id, bytes(32), rows.of(session, upload_.id)))
        database.dispose()
        owner.delete(place)

    def test_erasing_the_dataset_erases_them(self, service: Service, owner: httpx.Client) -> None:
        content, before = people(), parts_in(service)
        dataset = declared(owner)
        place = begun(owner, dataset, content)
        send_all(owner, place, content)
        assert owner.delete(f"/v1/datasets/{dataset}").json()["state"] in {"erasing", "erased"}
        wait_for(lambda: owner.get(f"/v1/datasets/{dataset}").json()["state"] == "erased", "it is erased")
        assert parts_in(service) <= before
        assert owner.get(place).status_code == 404
        assert send(owner, place, 1, cut(content)[0]).status_code in {404, 409}
        assert keys_of(service, dataset) == []
        assert owner.get("/v1/usage").json()["pending_bytes"] == 0

    def test_late_ones_go_with_their_keys_and_others_stay(self, service: Service, owner: httpx.Client) -> None:
        content, before = people(), parts_in(service)
        late, young = (begun(owner, declared(owner), content) for _ in range(2))
        send_all(owner, late, content)
        send_all(owner, young, content)
        database = service.database()
        day = PartedUpload.seen_at - rows.KEPT_SECONDS - 1
        database.transaction(
            lambda session: session.execute(
                update(PartedUpload).where(PartedUpload.id == late.rsplit("/", 1)[1]).values(seen_at=day)
            )
        )
        assert owner.get(late).status_code == 404
        assert send(owner, late, 1, cut(content)[0]).status_code == 404
        dataset_cases.erase_late_uploads(Context(service.settings, database))
        database.dispose()
        assert len(parts_in(service) - before) == len(cut(content))
        assert keys_of(service, late.split("/")[3]) == []
        assert complete(owner, young).json()["state"] == "ready"

    def test_orphans_are_collected_and_kept_parts_are_not(self, service: Service, owner: httpx.Client) -> None:
        content = people()
        place = begun(owner, declared(owner), content)
        send_all(owner, place, content)
        orphan = service.home / "records" / rows.new_location()
        orphan.write_bytes(b"killed before its row")
        database = service.database()
        collected = dataset_cases.collect_orphans(Context(service.settings, database), older_than_seconds=-60)
        database.dispose()
        assert orphan.name in collected
        assert not orphan.exists()
        assert complete(owner, place).json()["state"] == "ready"

    def test_a_restored_backup_has_no_uploads(self, tmp_path: Path) -> None:
        content = people()
        with running(tmp_path / "home") as service:
            owner, _ = service.someone("owner")
            upload(owner, shift=next(NEXT))
            place = begun(owner, declared(owner), content)
            send_all(owner, place, content)
            database = service.database()
            backups.backup(database, open_storage(service.settings), tmp_path / "copy")
            database.dispose()
        fresh = ServiceSettings(home=tmp_path / "fresh")
        fresh.home.mkdir()
        (fresh.home / "master.key").write_bytes((service.home / "master.key").read_bytes())
        backups.restore(tmp_path / "copy", fresh)
        restored = Database(fresh.url)
        with restored.read() as session:
            assert session.execute(select(PartedUpload)).first() is None
            assert session.execute(select(UploadPart)).first() is None
            assert session.execute(select(Dataset).where(Dataset.state == "ready")).first() is not None
        restored.dispose()


def keys_of(service: Service, dataset: str) -> list[str | None]:
    database = service.database()
    with database.read() as session:
        found = select(PartedUpload.wrapped_key).where(PartedUpload.dataset_id == dataset)
        keys = list(session.execute(found).scalars())
    database.dispose()
    return keys


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("small"), FARTHING_DISK_BYTES_PER_OWNER="900000") as found:
        yield found


class TestRoom:
    def test_the_whole_file_counts_from_its_announcement(self, small: Service) -> None:
        owner, _ = small.someone("owner")
        content = people(12_000)
        place = begun(owner, declared(owner), content)
        assert owner.get("/v1/usage").json()["pending_bytes"] == len(content)
        refused = owner.post(f"/v1/datasets/{declared(owner)}/uploads", json={"bytes": 900_000 - len(content)})
        assert (refused.status_code, refused.json()["code"]) == (413, "disk-quota-exceeded")
        assert refused.json()["errors"][0]["pointer"] == "/bytes"
        send_all(owner, place, content)
        assert owner.get("/v1/usage").json()["pending_bytes"] == len(content)
        owner.delete(place)
        assert owner.get("/v1/usage").json()["pending_bytes"] == 0

    def test_a_file_that_fills_the_room_is_sent_and_completed(self, small: Service) -> None:
        """Its parts and its copy on the way to the decoder are one file of the owner's, and not two."""
        owner, _ = small.someone("owner")
        content = people(21_000)
        assert len(content) > 450_000
        place = begun(owner, declared(owner), content)
        rest = 900_000 - owner.get("/v1/usage").json()["pending_bytes"] - owner.get("/v1/usage").json()["stored_bytes"]
        begun(owner, declared(owner), b"x" * (rest - 5000))
        send_all(owner, place, content)
        made = complete(owner, place)
        assert made.status_code == 200, made.text


def test_completing_a_large_file_takes_bounded_memory(tmp_path: Path) -> None:
    """The API process joins the parts: for a file of 138 MB it grows by less than 48 MB more than for one of 23 MB."""
    grown = []
    for rows_ in (500_000, 3_000_000):
        with running(tmp_path / str(rows_)) as service:
            owner, _ = service.someone("owner")
            line = b"18.00000,management,no,......................\n"
            content = b"age,job,y,note\n" + line * rows_
            place = begun(owner, declared(owner, seal=False), content, part_bytes=8 * 2**20)
            for number, part in enumerate(cut(content, 8 * 2**20), 1):
                assert send(owner, place, number, part).status_code == 200
            process = psutil.Process(service.process.pid)
            before, peak, ended = process.memory_info().rss, 0, threading.Event()

            def watch(process: psutil.Process = process, ended: threading.Event = ended) -> None:
                nonlocal peak
                while not ended.wait(0.02):
                    peak = max(peak, process.memory_info().rss)

            watcher = threading.Thread(target=watch)
            watcher.start()
            answer = owner.post(f"{place}/complete", timeout=600)
            ended.set()
            watcher.join()
            assert answer.status_code == 200, answer.text
            grown.append(peak - before)
    assert grown[1] < grown[0] + 48 * 2**20, grown


@pytest.fixture(scope="module", params=["bucket", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Any:
    """A service that keeps its records in an object store, and one whose rows are in PostgreSQL."""
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "bucket":
        bucket = request.getfixturevalue("s3")()
        with running(home, FARTHING_STORAGE_URL=f"s3://{bucket}/records") as found:
            yield found, lambda: [name for name in everything(bucket) if f"/{rows.PREFIX}_" in name], everything, bucket
        return
    url = create_postgresql(request.getfixturevalue("postgresql_server"), f"parts_{worker_id}")
    with running(home, url) as found:
        yield found, lambda: parts_in(found), None, None


def test_parts_in_a_bucket_and_rows_in_postgresql(elsewhere: Any) -> None:
    service, names, everything_in, bucket = elsewhere
    owner, _ = service.someone("owner")
    content = people()
    dataset = declared(owner)
    place = begun(owner, dataset, content)

    def sent(number: int) -> int:
        part = cut(content)[number - 1]
        while (answer := send(owner, place, number, part)).status_code == 429:
            time.sleep(0.1)
        return answer.status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(sent, [*range(1, len(cut(content)) + 1)] * 3)) == {200}
    assert len(names()) == len(cut(content))
    if everything_in is not None:
        stored = everything_in(bucket)
        assert not any(content[1000:1020] in raw for raw in stored.values())
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: complete(owner, place), range(2)))
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    assert answers[0].json() == answers[1].json()
    assert not names()
    other = declared(owner)
    send_all(owner, begun(owner, other, content), content)
    assert names()
    owner.delete(f"/v1/datasets/{other}")
    wait_for(lambda: not names(), "they are erased with their dataset")
