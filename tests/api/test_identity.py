"""Disclosure by an upload: others learn nothing of its records; an owner learns which uploads hold the same people."""

import csv as csvs
import gzip
import io
import json
import re
import time
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.support.api import Service, metadata

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "lower": 18, "upper": 95},
    {"name": "income", "type": "number", "lower": 0, "upper": 100_000},
    {"name": "visits", "type": "integer", "lower": 0, "upper": 50},
    {"name": "since", "type": "date", "lower": "2000-01-01", "upper": "2026-01-01"},
    {"name": "job", "type": "category", "values": ["management", "technician", "other"], "other": "other"},
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]
NAMES = [column["name"] for column in COLUMNS]
ROWS = 1000


def people(seed: int, rows: int = ROWS) -> list[list[str]]:
    """Return somebody's records; another seed gives other people of the same population."""
    random = np.random.default_rng(seed)
    jobs = ("management", "technician", "student")
    return [
        [
            f"{random.integers(18, 95)}",
            f"{random.lognormal(10, 0.5):.2f}",
            f"{random.integers(0, 60)}",
            f"20{random.integers(10, 25)}-0{random.integers(1, 10)}-1{random.integers(0, 10)}",
            jobs[random.integers(0, 3)],
            ("no", "yes")[random.integers(0, 2)],
        ]
        for _ in range(rows)
    ]


def text(rows: list[list[str]], names: list[str] | None = None, end: str = "\n") -> bytes:
    """Return records as CSV."""
    return (end.join(",".join(row) for row in [names or NAMES, *rows]) + end).encode()


def send(
    client: httpx.Client, content: bytes, media: str = "text/csv", columns: Any = None, **changes: Any
) -> httpx.Response:
    meta = metadata(columns=columns or COLUMNS, **changes)
    parts: list[tuple[str, Any]] = [
        ("metadata", (None, json.dumps(meta), "application/json")),
        ("file", ("people", content, media)),
    ]
    return client.post("/v1/datasets", files=parts)


def made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def leaves(value: Any) -> set[str]:
    """Return all texts and numbers in an answer."""
    if isinstance(value, dict):
        return set().union(*map(leaves, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(leaves, value)) if value else set()
    return {repr(value)}


def seen(client: httpx.Client, dataset: dict[str, Any]) -> set[str]:
    """Return every value that a caller receives about a dataset and its scope, headers included, times left out.

    Entries tell the second in which they were made, and two uploads of one second have it in common.
    """
    found: set[str] = set()
    for path in (f"datasets/{dataset['id']}", f"datasets/{dataset['id']}/budget", f"scopes/{dataset['scope']}"):
        answer = client.get(f"/v1/{path}")
        found |= leaves(answer.json()) | {answer.headers.get("etag", ""), answer.headers["content-length"]}
    for path in ("entries", "head"):
        found |= leaves(client.get(f"/v1/scopes/{dataset['scope']}/{path}").json())
    found |= leaves(client.get(f"/v1/datasets/{dataset['id']}/mock").json())
    return {one for one in found if not re.match(r"'\d{4}-\d\d-\d\dT", one)}


def test_a_cell_is_not_recovered_from_ten_guesses(service: Service) -> None:
    """By a stranger who may upload and sees the dataset, and has all of it but one digit of one cell."""
    owner, _ = service.someone("owner")
    attacker, who = service.someone("owner")
    records = people(1)
    records[500][0] = "37"
    victim = made(send(owner, text(records)))
    assert owner.put(f"/v1/datasets/{victim['id']}/access/{who['principal']}", json={"budget_cap": "all"}).is_success
    told = seen(attacker, victim)
    guesses = {}
    for digit in range(10):
        guess = [list(row) for row in records]
        guess[500][0] = f"3{digit}"
        # near-copies of one another: the attacker states what it takes
        guesses[digit] = seen(
            attacker, made(send(attacker, text(guess), distinct_because="these are guesses, not people"))
        )
    common = set.intersection(*guesses.values())
    recovered = {digit: shared for digit, one in guesses.items() if (shared := (one & told) - common)}
    assert recovered == {}


First = tuple[httpx.Client, dict[str, Any], list[list[str]]]


@pytest.fixture(scope="module")
def first(service: Service) -> First:
    """An owner with one upload."""
    owner, _ = service.someone("owner")
    records = people(2)
    return owner, made(send(owner, text(records))), records


def table(records: list[list[str]]) -> pa.Table:
    return pacsv.read_csv(io.BytesIO(text(records)))


def parquet(records: list[list[str]], **types: pa.DataType) -> bytes:
    kept = table(records)
    for name, kind in types.items():
        kept = kept.set_column(kept.schema.get_field_index(name), name, kept[name].cast(kind))
    sink = io.BytesIO()
    pq.write_table(kept, sink)
    return sink.getvalue()


def arrow(records: list[list[str]], *, stream: bool, codec: str | None = None) -> bytes:
    kept, sink = table(records), io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(sink, kept.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(kept, max_chunksize=100)
    return sink.getvalue()


def packed(records: list[list[str]], codec: str) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(records), sink, compression=codec, row_group_size=77)
    return sink.getvalue()


def quoted(records: list[list[str]]) -> bytes:
    sink = io.StringIO()
    csvs.writer(sink, quoting=csvs.QUOTE_ALL).writerows([NAMES, *records])
    return sink.getvalue().encode()


def without(*names: str) -> list[dict[str, Any]]:
    return [column for column in COLUMNS if column["name"] not in names]


def redeclared(place: int, **changes: Any) -> list[dict[str, Any]]:
    return [column | changes if place == here else column for here, column in enumerate(COLUMNS)]


WITH_MORE = [*NAMES, "note"]
SAME: dict[str, Any] = {
    "the same bytes": lambda rows: (text(rows), {}),
    "a newline more": lambda rows: (text(rows) + b"\n", {}),
    "CRLF": lambda rows: (text(rows, end="\r\n"), {}),
    "a space": lambda rows: (text(rows).replace(b",", b" ,", 7), {}),
    "quotes": lambda rows: (quoted(rows), {}),
    "reversed": lambda rows: (text(rows[::-1]), {}),
    "an undeclared column": lambda rows: (text([[*row, "x"] for row in rows], WITH_MORE), {}),
    "columns in another order": lambda rows: (text([row[::-1] for row in rows], NAMES[::-1]), {}),
    "1.0 for 1": lambda rows: (text([[f"{row[0]}.0", *row[1:]] for row in rows]), {}),
    "1e0 for 1": lambda rows: (text([[*row[:2], f"{row[2]}e0", *row[3:]] for row in rows]), {}),
    "Parquet": lambda rows: (parquet(rows), {"media": "application/vnd.apache.parquet"}),
    "Parquet, single precision": lambda rows: (
        parquet(rows, income=pa.float32(), age=pa.int16()),
        {"media": "application/vnd.apache.parquet"},
    ),
    "Parquet, decimals and codes": lambda rows: (
        parquet(rows, income=pa.decimal128(12, 2), job=pa.dictionary(pa.int8(), pa.string()), visits=pa.uint64()),
        {"media": "application/vnd.apache.parquet"},
    ),
    "Parquet, gzip inside": lambda rows: (packed(rows, "gzip"), {"media": "application/vnd.apache.parquet"}),
    "Parquet as octets, brotli inside, reversed": lambda rows: (
        packed(rows[::-1], "brotli"),
        {"media": "application/octet-stream"},
    ),
    "Arrow": lambda rows: (arrow(rows, stream=False), {"media": "application/vnd.apache.arrow.file"}),
    "Arrow stream, lz4 inside": lambda rows: (
        arrow(rows, stream=True, codec="lz4"),
        {"media": "application/vnd.apache.arrow.stream"},
    ),
    "zeros before and behind": lambda rows: (text([[f"0{row[0]}", f"{row[1]}00", *row[2:]] for row in rows]), {}),
    "a plus": lambda rows: (text([[f"+{row[0]}", *row[1:]] for row in rows]), {}),
    "a place shifted": lambda rows: (text([[f"{row[0]}0e-1", *row[1:]] for row in rows]), {}),
    "a byte order mark": lambda rows: (b"\xef\xbb\xbf" + text(rows), {}),
    "other bounds": lambda rows: (text(rows) + b"\n", {"columns": redeclared(1, upper=20_000)}),
    "other categories": lambda rows: (text(rows) + b"\n", {"columns": redeclared(4, values=["student", "other"])}),
    "an integer as a number": lambda rows: (text(rows) + b"\n", {"columns": redeclared(2, type="number")}),
    "an integer as a category": lambda rows: (
        text(rows) + b"\n",
        {"columns": [*COLUMNS[:2], {"name": "visits", "type": "category", "values": ["1", "2"]}, *COLUMNS[3:]]},
    ),
    "two columns less": lambda rows: (text(rows) + b"\n", {"columns": without("income", "y")}),
    "one column alone": lambda rows: (text(rows) + b"\n", {"columns": without(*(set(NAMES) - {"income"}))}),
    "a column more": lambda rows: (
        text([[*row, str(place % 7)] for place, row in enumerate(rows)], WITH_MORE),
        {"columns": [*COLUMNS, {"name": "note", "type": "integer", "lower": 0, "upper": 9}]},
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_the_same_records_have_one_budget(first: First, case: str) -> None:
    owner, there, records = first
    content, changes = SAME[case](records)
    answer = send(owner, content, **changes)
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] == "duplicate-dataset"
    assert (answer.json()["dataset"], answer.json()["scope"]) == (there["id"], there["scope"])
    stated = send(owner, content, **changes, distinct_because="no reason will do, however long it is")
    assert stated.json()["code"] == "duplicate-dataset"


def test_the_same_records_packed_as_a_whole_are_not_read(first: First) -> None:
    owner, _, records = first
    packed_file = send(owner, gzip.compress(text(records)))
    assert (packed_file.status_code, packed_file.json()["errors"][0]["pointer"]) == (422, "/file")


@pytest.mark.timing
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["the same bytes", "a near-copy"])
def test_how_long_an_upload_takes_says_nothing_of_other_owners(service: Service, kind: str) -> None:
    """A sign test of 30 pairs, one of whose uploads another owner has already; false alarm once in 3,000 runs."""
    longer = 0
    for pair in range(30):
        records = people(5000 + 100 * pair + (kind == "a near-copy"), 3000)
        theirs = records if kind == "the same bytes" else [*records[:-1], *people(77, 1)]
        made(send(service.someone("owner")[0], text(theirs)))
        other = people(6000 + 100 * pair + 50, 3000)
        times = {}
        for name, content in [("known", text(records)), ("new", text(other))][:: 1 if pair % 2 else -1]:
            client = service.someone("owner")[0]
            client.get("/v1/me")
            started = time.perf_counter()
            made(send(client, content))
            times[name] = time.perf_counter() - started
        longer += times["known"] > times["new"]
    assert 5 < longer < 25, f"the known one took longer in {longer} of 30 pairs"


NEAR: dict[str, Any] = {
    "a row more": lambda rows: (text([*rows, *people(3, 1)]), {}),
    "a cell changed": lambda rows: (text([["40", *rows[0][1:]], *rows[1:]]), {}),
    "half of them": lambda rows: (text(rows[::2]), {}),
    "the first half": lambda rows: (text(rows[: ROWS // 2]), {}),
    "those with one job": lambda rows: (text([row for row in rows if row[4] == "technician"]), {}),
    "each twice": lambda rows: (text([*rows, *rows]), {}),
    "each twice, a column less": lambda rows: (text([*rows, *rows]), {"columns": without("visits")}),
    "three quarters, and others": lambda rows: (text([*rows[:750], *people(4, 250)]), {}),
    "a row more, a column less": lambda rows: (text([*rows, *people(3, 1)]), {"columns": without("age")}),
    "a row more, other bounds": lambda rows: (
        text([*rows, *people(3, 1)]),
        {"columns": redeclared(0, lower=30, upper=50)},
    ),
    "in a table ten times the size": lambda rows: (text([*rows, *people(5, 9 * ROWS)]), {}),
}


@pytest.mark.parametrize("case", NEAR)
def test_near_copies_join_or_state_a_reason(service: Service, case: str) -> None:
    owner, _ = service.someone("owner")
    records = people(2)
    there = made(send(owner, text(records)))
    content, changes = NEAR[case](records)
    answer = send(owner, content, **changes)
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] == "near-copy"
    assert (answer.json()["dataset"], answer.json()["scope"]) == (there["id"], there["scope"])
    assert {one["pointer"] for one in answer.json()["errors"]} == {"/scope", "/distinct_because"}
    joined = made(send(owner, content, **changes, budget=None, scope=there["scope"]))
    assert joined["scope"] == there["scope"]
    assert made(send(service.someone("owner")[0], content, **changes))["scope"] != there["scope"], "another owner's"


UNRELATED: dict[str, Any] = {
    "other people": lambda: (text(people(6)), {}),
    "other people of few kinds": lambda: (
        text([[row[0], row[4], row[5]] for row in people(7, 3000)], ["age", "job", "y"]),
        {"columns": [COLUMNS[0], COLUMNS[4], COLUMNS[5]]},
    ),
    "one column in common": lambda: (
        text([[row[5], row[1]] for row in people(8)], ["y", "weight"]),
        {"columns": [COLUMNS[5], {"name": "weight", "type": "number", "lower": 0, "upper": 200}]},
    ),
    "a third in common": lambda: (text([*people(2)[: ROWS // 3], *people(9, 2 * ROWS // 3)]), {}),
}


@pytest.mark.parametrize("case", UNRELATED)
def test_other_people_need_no_reason(first: First, case: str) -> None:
    owner, there, _ = first
    content, changes = UNRELATED[case]()
    assert made(send(owner, content, **changes))["scope"] != there["scope"]


def test_another_owner_with_the_same_file_is_told_nothing(service: Service, first: First) -> None:
    _, there, records = first
    other, _ = service.someone("owner")
    assert made(send(other, text(records)))["scope"] != there["scope"]


def test_nobody_but_the_owner_sees_what_is_in_common_or_was_stated(service: Service) -> None:
    """And nobody can tell from the chain, the audit log or a view that there was anything to state."""
    owner, who = service.someone("owner")
    analyst, _ = service.someone("analyst")
    records = people(10)
    plain = made(send(owner, text(records)))
    short = send(owner, text(records[:700]), distinct_because="new")
    assert (short.status_code, short.json()["errors"][0]["pointer"]) == (422, "/distinct_because"), short.text
    copied = made(send(owner, text(records[:700]), distinct_because="two clinics that share a form"))
    other = made(send(owner, text(people(11, 700))))
    told = owner.get(f"/v1/datasets/{copied['id']}/identity").json()
    assert told["distinct_because"] == "two clinics that share a form"
    assert [(one["dataset"], one["scope"]) for one in told["overlaps"]] == [(plain["id"], plain["scope"])]
    assert told["overlaps"][0]["share"] == pytest.approx(1, abs=0.15)
    nothing = {"object": "identity", "overlaps": [], "distinct_because": None}
    assert owner.get(f"/v1/datasets/{other['id']}/identity").json() == {**nothing, "dataset": other["id"]}
    auditor, _ = service.someone("auditor")
    for client, status in ((service.client(), 403), (auditor, 403), (analyst, 404)):
        assert client.get(f"/v1/datasets/{copied['id']}/identity").status_code == status

    def shape(dataset: dict[str, Any]) -> Any:
        entries = auditor.get(f"/v1/scopes/{dataset['scope']}/entries").json()["data"]
        bodies = [json.loads(one["body"]) for one in entries]
        return [(one["kind"], sorted(body), len(one["body"])) for one, body in zip(entries, bodies, strict=True)]

    assert shape(copied) == shape(other)
    assert auditor.get(f"/v1/datasets/{copied['id']}").json().keys() == plain.keys()
    audit_log = auditor.get("/v1/audit/export?format=jsonl").text
    assert who["principal"] in audit_log
    assert "clinics" not in audit_log


def test_of_several_scopes_each_is_joined_or_answered_for(service: Service) -> None:
    owner, _ = service.someone("owner")
    one, two = people(20), people(21)
    here, there = made(send(owner, text(one))), made(send(owner, text(two)))
    both = text([*one[:900], *two[:900]])
    assert send(owner, both).json()["code"] == "near-copy"
    joining = send(owner, both, budget=None, scope=here["scope"])
    assert (joining.status_code, joining.json()["scope"]) == (409, there["scope"])
    made(send(owner, both, budget=None, scope=here["scope"], distinct_because="those of the second are twins"))


def test_a_scope_that_told_nothing_and_is_erased_holds_no_near_copy(service: Service) -> None:
    owner, _ = service.someone("owner")
    records = people(22)
    there = made(send(owner, text(records)))
    assert send(owner, text(records[1:])).json()["code"] == "near-copy"
    assert owner.delete(f"/v1/datasets/{there['id']}").status_code == 202
    made(send(owner, text(records[1:])))


def test_an_admin_cannot_guess_into_an_owners_declaration(service: Service, admin: httpx.Client) -> None:
    owner, _ = service.someone("owner")
    made(send(owner, text(people(23))))
    declared = owner.post("/v1/datasets", json=metadata(columns=COLUMNS)).json()
    answers = [
        admin.put(f"/v1/datasets/{declared['id']}/content", content=content, headers={"Content-Type": "text/csv"})
        for content in (text(people(23)), text(people(24)))
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert len({answer.json()["detail"] for answer in answers}) == 1


def test_the_trail_does_not_say_why_an_upload_was_refused(service: Service, admin: httpx.Client) -> None:
    owner, who = service.someone("owner")
    records = people(25)
    made(send(owner, text(records)))
    for content in (text(records), text(records[1:]), b"age\n"):
        assert send(owner, content).status_code in {409, 422}
    lines = [json.loads(line) for line in admin.get("/v1/audit/export?format=jsonl").text.splitlines()]
    refused = [one for one in lines if one["principal"] == who["principal"] and one["status"] >= 400]
    assert [(one["status"], one["code"]) for one in refused] == [(422, "upload-refused")] * 3


def test_figures_and_log_do_not_say_why_an_upload_was_refused(service: Service) -> None:
    """At 6675922 an auditor read `duplicate-dataset` and 409 in /metrics, and how soon that was found out."""
    owner, _ = service.someone("owner")
    auditor, _ = service.someone("auditor")
    records = people(26)
    made(send(owner, text(records)))
    logged = (service.home / "api.log").stat().st_size
    before = figures(auditor)
    for content in (text(records), text(records[1:])):
        assert send(owner, content).json()["code"] in {"duplicate-dataset", "near-copy"}
    grown = {name: value - before.get(name, 0) for name, value in figures(auditor).items()}
    told = {name: by for name, by in grown.items() if by and not name.endswith("_created")}
    assert told['farthing_refusals_total{code="upload-refused"}'] == 2
    assert told['farthing_requests_total{method="POST",route="/v1/datasets",status="422"}'] == 2
    assert not [name for name in told if "duplicate" in name or "near-copy" in name or '"409"' in name]
    assert not [name for name in told if "seconds" in name and 'route="/v1/datasets"' in name]
    log = (service.home / "api.log").read_text()[logged:]
    assert log.count('"upload-refused"') == 2
    assert "duplicate" not in log
    assert "near-copy" not in log


def figures(client: httpx.Client) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_who_sees_the_scope_that_records_left_is_not_told_that_they_are_in_another(service: Service) -> None:
    """At 6675922 an analyst with access to what was erased read in which scope the same records are now."""
    (owner, _), (analyst, who) = service.someone("owner"), service.someone("analyst")
    records = text(people(27))
    first = made(send(owner, records))
    owner.put(f"/v1/datasets/{first['id']}/access/{who['principal']}", json={"budget_cap": "all"})
    assert owner.delete(f"/v1/datasets/{first['id']}").status_code == 202
    again = made(send(owner, records))
    assert again["fingerprint"] != first["fingerprint"]
    for client in (analyst, service.someone("auditor")[0]):
        told = json.dumps([client.get(f"/v1/scopes/{first['scope']}{path}").json() for path in ("", "/entries")])
        assert first["scope"] in told
        assert again["scope"] not in told
        assert again["id"] not in told
        assert "anew" not in told
        assert "same" not in told
