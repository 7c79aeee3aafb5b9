"""Requests that two servers could read in two ways, or that get around a check: one reading, or none."""

import gzip
import json
import socket
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.api import Service, csv, job, metadata, running, submit, upload
from tests.support.load import head, opened

METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PATCH", "PUT", "POST", "DELETE", "NOTHING")


@pytest.fixture(scope="module")
def owner(service: Service) -> tuple[httpx.Client, str, dict[str, Any]]:
    """An owner, its key, and its dataset."""
    client, made = service.someone("owner")
    return client, made["key"], upload(client)


Owner = tuple[httpx.Client, str, dict[str, Any]]


def answer(service: Service, sent: bytes, seconds: float = 30) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of the first answer to some bytes on a connection of their own.

    A refusal without a key is up to ten seconds late where other tests have had a hundred of them just before.
    """
    with opened(service, sent) as connection, connection.makefile("rb") as parts:
        connection.settimeout(seconds)
        status = int(parts.readline().split()[1])
        headers = {}
        while line := parts.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = 0 if sent.startswith(b"HEAD") else int(headers.get("content-length", "0"))
        return status, headers, parts.read(length)


def asked(path: str, key: str | None, *lines: str, method: str = "GET") -> bytes:
    return head(path, key, 0, *lines, method=method)


class TestCodings:
    @pytest.mark.parametrize(
        "coding", ["gzip", "GZIP", "deflate", "br", "zstd", "x-nope", "gzip, gzip", "identity, br"]
    )
    def test_a_body_that_is_said_to_be_packed_is_not_read(self, service: Service, owner: Owner, coding: str) -> None:
        """At 9f63d67 a body under a coding that nobody knows was read as it stood: 202."""
        client, key, dataset = owner
        body = json.dumps(job(dataset["id"])).encode()
        refused = client.post(
            "/v1/jobs", content=body, headers={"Content-Encoding": coding, "Content-Type": "application/json"}
        )
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported-content-coding")
        assert refused.headers["Accept-Encoding"] == "identity"
        assert refused.json()["errors"][0]["pointer"] == "#header/content-encoding"
        for path in ("/v1/datasets", "/v1/estimates", "/v1/keys"):
            status, _, _ = answer(service, head(path, key, 10**6, f"Content-Encoding: {coding}"))
            assert status in {403, 415}, "and no byte of it is waited for"

    def test_as_it_is_may_be_said(self, owner: Owner) -> None:
        client, _, dataset = owner
        headers = {"Content-Encoding": "identity"}
        assert client.post("/v1/estimates", json=job(dataset["id"]), headers=headers).status_code == 200

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    def test_what_unpacks_to_a_thousand_times_as_much_is_never_unpacked(self, owner: Owner, pack: Any) -> None:
        client, _, _ = owner
        bomb = pack(b" " * 500_000_000)
        assert len(bomb) < 2**20
        for headers in ({}, {"Content-Encoding": "gzip"}):
            told = client.post("/v1/estimates", content=bomb, headers={"Content-Type": "application/json", **headers})
            assert told.status_code in {415, 422}
            assert told.elapsed.total_seconds() < 5

    def test_files_are_sent_unpacked(self, owner: Owner) -> None:
        client, _, _ = owner
        parts: list[tuple[str, Any]] = [
            ("metadata", (None, json.dumps(metadata()), "application/json")),
            ("file", ("p.csv", gzip.compress(csv(50, 9)), "text/csv")),
        ]
        told = client.post("/v1/datasets", files=parts)
        assert (told.status_code, told.json()["errors"][0]["pointer"]) == (422, "/file")
        assert "gzip" in told.json()["detail"]


class TestMethods:
    def test_each_address_says_what_it_answers(self, service: Service, owner: Owner) -> None:
        """At 9f63d67 eight addresses named the first of their methods alone."""
        _, key, _ = owner
        for path, operations in httpx.get(f"{service.url}/openapi.json", timeout=60).json()["paths"].items():
            there = {method.upper() for method in operations}
            for method in METHODS:
                if method in there:
                    continue
                for who in (None, key):
                    status, headers, body = answer(
                        service, asked(path.replace("{", "").replace("}", ""), who, method=method)
                    )
                    assert status == 405, (method, path)
                    assert set(headers["allow"].split(", ")) == there
                    assert method == "HEAD" or json.loads(body)["code"] == "method-not-allowed"

    def test_none_is_told_more_than_who_asks_with_get(self, service: Service, owner: Owner) -> None:
        """Whether something exists, no other method says to anybody."""
        _, key, dataset = owner
        other = dataset["id"][:-4] + "0000"
        for method in ("HEAD", "OPTIONS", "TRACE", "PUT"):
            told = set()
            for one in (dataset["id"], other):
                for who in (None, key):
                    status, headers, _ = answer(service, asked(f"/v1/datasets/{one}", who, method=method))
                    told.add((status, headers["allow"], headers.get("etag"), headers["content-length"]))
            assert len(told) == 1, (method, told)


class TestTwice:
    @pytest.mark.parametrize("name", ["Authorization", "Idempotency-Key", "Content-Type", "If-Match", "Last-Event-ID"])
    def test_a_header_that_means_one_thing_is_there_once(self, service: Service, owner: Owner, name: str) -> None:
        """At 9f63d67 the first of two keys was taken, and one of two idempotency keys: 202."""
        _, key, dataset = owner
        body = json.dumps(job(dataset["id"])).encode()
        values = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        value = values.get(name, '"once"')
        more = [f"{name}: {value}"] if name in {"Authorization", "Content-Type"} else [f"{name}: {value}", f"{name}: x"]
        status, headers, told = answer(service, head("/v1/jobs", key, len(body), *more) + body)
        assert status == 400
        assert name.lower() in json.loads(told)["detail"]
        assert headers["connection"] == "close"

    @pytest.mark.parametrize("more", ["Content-Length: 3", "Host: y", "Content-Length: +1", "Transfer-Encoding: gzip"])
    def test_what_frames_a_request_is_there_once(self, service: Service, owner: Owner, more: str) -> None:
        assert answer(service, head("/v1/jobs", owner[1], 1000, more))[0] == 400

    def test_one_of_two_keys_in_a_line_opens_nothing(self, service: Service, owner: Owner) -> None:
        sent = asked("/v1/me", None, f"Authorization: Bearer far_nope, Bearer {owner[1]}")
        assert answer(service, sent)[0] == 401


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "/v1/datasets/", "/v1//datasets", "//v1/datasets", "/v1/./me", "/v1/datasets/../me",
            "/v1/datasets/%2e%2e/me",
            "/v1/datasets/..%2fme", "/v1/%252e%252e/metrics", "/metrics/", "//metrics", "/v1/ME", "/v1/me;x=1",
            "http://elsewhere.example/v1/me", "*",
        ],
    )  # fmt: skip
    def test_no_other_spelling_leads_anywhere(self, service: Service, owner: Owner, path: str) -> None:
        """At 9f63d67 a slash at the end was sent on, to whichever host the client had named."""
        for who in (None, owner[1], service.key):
            status, headers, _ = answer(service, asked(path, who))
            assert status == 404, (path, status)
            assert "location" not in headers

    def test_a_slash_is_no_part_of_a_name(self, owner: Owner) -> None:
        """At 9f63d67 `ds_...%2fbudget` was its budget: a proxy that passes `/v1/datasets/*` alone passed that too."""
        client, _, dataset = owner
        for slash in ("%2f", "%2F"):
            assert client.get(f"/v1/datasets/{dataset['id']}{slash}budget").status_code == 404

    @pytest.mark.parametrize(
        ("name", "status"),
        [("x" * 61, 422), ("x" * 5000, 422), ("%00", 422), ("a%00b", 422), ("%ff%fe", 404), ("%c0%af", 404), ("%", 404),
         ("%zz", 404), ("%0d%0aX-Evil:1", 404), ("%F0%9F%92%A9", 404)],
    )  # fmt: skip
    def test_names_that_nothing_has(self, service: Service, owner: Owner, name: str, status: int) -> None:
        for path in ("/v1/datasets/{}", "/v1/jobs/{}", "/v1/models/{}/summary", "/v1/jobs/{}/events"):
            found, headers, told = answer(service, asked(path.format(name), owner[1]))
            assert found == status, (path, told)
            assert "x-evil" not in headers


class TestConnections:
    @pytest.mark.parametrize("protocol", ["websocket", "h2c"])
    def test_a_connection_stays_what_it_is(self, service: Service, owner: Owner, protocol: str) -> None:
        lines = (f"Upgrade: {protocol}", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
        status, headers, _ = answer(service, asked("/v1/me", owner[1], *lines))
        assert status == 200
        assert "upgrade" not in headers
        assert answer(service, asked("/v1/me", None, *lines))[0] == 401

    def test_each_of_many_requests_in_a_row_shows_its_own_key(self, service: Service, owner: Owner) -> None:
        sent = asked("/v1/me", owner[1]) * 20 + asked("/v1/me", None) + asked("/v1/me", owner[1], "Connection: close")
        with opened(service, sent) as connection:
            connection.settimeout(20)
            got = b""
            while piece := connection.recv(65536):
                got += piece
        statuses = [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [200] * 20 + [401, 200]

    def test_what_follows_a_refused_body_is_a_request_of_its_own(self, service: Service, owner: Owner) -> None:
        """A body that was refused unread is no place to hide a request in."""
        hidden = asked("/v1/me", owner[1])
        sent = head("/v1/keys", None, len(hidden)) + hidden + asked("/v1/me", None, "Connection: close")
        with opened(service, sent) as connection:
            connection.settimeout(20)
            got = b""
            while piece := connection.recv(65536):
                got += piece
        assert [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]] in ([401], [401, 401])

    def test_refusals_that_nobody_waits_for_leave_nothing_behind(self, tmp_path: Path) -> None:
        """They are kept back where one caller gets many; 400 that hung up would leave no connection for others: 503."""
        with running(tmp_path, FARTHING_MAX_CONNECTIONS="64") as small:
            honest = small.client()
            for _ in range(400):
                assert honest.get("/v1/me").status_code == 200
                with opened(small, asked("/v1/nowhere", None)):
                    pass


class TestHeaders:
    @pytest.mark.parametrize(
        ("place", "event"),
        [("0", "queued"), *((place, "snapshot") for place in ("-1", "999999999", "9" * 30, "garbage", "+1", ""))],
    )  # fmt: skip
    def test_a_place_that_is_none_begins_with_how_the_job_stands(self, owner: Owner, place: str, event: str) -> None:
        client, _, dataset = owner
        made = submit(client, job(dataset["id"], mu="0.01")).json()["id"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": place}
        with client.stream("GET", f"/v1/jobs/{made}/events", headers=headers) as told:
            lines = told.iter_lines()
            assert (next(lines), next(lines)) == ("id: 1", f"event: {event}")

    def test_a_place_that_is_too_long_is_refused(self, owner: Owner) -> None:
        client, _, dataset = owner
        made = submit(client, job(dataset["id"], mu="0.01")).json()["id"]
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "9" * 41}
        assert client.get(f"/v1/jobs/{made}/events", headers=headers).status_code == 422

    def test_a_part_is_never_sent_for_the_whole(self, owner: Owner) -> None:
        """Ranges and conditions are heeded nowhere but where the document names them."""
        client, _, dataset = owner
        whole = client.get(f"/v1/datasets/{dataset['id']}")
        for name, value in (
            ("Range", "bytes=0-5"), ("Range", "bytes=" + "0-1," * 3000), ("If-None-Match", "*"), ("If-Match", '"x"'),
            ("If-Modified-Since", "garbage"), ("If-Range", "x"), ("Expect", "nonsense"),
        ):  # fmt: skip
            told = client.get(f"/v1/datasets/{dataset['id']}", headers={name: value})
            assert (told.status_code, told.json()) == (200, whole.json()), name

    def test_who_waits_for_no_time_is_answered_as_anybody(self, service: Service, owner: Owner) -> None:
        client, _, dataset = owner
        made = submit(client, job(dataset["id"], mu="0.01")).json()["id"]
        told = client.get(f"/v1/jobs/{made}", headers={"Prefer": "wait=0"})
        assert (told.status_code, told.headers["Preference-Applied"]) == (200, "wait=0")
        assert "Preference-Applied" not in client.get(f"/v1/jobs/{made}", headers={"Prefer": "waitress"}).headers
        with socket.create_connection(tuple(service.url.removeprefix("http://").split(":")), timeout=5) as connection:  # type: ignore[arg-type] # a port as text
            connection.sendall(asked(f"/v1/jobs/{made}/events", owner[1], "Accept: event-stream", "Connection: close"))
            assert b"application/json" in connection.makefile("rb").read()
