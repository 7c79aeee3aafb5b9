import io
import json
import re
import select
import socket
from collections.abc import Iterator
from itertools import repeat
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.support.api import COLUMNS, Service, csv, job, metadata, submit, upload
from tests.support.arrays import npz, parquet
from tests.support.verified import verified


def post(
    client: httpx.Client, meta: Any, content: bytes | None, media: str = "text/csv", **headers: str
) -> httpx.Response:
    text = meta if isinstance(meta, str | bytes) else json.dumps(meta)
    parts: list[tuple[str, Any]] = [("metadata", (None, text, "application/json"))]
    if content is not None:
        parts.append(("file", ("people", content, media)))
    return client.post("/v1/datasets", files=parts, headers=headers)


def pointers(answer: httpx.Response) -> set[str]:
    return {error["pointer"] for error in answer.json()["errors"]}


class TestUpload:
    def test_answers_with_the_public_facts(self, admin: httpx.Client) -> None:
        made = upload(admin, shift=1)
        assert made["id"].startswith("ds_")
        assert made["object"] == "dataset"
        assert made["name"] == "people"
        assert made["scope"].startswith("sc_")
        assert made["rows"] == 400
        assert [column["name"] for column in made["columns"]] == ["age", "job", "y"]
        assert re.fullmatch(r"fp_[0-9a-f]{32}", made["fingerprint"])
        assert made["created_at"].endswith("Z")

    def test_reads_parquet_and_arrow(self, service: Service, admin: httpx.Client) -> None:
        table = pacsv.read_csv(io.BytesIO(csv(300, 2)))
        parquet, stream = io.BytesIO(), io.BytesIO()
        pq.write_table(table, parquet)
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        one = post(admin, metadata(), parquet.getvalue(), "application/vnd.apache.parquet")
        other, _ = service.someone("owner")
        two = post(other, metadata(), stream.getvalue(), "application/vnd.apache.arrow.stream")
        assert (one.status_code, two.status_code) == (201, 201), one.text + two.text
        assert one.json()["rows"] == two.json()["rows"] == 300

    def test_reads_images_from_numpy_archives_and_nested_lists(self, service: Service, admin: httpx.Client) -> None:
        images = np.random.default_rng(1).integers(0, 256, (200, 28, 28), dtype=np.uint8)
        labels = np.arange(200) % 10
        columns = [
            {"name": "image", "type": "array", "shape": [1, 28, 28], "lower": 0, "upper": 255},
            {"name": "label", "type": "category", "values": [str(digit) for digit in range(10)]},
        ]
        meta = metadata(columns=columns)
        made = post(admin, meta, npz(image=images, label=labels), "application/x-npz")
        assert made.status_code == 201, made.text
        assert made.json()["rows"] == 200
        assert made.json()["columns"][0] == {**columns[0], "of": "number", "missing": [], "centre": None}
        nested = pa.table({"image": images[:, None].tolist(), "label": labels})
        owner, _ = service.someone("owner")
        other = post(owner, meta, parquet(nested), "application/vnd.apache.parquet")
        assert other.status_code == 201, other.text
        reports = [
            client.get(f"/v1/datasets/{one.json()['id']}/validation").json()
            for client, one in ((admin, made), (owner, other))
        ]
        assert [(report["rows"], report["incomplete_rows"]) for report in reports] == [(200, 0), (200, 0)]
        place = f"/v1/datasets/{made.json()['id']}/mock"
        assert np.shape(admin.get(place, params={"rows": 3}).json()["data"][2]["image"]) == (1, 28, 28)
        many = admin.get(place, params={"rows": 10_000})
        assert (many.status_code, pointers(many)) == (422, {"#query/rows"})

    def test_octets_are_looked_at(self, admin: httpx.Client) -> None:
        column = {"name": "words", "type": "array", "shape": [5], "of": "token", "lower": 0, "upper": 99}
        place = admin.post("/v1/datasets", json=metadata(columns=[column])).json()["id"]
        filled = admin.put(
            f"/v1/datasets/{place}/content",
            content=npz(words=np.ones((20, 5), dtype=np.int64)),
            headers={"Content-Type": "application/octet-stream"},
        )
        assert (filled.status_code, filled.json().get("rows")) == (200, 20), filled.text
        again = post(admin, metadata(columns=[column]), b"words\n1\n", "application/octet-stream")
        assert (again.status_code, pointers(again)) == (422, {"/columns/0/type"})

    def test_metadata_alone_and_then_the_content(self, admin: httpx.Client) -> None:
        made = admin.post("/v1/datasets", json=metadata(name="later"))
        assert made.status_code == 201
        assert made.json()["state"] == "pending"
        assert made.json()["scope"] is None
        place = f"/v1/datasets/{made.json()['id']}"
        assert submit(admin, job(made.json()["id"])).status_code == 409
        assert admin.get(f"{place}/budget").json()["code"] == "conflict"
        assert admin.put(f"{place}/content", content=b"x", headers={"Content-Type": "text/html"}).status_code == 415
        filled = admin.put(f"{place}/content", content=csv(200, 3), headers={"Content-Type": "text/csv"})
        assert filled.status_code == 200, filled.text
        assert filled.json()["rows"] == 200
        assert filled.json()["state"] == "ready"
        again = admin.put(f"{place}/content", content=csv(200, 4), headers={"Content-Type": "text/csv"})
        assert again.status_code == 409

    def test_the_same_bytes_are_refused_and_the_scope_is_named(self, service: Service, admin: httpx.Client) -> None:
        made = post(admin, metadata(), csv(400, 5)).json()
        before = service.files()
        again = post(admin, metadata(name="copy"), csv(400, 5))
        assert again.status_code == 409
        assert again.json()["code"] == "duplicate-dataset"
        assert again.json()["scope"] == made["scope"]
        assert service.files() == before

    def test_an_idempotency_key_makes_one_dataset(self, admin: httpx.Client) -> None:
        key = uuid4().hex
        one = post(admin, metadata(), csv(100, 6), **{"Idempotency-Key": key})
        two = post(admin, metadata(), csv(100, 6), **{"Idempotency-Key": key})
        other = post(admin, metadata(name="other"), csv(100, 6), **{"Idempotency-Key": key})
        assert (one.status_code, two.status_code) == (201, 201), two.text
        assert one.json() == two.json()
        assert two.headers["Idempotency-Replayed"] == "true"
        assert other.json()["code"] == "idempotency-key-reused"

    def test_new_data_join_a_scope(self, admin: httpx.Client) -> None:
        first = upload(admin, shift=7)
        second = upload(admin, shift=8, budget=None, scope=first["scope"])
        assert second["scope"] == first["scope"]
        assert set(admin.get(f"/v1/scopes/{first['scope']}").json()["datasets"]) == {first["id"], second["id"]}
        wrong = post(admin, metadata(budget=None, scope=first["scope"], adjacency="replace_one"), csv(100, 9))
        assert pointers(wrong) == {"/adjacency"}


ODD = b"NaN,pilot,maybe\ninf,,\n-1e999,technician,yes\n1000,other,no\nabc,\xf0\x9f\x98\x80,no\n"


def columns_with(index: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**column, **changes} if place == index else column for place, column in enumerate(COLUMNS)]


BAD_METADATA: dict[str, tuple[Any, str]] = {
    "bounds reversed": (metadata(columns=columns_with(0, lower=95, upper=18)), "/columns/0/upper"),
    "epsilon 0": (metadata(budget={"epsilon": "0"}), "/budget/epsilon"),
    "epsilon negative": (metadata(budget={"epsilon": "-1"}), "/budget/epsilon"),
    "epsilon NaN": (metadata(budget={"epsilon": "NaN"}), "/budget/epsilon"),
    "epsilon 1e400": (metadata(budget={"epsilon": "1e400"}), "/budget/epsilon"),
    "epsilon a number": (metadata(budget={"epsilon": 3}), "/budget/epsilon"),
    "delta a number": (metadata(budget={"epsilon": "3", "delta": 1e-6}), "/budget/delta"),
    "two budgets": (metadata(scope="sc_1"), "/scope"),
    "no budget": (metadata(budget=None), "/budget"),
    "unknown type": (metadata(columns=columns_with(0, type="blob")), "/columns/0/type"),
    "duplicate names": (metadata(columns=columns_with(1, name="age")), "/columns/1/name"),
    "other undeclared": (metadata(columns=columns_with(1, other="pilot")), "/columns/1/other"),
    "unknown field": (metadata(colour="red"), "/colour"),
    "user units": (metadata(unit={"user_column": "age", "max_records": 3}), "/unit"),
    "unknown scope": (metadata(budget=None, scope="sc_nowhere"), "/scope"),
    "a list": ("[]", ""),
    "no JSON": ("{", ""),
    "NaN in JSON": ('{"name": NaN}', "/name"),
    "a lone surrogate": ('{"name": "\\ud800"}', "/name"),
}

BAD_FILES: dict[str, tuple[bytes, str, str]] = {
    "empty": (b"", "text/csv", "/file"),
    "header only": (b"age,job,y\n", "text/csv", "/file"),
    "missing column": (b"age,y\n20,no\n", "text/csv", "/columns/1/name"),
    "not UTF-8": (b"age,job,y\n20,caf\xe9,no\n", "text/csv", "/reading/encoding"),
    "gzip": (b"\x1f\x8b" + csv(10), "text/csv", "/file"),
    "no Parquet": (csv(10), "application/vnd.apache.parquet", "/file"),
    "broken Parquet": (b"PAR1" + b"\0" * 64 + b"PAR1", "application/vnd.apache.parquet", "/file"),
}


UPLOAD_TYPE = "multipart/form-data; boundary=x"
UPLOAD_HEAD = (
    b'--x\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n'
    + json.dumps(metadata()).encode()
    + b'\r\n--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
)


class TestBadInput:
    @pytest.mark.parametrize("case", BAD_METADATA)
    def test_metadata_name_the_field_and_store_nothing(self, service: Service, admin: httpx.Client, case: str) -> None:
        meta, pointer = BAD_METADATA[case]
        before, count = service.files(), len(admin.get("/v1/datasets?limit=100").json()["data"])
        for answer in (
            post(admin, meta, csv(50, 50)),
            admin.post(
                "/v1/datasets",
                content=meta if isinstance(meta, str) else json.dumps(meta),
                headers={"Content-Type": "application/json"},
            ),
        ):
            assert 400 <= answer.status_code < 500, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert any(found.startswith(pointer) for found in pointers(answer)), answer.text
        assert service.files() == before
        assert len(admin.get("/v1/datasets?limit=100").json()["data"]) == count

    @pytest.mark.parametrize("case", BAD_FILES)
    def test_files_name_the_field_and_store_nothing(self, service: Service, admin: httpx.Client, case: str) -> None:
        content, media, pointer = BAD_FILES[case]
        before = service.files()
        answer = post(admin, metadata(), content, media)
        assert 400 <= answer.status_code < 500, answer.text
        assert any(found.startswith(pointer) for found in pointers(answer)), answer.text
        assert service.files() == before
        assert admin.get("/readyz").status_code == 200

    def test_a_header_of_ten_million_columns(self, service: Service, admin: httpx.Client) -> None:
        def pieces() -> Iterator[bytes]:
            yield UPLOAD_HEAD
            for start in range(0, 10_000_000, 100_000):
                yield b"".join(b"c%d," % place for place in range(start, start + 100_000))
            yield b"last\n1,2\n\r\n--x--\r\n"

        before = service.files()
        answer = admin.post("/v1/datasets", content=pieces(), headers={"Content-Type": UPLOAD_TYPE})
        assert answer.status_code == 413, answer.text
        assert pointers(answer) == {"/file"}
        assert service.files() == before
        assert upload(admin, shift=60)["rows"] == 400

    def test_parts_in_the_wrong_order_or_missing(self, admin: httpx.Client) -> None:
        text = json.dumps(metadata())
        swapped = [("file", ("x.csv", csv(10), "text/csv")), ("metadata", (None, text, "application/json"))]
        assert pointers(admin.post("/v1/datasets", files=swapped)) == {"/metadata"}
        assert pointers(post(admin, metadata(), None)) == {"/file"}
        assert pointers(admin.post("/v1/datasets", files=[("odd", (None, "x"))])) == {"/metadata"}

    @pytest.mark.parametrize(
        "kind",
        ["multipart/form-data", "multipart/form-data; boundary=", "text/plain", "multipart/form-data; boundary=x"],
    )
    def test_no_multipart(self, admin: httpx.Client, kind: str) -> None:
        answer = admin.post("/v1/datasets", content=b"hello", headers={"Content-Type": kind})
        assert answer.status_code in (415, 422)

    def test_a_cut_off_body_stores_nothing(self, service: Service, admin: httpx.Client) -> None:
        before = service.files()
        head = UPLOAD_HEAD + csv(30, 30)
        answer = admin.post("/v1/datasets", content=head, headers={"Content-Type": UPLOAD_TYPE})
        assert answer.status_code == 422
        assert service.files() == before

    def test_odd_cells_never_fail(self, admin: httpx.Client) -> None:
        odd = b"age,job,y\n" + ODD * 20
        answer = post(admin, metadata(accept_excluded=True), odd)
        assert answer.status_code == 201, answer.text
        report = admin.get(f"/v1/datasets/{answer.json()['id']}/validation").json()
        assert report["rows"] == 100
        assert report["incomplete_rows"] > 0


def two_gigabytes() -> Iterator[bytes]:
    """Yield an upload of 2 GB, a megabyte at a time."""
    yield UPLOAD_HEAD + b"age,job,y\n"
    yield from repeat(b"20,other,no\n" * 83_333, 2_000)


class TestCap:
    @pytest.mark.slow
    def test_a_stream_over_the_cap_is_refused_and_not_stored(self, narrow: Service) -> None:
        """By a client that sends everything before it reads."""
        before = narrow.files()
        with narrow.client() as client:
            answer = client.post("/v1/datasets", content=two_gigabytes(), headers={"Content-Type": UPLOAD_TYPE})
            assert answer.status_code == 413, answer.text
            assert answer.json()["code"] == "too-large"
            assert answer.json()["limit_bytes"] == 1_000_000
            assert pointers(answer) == {"/file"}
            assert narrow.files() == before
            assert upload(client)["rows"] == 400

    def test_a_stream_over_the_cap_is_refused_long_before_its_end(self, narrow: Service) -> None:
        """The client listens while it sends; buffers of the two sockets hold everything that it sends until then."""
        host, port = narrow.url.removeprefix("http://").split(":")
        lines = ("POST /v1/datasets HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {narrow.key}")
        lines += (f"Content-Type: {UPLOAD_TYPE}", "Transfer-Encoding: chunked", "", "")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall("\r\n".join(lines).encode())
            sent = 0
            for piece in two_gigabytes():
                if select.select([connection], [], [], 0)[0]:
                    break
                connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        assert sent < 200_000_000

    def test_a_json_body_over_the_cap(self, narrow: Service) -> None:
        with narrow.client() as client:
            answer = client.post("/v1/estimates", json={"x": "y" * 2_000_000})
            assert answer.status_code == 413


class TestSight:
    def test_a_dataset_does_not_exist_for_strangers(self, service: Service, admin: httpx.Client) -> None:
        made = upload(admin, shift=11)
        place = f"/v1/datasets/{made['id']}"
        stranger, who = service.someone("analyst")
        auditor, _ = service.someone("auditor")
        for path in ("", "/budget", "/mock", "/validation"):
            assert stranger.get(place + path).status_code == 404
        assert stranger.get("/v1/datasets").json()["data"] == []
        assert stranger.post("/v1/estimates", json=job(made["id"])).status_code == 404
        assert submit(stranger, job(made["id"])).status_code == 404
        assert stranger.get(f"/v1/scopes/{made['scope']}").status_code == 404
        assert auditor.get(place).status_code == 200
        assert auditor.get(f"{place}/validation").status_code == 403
        assert submit(auditor, job(made["id"])).status_code == 403

        given = admin.put(f"{place}/access/{who['principal']}", json={"budget_cap": "all"})
        assert (given.status_code, given.json()["dataset"]) == (201, made["id"])
        assert stranger.get(place).status_code == 200
        assert stranger.get(f"{place}/validation").status_code == 403
        assert stranger.get(f"/v1/scopes/{made['scope']}").status_code == 200
        assert submit(stranger, job(made["id"])).status_code == 202
        assert stranger.delete(place).status_code == 403
        assert admin.delete(f"{place}/access/{who['principal']}").status_code == 204
        assert stranger.get(place).status_code == 404

    def test_analysts_own_no_data(self, service: Service) -> None:
        analyst, _ = service.someone("analyst")
        answer = post(analyst, metadata(), csv(20, 20))
        assert answer.status_code == 403
        assert answer.json()["code"] == "forbidden"

    def test_access_for_nobody(self, admin: httpx.Client, dataset: str) -> None:
        assert admin.put(f"/v1/datasets/{dataset}/access/pr_nobody", json={"budget_cap": "all"}).status_code == 404
        assert admin.get("/v1/datasets/ds_nowhere").status_code == 404


class TestRest:
    def test_budget_has_the_promised_shape(self, admin: httpx.Client) -> None:
        made = upload(admin, shift=12)
        budget = admin.get(f"/v1/datasets/{made['id']}/budget").json()
        assert {"scope", "adjacency", "delta", "epsilon", "budget_share", "rho", "entries", "head"} <= budget.keys()
        assert budget["scope"] == made["scope"]
        assert budget["delta"] == "1e-6"
        assert budget["epsilon"]["total"] == "3"
        assert budget["epsilon"]["spent"] == "0"
        assert set(budget["epsilon"]) == {"total", "spent", "remaining"}
        assert budget["budget_share"] == {"spent": "0", "reserved": "0", "remaining": "1"}
        assert set(budget["rho"]) == {"total", "spent", "reserved", "remaining"}
        assert budget["head"].startswith("sha256:")
        assert budget["entries"] == 2

    def test_a_budget_in_rho(self, admin: httpx.Client) -> None:
        made = upload(admin, shift=13, budget={"rho": "0.2"})
        assert admin.get(f"/v1/datasets/{made['id']}/budget").json()["delta"] == "1e-5"

    def test_mock_rows_come_from_the_declaration(self, admin: httpx.Client, dataset: str) -> None:
        rows = admin.get(f"/v1/datasets/{dataset}/mock?rows=50").json()["data"]
        assert len(rows) == 50
        assert all(18 <= row["age"] <= 95 and row["y"] in ("no", "yes") for row in rows)

    def test_lists_have_cursors_and_cap_limits(self, admin: httpx.Client) -> None:
        for shift in range(5):
            upload(admin, shift=shift + 20, rows=60 + shift)
        seen: list[str] = []
        query = {"limit": "2"}
        while True:
            page = admin.get("/v1/datasets", params=query).json()
            assert page["object"] == "list"
            assert len(page["data"]) <= 2
            seen += [item["id"] for item in page["data"]]
            if not page["has_more"]:
                break
            query["after"] = page["next"]
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == len(set(seen)) >= 5
        assert len(admin.get("/v1/datasets?limit=1000000").json()["data"]) <= 100

    def test_erasure_cancels_jobs_and_keeps_the_ledger(self, service: Service, admin: httpx.Client) -> None:
        made = upload(admin, shift=14)
        queued = submit(admin, job(made["id"])).json()
        before = len(service.files())
        answer = admin.delete(f"/v1/datasets/{made['id']}")
        assert answer.status_code == 202
        assert answer.json()["state"] == "erasing"
        assert admin.get(f"/v1/datasets/{made['id']}").json()["state"] == "erased"
        assert admin.get(f"/v1/jobs/{queued['id']}").json()["state"] == "cancelled"
        assert len(service.files()) == before - 1
        assert submit(admin, job(made["id"])).status_code == 409
        assert verified(admin, made["scope"])["ok"]
        assert admin.get(f"/v1/datasets/{made['id']}/validation").status_code == 409
