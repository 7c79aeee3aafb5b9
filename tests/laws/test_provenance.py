"""Nothing that leaves is a function of records but what was paid for, and what its owner alone sees.

The first law reads the labels: each value of an answer says where it comes from. The second one does not believe them.
Two services get the same requests; their records differ in values alone. Every value that is labelled neither `paid`
nor `owner-only` must be equal, but for identifiers and times, which are replaced by their kinds.
"""

import json
import re
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.provenance import ANSWERS
from core.access.bootstrap import first_admin
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.service import opening, uploads
from farthing.schemas.provenance import KEYWORD, VARIES, Provenance
from tests.support import embedded
from tests.support.api import own_key

Schema = dict[str, Any]
METHODS = ("get", "post", "put", "delete", "patch")
HIDDEN = frozenset({Provenance.PAID, Provenance.OWNER_ONLY})
NAMES = (
    (re.compile(r"\b(ds|sc|job|pr|gr|key|mdl|evt|req|wts|att|inst)_[0-9a-z]{26}"), r"\1"),
    (re.compile(r"\bfp_[0-9a-f]{32}"), "fp"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z"), "time"),
    (re.compile(r"\d\d? [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC"), "time"),
    (re.compile(r'"at":\d+\.\d+'), '"at"'),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "here"),
)
"""Values that are drawn at random, or are times; a digest by any other name is compared as it is."""
PROCESSES = {"/v1/workers", "/v1/service", "/readyz", "/v1/jobs/{job_id}/events", "/.well-known/jwks.json"}
"""Answers about processes and the keys of this installation, and one that streams events."""


@pytest.fixture(scope="module")
def openapi(tmp_path_factory: pytest.TempPathFactory) -> Schema:
    return create_app(ServiceSettings(home=tmp_path_factory.mktemp("document"))).openapi()


def resolved(openapi: Schema, schema: Schema) -> Schema:
    """Return a schema in place of a reference to it, with what stands beside the reference."""
    while "$ref" in schema:
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        schema = openapi["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]] | beside
    return schema


def parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas that something holds, by name."""
    yield from schema.get("properties", {}).items()
    if isinstance(schema.get("items"), dict):
        yield "[]", schema["items"]
    for place, one in enumerate(schema.get("anyOf", schema.get("oneOf", ()))):
        yield f"|{place}", one
    if isinstance(schema.get("additionalProperties"), dict):
        yield "{}", schema["additionalProperties"]


def unlabelled(openapi: Schema, schema: Schema, where: str = "", above: tuple[int, ...] = ()) -> Iterator[str]:
    """Yield what an answer holds that does not say where it comes from."""
    schema = resolved(openapi, schema)
    if KEYWORD in schema or "const" in schema or schema.get("type") == "null" or id(schema) in above:
        return
    inner = list(parts(schema))
    if not inner:
        yield where
    for name, one in inner:
        yield from unlabelled(openapi, one, f"{where}/{name}", (*above, id(schema)))


def answers(openapi: Schema) -> Iterator[tuple[str, str, Schema, Schema]]:
    """Yield each operation's successful answers: method, path, operation and schema."""
    for path, operations in openapi["paths"].items():
        for method in METHODS:
            operation = operations.get(method, {})
            for status, response in operation.get("responses", {}).items():
                for media in response.get("content", {}).values() if status.startswith("2") else ():
                    yield method, path, operation, media.get("schema", {})


def faults(openapi: Schema) -> list[str]:
    return [
        f"{method} {path}{where}"
        for method, path, operation, schema in answers(openapi)
        if KEYWORD not in operation
        for where in unlabelled(openapi, schema)
    ]


def test_whatever_leaves_says_where_it_comes_from(openapi: Schema) -> None:
    assert faults(openapi) == []
    known = {one.value for one in Provenance}
    labels = set(re.findall(rf'"{KEYWORD}": "([^"]*)"', json.dumps(openapi)))
    assert labels == known


def test_what_is_said_of_whole_answers_is_of_answers_that_there_are(openapi: Schema) -> None:
    assert set(ANSWERS) <= {(method, path) for path, operations in openapi["paths"].items() for method in operations}


def test_a_field_without_a_label_is_seen(openapi: Schema) -> None:
    planted = json.loads(json.dumps(openapi))
    del planted["components"]["schemas"]["DatasetView"]["properties"]["rows"][KEYWORD]
    assert "get /v1/datasets/{dataset_id}/rows/|0" in faults(planted)
    planted = json.loads(json.dumps(openapi))
    planted["components"]["schemas"]["ScopeView"]["properties"]["digest"] = {"type": "string"}
    assert "get /v1/scopes/{scope_id}/digest" in faults(planted)
    planted = json.loads(json.dumps(openapi))
    del planted["paths"]["/v1/jobs/{job_id}/report"]["get"][KEYWORD]
    assert any(one.startswith("get /v1/jobs/{job_id}/report") for one in faults(planted))


def plain(value: Any) -> Any:
    """Return a value with names and times replaced by what they are."""
    if isinstance(value, str):
        for pattern, name in NAMES:
            value = pattern.sub(name, value)
    return value


def fits(openapi: Schema, schema: Schema, value: Any) -> bool:
    """Return True if a value may be of a schema; it is checked only as far as the alternatives beside it differ."""
    schema = resolved(openapi, schema)
    if value is None or schema.get("type") == "null":
        return value is None and schema.get("type") == "null"
    if isinstance(value, dict):
        wanted = schema.get("properties", {})
        constants = all(value.get(name) == one["const"] for name, one in wanted.items() if "const" in one)
        return schema.get("type") == "object" and constants and (not wanted or value.keys() <= wanted.keys())
    return isinstance(value, list) == (schema.get("type") == "array") and schema.get("type") != "object"


def shown(
    openapi: Schema,
    schema: Schema,
    value: Any,
    where: str = "",
    label: Schema | None = None,
    hidden: frozenset[Provenance] = HIDDEN,
) -> Iterator[Any]:
    """Yield all that an answer says but what was paid for or is its owner's, with its place."""
    schema = resolved(openapi, schema)
    if label is None and KEYWORD in schema:
        label = schema
    if label is not None and label[KEYWORD] in hidden:
        return
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices is not None:
        schema = next((one for one in choices if fits(openapi, one, value)), {})
        yield from shown(openapi, schema, value, where, label, hidden)
    elif isinstance(value, dict):
        for name, one in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            yield from shown(openapi, inner if isinstance(inner, dict) else {}, one, f"{where}/{name}", label, hidden)
    elif isinstance(value, list):
        inner = schema.get("items", {})
        for place, one in enumerate(value):
            yield from shown(openapi, inner, one, f"{where}/{place}", label, hidden)
    else:
        yield where, "time" if label is not None and label.get(VARIES) == "time" and is_now(value) else plain(value)


def is_now(value: Any) -> bool:
    """Return True if a value is a time of today: any other value of a field of times is compared as it is."""
    if not isinstance(value, str) or NAMES[3][0].fullmatch(value) is None:
        return False
    return abs(time.time() - datetime.fromisoformat(value).timestamp()) < 86_400


def told(openapi: Schema, method: str, path: str, answer: httpx.Response, hidden: frozenset[Provenance]) -> Any:
    """Return all that an answer says but what comes from where it is hidden."""
    headers = sorted((name, plain(value)) for name, value in answer.headers.items() if name in {"etag", "location"})
    operation = openapi["paths"][path][method]
    kind = answer.headers.get("content-type", "").split(";")[0]
    content = operation["responses"].get(str(answer.status_code), {}).get("content", {}).get(kind)
    label = operation if KEYWORD in operation else None
    if label is not None and label[KEYWORD] in hidden:
        return answer.status_code, headers
    if answer.status_code >= 400:
        return answer.status_code, plain(answer.text), headers
    if path == "/metrics":
        families = text_string_to_metric_families(answer.text)
        return sorted({(one.name, *sorted(one.labels)) for family in families for one in family.samples})
    if path == "/v1/audit/export":
        return [plain(line.partition('"created_at"')[0]) for line in answer.text.splitlines()]
    if kind == "application/jose":  # what is signed; that it differs by its signature is no wonder
        payload = answer.text.split(".")[1]
        return answer.status_code, headers, plain(b64decode(payload + "=" * (-len(payload) % 4), b"-_").decode())
    return answer.status_code, headers, list(shown(openapi, content["schema"], answer.json(), "", label, hidden))


def everything(
    openapi: Schema, client: httpx.Client, names: dict[str, str], hidden: frozenset[Provenance]
) -> Iterator[tuple[str, Any]]:
    """Yield the answer to each reading request for which all names in its path are there."""
    for path, operations in openapi["paths"].items():
        wanted = re.findall(r"\{(\w+)\}", path)
        if "get" not in operations or not all(name in names for name in wanted):
            continue
        if path in PROCESSES:
            continue
        yield path, told(openapi, "get", path, client.get(path.format(**names)), hidden)


def played(openapi: Schema, url: str, key: str, content: bytes, *, trains: bool) -> dict[tuple[str, str], Any]:
    """Send one service a fixed list of requests; return the answers that each of five people received."""
    with ExitStack() as stack:

        def connect(key: str) -> httpx.Client:
            headers = {"Authorization": f"Bearer {key}"}
            return stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))

        return _played(openapi, connect, key, content, trains=trains)


def _played(
    openapi: Schema, connect: Callable[[str], httpx.Client], key: str, content: bytes, *, trains: bool
) -> dict[tuple[str, str], Any]:
    admin = connect(key)
    people = {}
    for role in ("owner", "analyst", "auditor", "stranger"):
        made = admin.post("/v1/keys", json={"name": role, "role": "analyst" if role == "stranger" else role}).json()
        people[role] = connect(own_key(connect(made["key"]), made)["key"]), made["principal"]
    owner, analyst = people["owner"][0], people["analyst"]
    metadata = {"name": "toy", "budget": {"epsilon": "8", "delta": "1e-6"}, "columns": embedded.COLUMNS}
    parts: list[tuple[str, Any]] = [
        ("metadata", (None, json.dumps(metadata), "application/json")),
        ("file", ("toy.csv", content, "text/csv")),
    ]
    dataset = owner.post("/v1/datasets", files=parts).json()
    names = {"dataset_id": dataset["id"], "scope_id": dataset["scope"], "principal_id": analyst[1]}
    owner.put(f"/v1/datasets/{dataset['id']}/access/{analyst[1]}", json={"budget_cap": "all"})
    body = {
        "dataset": dataset["id"],
        "model": embedded.LOGISTIC,
        "optimizer": {"kind": "noisy_newton", "steps": 4},
        "inference": {"accept_unchecked": True},
        "privacy": {"mu": "0.2"},
    }
    # Before anything was paid for, nothing comes from what was paid for.
    hidden = HIDDEN if trains else frozenset({Provenance.OWNER_ONLY})
    answer = analyst[0].post("/v1/estimates", json=body)
    found = {("analyst", "estimate"): told(openapi, "post", "/v1/estimates", answer, hidden)}
    job = analyst[0].post("/v1/jobs", json=body, headers={"Idempotency-Key": "one"}).json()
    names["job_id"] = job["id"]
    if trains:
        while (job := analyst[0].get(f"/v1/jobs/{job['id']}", headers={"Prefer": "wait=30"}).json())["result"] is None:
            assert job["state"] in {"queued", "running", "succeeded"}, job
        names |= {"model_id": job["result"]["model"], "other_id": job["result"]["model"]}
    for role, client in {**{role: one[0] for role, one in people.items()}, "admin": admin}.items():
        for path, one in everything(openapi, client, names, hidden):
            found[role, path] = one
    return found


def difference(one: dict[tuple[str, str], Any], other: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    assert one.keys() == other.keys()
    return {name: (value, other[name]) for name, value in one.items() if value != other[name]}


def toys() -> tuple[bytes, bytes]:
    """Two files of as many rows; some cells of the second are long, empty or out of bounds."""
    one, other = (embedded.toy_csv(600, seed=seed).decode().splitlines() for seed in (51, 52))
    assert all(first != second for first, second in pairwise([one[1], other[1]]))
    other[5:9] = ["999999.123456789,z,-5,maybe", ",,,", "20,a,1.0000000001,yes", "abc,b,2,no"]
    return "\n".join(one).encode(), "\n".join(other).encode()


@pytest.mark.slow
def test_records_change_nothing_but_what_is_paid_for_or_their_owners(openapi: Schema, tmp_path: Path) -> None:
    """With a job that has run to its end, on two real services."""
    found = []
    for place, content in enumerate(toys()):
        home = tmp_path / str(place)
        home.mkdir()
        with embedded.embedded(home) as service:
            found.append(played(openapi, service.url, embedded.KEY, content, trains=True))
    assert difference(*found) == {}


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """Serve an application from a thread; yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "it ended before it began"
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def in_process(openapi: Schema, home: Path, content: bytes) -> dict[tuple[str, str], Any]:
    """Play on an application in this process, where a test can plant a flaw; jobs stay queued."""
    settings = ServiceSettings(home=home)
    database = Database(settings.url)
    database.migrate()
    admin = database.transaction(first_admin, None)
    database.dispose()
    assert admin is not None
    with served(create_app(settings)) as url:
        return played(openapi, url, admin, content, trains=False)


@pytest.mark.service
def test_records_change_nothing_that_is_told_while_a_job_waits(openapi: Schema, tmp_path: Path) -> None:
    one, other = (in_process(openapi, tmp_path / str(place), content) for place, content in enumerate(toys()))
    assert difference(one, other) == {}
    assert {role for role, _ in one} == {"owner", "analyst", "auditor", "admin", "stranger"}
    assert len(one) > 100


@pytest.mark.service
@pytest.mark.parametrize("shown_as", ["hmac-sha256:{}", pytest.param("{}", marks=pytest.mark.slow)])
def test_a_digest_of_the_upload_is_seen(
    openapi: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown_as: str
) -> None:
    """As it was shown to everybody, and labelled as drawn at random."""
    fill = uploads._fill

    def leaky(session: Any, caller: Any, dataset: Any, metadata: Any, arrived: Any) -> None:
        fill(session, caller, dataset, metadata, arrived)
        dataset.fingerprint = shown_as.format(arrived.compared.digest[-27:])

    monkeypatch.setattr(uploads, "_fill", leaky)
    one, other = (in_process(openapi, tmp_path / str(place), content) for place, content in enumerate(toys()))
    seen = difference(one, other)
    assert {("analyst", "/v1/datasets/{dataset_id}"), ("auditor", "/v1/datasets")} <= seen.keys()


@pytest.mark.slow
def test_a_count_of_cells_is_seen(openapi: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that were read whole, in place of those that were sent."""
    fill = uploads._fill

    def leaky(session: Any, caller: Any, dataset: Any, metadata: Any, arrived: Any) -> None:
        fill(session, caller, dataset, metadata, arrived)
        dataset.rows = arrived.decoded.rows - arrived.decoded.report.incomplete_rows

    monkeypatch.setattr(uploads, "_fill", leaky)
    one, other = (in_process(openapi, tmp_path / str(place), content) for place, content in enumerate(toys()))
    assert ("analyst", "/v1/datasets/{dataset_id}") in difference(one, other)


def marks_of_two_uploads(home: Path) -> tuple[set[str], set[str]]:
    """Upload the same file twice, the first erased in between; return the values about each that look random."""
    settings = ServiceSettings(home=home)
    database = Database(settings.url)
    database.migrate()
    admin = database.transaction(first_admin, None)
    database.dispose()
    with served(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        made = client.post(
            "/v1/keys", json={"name": "owner", "role": "owner"}, headers={"Authorization": f"Bearer {admin}"}
        )
        client.headers["Authorization"] = f"Bearer {made.json()['key']}"
        client.headers["Authorization"] = f"Bearer {own_key(client, made.json())['key']}"
        declared = {"name": "toy", "budget": {"epsilon": "8", "delta": "1e-6"}, "columns": embedded.COLUMNS}
        parts: list[tuple[str, Any]] = [
            ("metadata", (None, json.dumps(declared), "application/json")),
            ("file", ("toy.csv", embedded.toy_csv(600, seed=51), "text/csv")),
        ]
        found = []
        for _ in range(2):
            dataset = client.post("/v1/datasets", files=parts).json()
            paths = (f"datasets/{dataset['id']}", f"scopes/{dataset['scope']}", f"scopes/{dataset['scope']}/entries")
            text = "".join(client.get(f"/v1/{path}").text for path in paths)
            text = re.sub(r"columns\W+sha256:[0-9a-f]{64}", "", text)  # of what is declared, which is the same
            found.append(set(re.findall(r"(?:fp_|sha256:)[0-9a-f]{32,64}|[0-9a-f]{32,}", text)))
            assert client.delete(f"/v1/datasets/{dataset['id']}").status_code == 202
        return found[0] - {GENESIS}, found[1] - {GENESIS}


GENESIS = f"sha256:{'0' * 64}"


def test_what_looks_random_differs_for_the_same_records(tmp_path: Path) -> None:
    """The law above takes such texts for what they look like; a keyed digest in their place would not differ here."""
    first, second = marks_of_two_uploads(tmp_path)
    assert len(first) >= 3, "fingerprint, and hashes of the chain"
    assert first & second == set()


def test_a_digest_that_looks_random_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill = uploads._fill

    def leaky(session: Any, caller: Any, dataset: Any, metadata: Any, arrived: Any) -> None:
        digest = arrived.compared.digest[-32:]
        with monkeypatch.context() as patch:  # before the ledger notes it: a later change would be refused
            patch.setattr(opening, "secrets", SimpleNamespace(token_hex=lambda size: digest[: 2 * size]))
            fill(session, caller, dataset, metadata, arrived)

    monkeypatch.setattr(uploads, "_fill", leaky)
    first, second = marks_of_two_uploads(tmp_path)
    assert len(first & second) == 1
