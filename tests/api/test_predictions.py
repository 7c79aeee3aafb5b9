"""Files of rows at the address of predictions: formats, refusals, limits, and nothing left behind."""

import csv
import io
import socket
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from api.routes.predicting import ARROW, CSV, PARQUET, wanted
from core.base.errors import Invalid
from tests.api.test_models import finish
from tests.support.api import Service, job, submit, upload

FILE = "application/vnd.apache.arrow.file"
ROWS = [{"age": 40.0, "job": "other"}, {"age": -19.0, "job": "technician"}]
TABLE = pa.Table.from_pylist([row | {"id": name} for row, name in zip(ROWS, ("=1+2", "b"), strict=True)])


@pytest.fixture(scope="module")
def model(service: Service, admin: httpx.Client, dataset: str) -> str:
    return finish(service, submit(admin, job(dataset)).json()["id"])


def sent(table: pa.Table, kind: str) -> bytes:
    sink = io.BytesIO()
    if kind == CSV:
        pacsv.write_csv(table, sink)
    elif kind == PARQUET:
        pq.write_table(table, sink)
    else:
        with (pa.ipc.new_file if kind == FILE else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def post(client: httpx.Client, model: str, content: Any, kind: str = CSV, query: str = "", **headers: str) -> Any:
    return client.post(
        f"/v1/models/{model}/predict{query}", content=content, headers={"Content-Type": kind} | headers, timeout=60
    )


@pytest.mark.parametrize("kind", [CSV, ARROW, FILE, PARQUET])
@pytest.mark.parametrize("accept", ["*/*", CSV, ARROW, PARQUET])
def test_each_format_is_answered_in_each(admin: httpx.Client, model: str, kind: str, accept: str) -> None:
    told = admin.post(f"/v1/models/{model}/predict", json={"rows": ROWS, "level": 0.9}).json()["predictions"]
    answer = post(admin, model, sent(TABLE, kind), kind, "?level=0.9", Accept=accept)
    assert answer.status_code == 200, answer.text
    media = answer.headers["content-type"].split(";")[0]
    assert media == ({FILE: ARROW}.get(kind, kind) if accept == "*/*" else accept)
    assert int(answer.headers["content-length"]) == len(answer.content)
    if media == CSV:
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(answer.text)))
    else:
        found = pq.read_table(io.BytesIO(answer.content)) if media == PARQUET else pa.ipc.open_stream(answer.content)
        rows = (found if media == PARQUET else found.read_all()).to_pylist()
    assert [row["id"] for row in rows] == ["'=1+2" if media == CSV else "=1+2", "b"], "no formula for a spreadsheet"
    for row, one in zip(rows, told, strict=True):
        figures = [row[f"predicted_{name}"] for name in ("probability", "std_error", "lower", "upper")]
        assert [float(figure) for figure in figures] == [one["probability"], one["std_error"], *one["interval"]]


def test_one_bad_cell_refuses_the_file_and_the_first_ten_are_named(
    service: Service, admin: httpx.Client, model: str
) -> None:
    """A file larger than a batch, whose mistakes begin in its last rows."""
    lines = ["age,job", *(f"{place % 90},other" for place in range(70_000)), *("x," for _ in range(30))]
    refused = post(admin, model, "\n".join(lines))
    assert refused.status_code == 422, refused.text
    told = refused.json()
    assert told["detail"] == (
        "60 cells in 30 rows of the file stand for nothing that the model can read; the first 10 are named."
    )
    assert [one["pointer"] for one in told["errors"]] == [
        f"/rows/{70_000 + place}/{name}" for place in range(5) for name in ("age", "job")
    ]
    assert told["errors"][0]["detail"] == "must be a number"
    assert "`technician`" in told["errors"][1]["detail"]
    assert list((service.home / "spool").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "pointer", "said"),
    [
        ("age,job\n40\n", "/rows/0", "has 1 cells, where the first line names 2 columns"),
        ("age\n40\n", "/columns/1/name", "no column `job`"),
        ("age,age,job\n1,1,other\n", "/columns/0/name", "both named `age`"),
        ("age;job\n40;other\n", "/columns/0/name", "not to be separated by commas"),
        ("", "/file", "send a file"),
        ("age,job\n", "/file", "at least one row"),
        (b"\xff\xfea", "/file", "UTF-8"),
        (b"PAR1" + bytes(20), "#header/content-type", "fits the file"),
        ("age,job,predicted_probability\n1,other,1\n", "/columns/predicted_probability", "rename it"),
        ("a~/b,age,job\n1,,other\n", "/rows/0/age", "must be a number"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    admin: httpx.Client, model: str, content: Any, pointer: str, said: str
) -> None:
    refused = post(admin, model, content)
    assert refused.status_code == 422, refused.text
    (first, *_) = refused.json()["errors"]
    assert first["pointer"] == pointer
    assert said in first["detail"]


def test_types_that_do_not_fit_are_named(admin: httpx.Client, model: str) -> None:
    texts = pa.table({"age": ["40"], "job": ["other"]})
    assert "write numbers" in post(admin, model, sent(texts, PARQUET), PARQUET).json()["errors"][0]["detail"]
    nested = TABLE.append_column("more", pa.array([[1], [2, 3]]))
    assert post(admin, model, sent(nested, ARROW), ARROW).status_code == 200, "columns of no concern pass unread"
    refused = post(admin, model, sent(nested, ARROW), ARROW, Accept=CSV)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#header/accept")


def test_a_level_and_a_format_are_checked(admin: httpx.Client, model: str) -> None:
    for query, headers, pointer in (
        ("?level=2", {}, "#query/level"),
        ("?levels=.9", {}, "#query/levels"),
        ("", {"Accept": "application/json"}, "#header/accept"),
    ):
        refused = post(admin, model, "age,job\n1,other\n", query=query, **headers)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/x-npz", "text/plain"])
def test_other_bodies_are_refused(admin: httpx.Client, model: str, kind: str) -> None:
    refused = post(admin, model, "age,job\n1,other\n", kind)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#header/content-type")


@pytest.mark.parametrize(
    ("accept", "media", "kind"),
    [
        ([], "parquet", "parquet"),
        (["text/csv;q=0.5, application/vnd.apache.parquet"], "csv", "parquet"),
        (["application/json", "*/*;q=0.1"], "arrow-file", "arrow-stream"),
        (["text/*"], "parquet", "csv"),
        (["application/*"], "csv", "arrow-stream"),
        (["text/csv;q=0", "application/json"], "csv", None),
    ],
)
def test_the_format_of_an_answer(accept: list[str], media: Any, kind: str | None) -> None:
    if kind is None:
        with pytest.raises(Invalid, match="answered with a file"):
            wanted(accept, media)
    else:
        assert wanted(accept, media) == kind


def test_strangers_predict_nothing(service: Service, model: str) -> None:
    stranger, _ = service.someone("analyst")
    assert post(stranger, model, "age,job\n1,other\n").status_code == 404
    with httpx.Client(base_url=service.url) as nobody:
        assert post(nobody, model, "age,job\n1,other\n").status_code == 401


def test_a_key_is_checked_before_the_body_comes(service: Service, model: str) -> None:
    """The client sends a head alone, and has its answer."""
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as line:
        head = f"POST /v1/models/{model}/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: text/csv\r\n"
        line.sendall(f"{head}Authorization: Bearer nobody\r\nContent-Length: 100000\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 401")


def test_a_file_has_so_many_bytes_and_rows(narrow: Service) -> None:
    with narrow.client() as client:
        made = finish(narrow, submit(client, job(str(upload(client)["id"]))).json()["id"])
        wide = "age,job\n" + "40,other\n" * 20_000
        for content in (wide, iter([wide.encode()])):
            refused = post(client, made, content)
            assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
        refused = post(client, made, "age,job\n" + "40,other\n" * 1001)
        assert (refused.status_code, "more than 1000 rows" in refused.json()["detail"]) == (413, True)
        assert post(client, made, "age,job\n" + "40,other\n" * 1000).status_code == 200
    assert list((narrow.home / "spool").iterdir()) == []
