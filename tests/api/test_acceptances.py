"""A ledger that went on without its witness admits jobs once the owner of the records has accepted that, nobody else.

Over HTTP, by the client and on the command line, against a service whose witness is deleted while it serves.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from core.ledger.witness.witness import Witness
from core.operations.reconciling import reconcile
from farthing import Client
from farthing.cli import app
from farthing.errors import FarthingError
from tests.support.api import Service, job, running, submit, upload
from tests.support.verified import verified


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("alone")) as found:
        yield found


@pytest.fixture
def place(alone: Service) -> tuple[httpx.Client, dict[str, Any], dict[str, Any]]:
    """An owner's client, what made its key, and a dataset of its whose ledger went on without its witness."""
    owner, made = alone.someone("owner")
    dataset = upload(owner)
    assert submit(owner, job(dataset["id"])).status_code == 202
    database, path = alone.database(), alone.home / "witness.jsonl"
    path.unlink()
    failed, unknown = reconcile(database, Witness(path), without=True)
    database.dispose()
    assert failed
    assert dataset["scope"] in unknown
    return owner, made, dataset


def gap_of(client: httpx.Client, scope: str) -> dict[str, Any]:
    (gap,) = client.get(f"/v1/scopes/{scope}/budget").json()["unwitnessed"]
    return dict(gap)


def accept(client: httpx.Client, scope: str, entry: object, reason: object = "nothing ran that day") -> httpx.Response:
    return client.post(f"/v1/scopes/{scope}/acceptances", json={"entry": entry, "reason": reason})


def test_the_owner_alone_accepts_and_then_jobs_are_admitted(
    alone: Service, place: tuple[httpx.Client, dict[str, Any], dict[str, Any]]
) -> None:
    owner, _, dataset = place
    scope = dataset["scope"]
    analyst, who = alone.someone("analyst")
    given = owner.put(f"/v1/datasets/{dataset['id']}/access/{who['principal']}", json={"budget_cap": "all"})
    assert given.status_code in {200, 201}
    entry = gap_of(owner, scope)["entry"]
    refused = submit(owner, job(dataset["id"]))
    assert (refused.status_code, refused.json()["code"]) == (409, "scope-frozen")
    auditor, _ = alone.someone("auditor")
    other, _ = alone.someone("owner")
    others = {
        "analyst": (analyst, 403),
        "auditor": (auditor, 403),
        "admin": (alone.client(), 403),
        "owner": (other, 404),
    }
    for name, (client, status) in others.items():
        answer = accept(client, scope, entry)
        assert (name, answer.status_code) == (name, status)
        assert answer.json()["code"] == ("forbidden" if status == 403 else "not-found")
    with httpx.Client(base_url=alone.url) as nobody:
        assert accept(nobody, scope, entry).status_code == 401
    assert gap_of(owner, scope)["accepted"] is None
    assert submit(analyst, job(dataset["id"])).json()["code"] == "scope-frozen"
    done = accept(owner, scope, entry)
    assert (done.status_code, done.json()["frozen"]) == (200, None)
    assert gap_of(owner, scope)["accepted"] == done.json()["entries"]
    for client in (owner, analyst):
        assert submit(client, job(dataset["id"])).status_code == 202
    assert accept(owner, scope, entry).json()["code"] == "conflict"  # once
    assert verified(owner, scope)["ok"] is True


@pytest.mark.parametrize(
    ("entry", "reason", "pointer"),
    [
        (1, "this one", "/entry"),
        (0, "none", "/entry"),
        ("3", "text", "/entry"),
        (True, "yes", "/entry"),
        (None, "", "/entry"),
    ],
)
def test_another_entry_is_refused_by_field(
    place: tuple[httpx.Client, dict[str, Any], dict[str, Any]], entry: object, reason: str, pointer: str
) -> None:
    owner, _, dataset = place
    answer = accept(owner, dataset["scope"], entry, reason)
    assert answer.status_code == 422
    assert pointer in [fault["pointer"] for fault in answer.json()["errors"]]
    assert gap_of(owner, dataset["scope"])["accepted"] is None


def test_the_client_and_the_command_line_accept(
    alone: Service, place: tuple[httpx.Client, dict[str, Any], dict[str, Any]]
) -> None:
    owner, made, dataset = place
    scope = dataset["scope"]
    _, auditor = alone.someone("auditor")
    entry = gap_of(owner, scope)["entry"]
    with Client(alone.url, auditor["key"]) as looking, pytest.raises(FarthingError, match="Only the owner"):
        looking.accept(scope, entry, "I say so")
    with Client(alone.url, made["key"]) as client:
        assert client.budget(dataset["id"]).unwitnessed[0].accepted is None
        taken = client.accept(scope, entry, "nothing ran that day")
        assert taken.frozen is None
        assert client.budget(dataset["id"]).unwitnessed[0].accepted == taken.entries
    (alone.home / "witness.jsonl").unlink()
    database = alone.database()
    reconcile(database, Witness(alone.home / "witness.jsonl"), without=True)
    database.dispose()
    entry = gap_last(owner, scope)["entry"]

    def run(secret: str, number: int) -> tuple[int, str]:
        command = ["accept", scope, str(number), "--reason", "nor that day"]
        done = CliRunner().invoke(app, command, env={"FARTHING_URL": alone.url, "FARTHING_KEY": secret})
        return done.exit_code, done.output + str(done.exception or "")  # as the command's `main` prints it

    assert run(auditor["key"], entry)[0] != 0
    code, said = run(made["key"], entry - 1)
    assert (code != 0, f"accept entry {entry}" in " ".join(said.split())) == (True, True), said
    assert run(made["key"], entry) == (0, f"{scope} admits jobs\n")
    assert submit(owner, job(dataset["id"])).status_code == 202


def gap_last(client: httpx.Client, scope: str) -> dict[str, Any]:
    return dict(client.get(f"/v1/scopes/{scope}/budget").json()["unwitnessed"][-1])
