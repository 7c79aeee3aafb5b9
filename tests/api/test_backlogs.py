"""A signed head of a long ledger that nobody has verified, over HTTP, by the client and by the command line."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from core.access.bootstrap import first_admin
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.ledger.verification import PAGE
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.service import backlogs
from farthing import Client
from farthing.cli import main
from farthing.errors import FarthingError
from tests.laws.test_provenance import served
from tests.service.test_passes import lengthen
from tests.support.store import make_place


@dataclass
class Long:
    """A service with one ledger of 600 entries, of which a request verifies at most 150 itself."""

    url: str
    key: str
    scope_id: str


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Long]:
    monkeypatch.setattr(backlogs, "AT_ONCE", 150)
    monkeypatch.setattr(backlogs, "ON_THE_WAY", PAGE)
    settings = ServiceSettings(home=tmp_path)
    database = Database(settings.url)
    database.migrate()
    assert guard(database, Witness(settings.witness_path)) == []
    key = database.transaction(first_admin, None)
    assert key is not None
    place = make_place(database)
    lengthen(database, place, 600)
    database.dispose()
    with served(create_app(settings)) as url:
        yield Long(url, key, place.scope_id)


def test_the_answer_is_202_until_the_ledger_is_verified(long: Long) -> None:
    headers = {"Authorization": f"Bearer {long.key}"}
    seen, until = [], time.monotonic() + 60
    with httpx.Client(base_url=long.url, headers=headers) as client:
        while (answer := client.get(f"/v1/scopes/{long.scope_id}/head/signed")).status_code != 200:
            assert answer.status_code == 202
            assert answer.json() == {"object": "ledger-behind", "verified_share": answer.json()["verified_share"]}
            assert 1 <= int(answer.headers["Retry-After"]) <= 5
            seen.append(float(answer.json()["verified_share"]))
            assert time.monotonic() < until
            time.sleep(0.02)
    assert answer.headers["Content-Type"] == "application/jose"
    assert seen, "the first answer comes before the verification"
    assert seen == sorted(seen)


def test_a_client_waits_and_says_how_far_it_is(long: Long) -> None:
    told: list[int] = []
    with Client(long.url, long.key) as client:
        with pytest.raises(FarthingError, match="verifies the ledger first") as caught:
            client.signed_head(long.scope_id, wait_seconds=0.0)
        assert (caught.value.status, caught.value.code, caught.value.retryable) == (202, "ledger-behind", True)
        head = client.signed_head(long.scope_id, progress=told.append)
    assert head.count(".") == 2
    assert told == sorted(told)


def test_the_command_line_waits_and_prints_the_head_alone(
    long: Long, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FARTHING_URL", long.url)
    monkeypatch.setenv("FARTHING_KEY", long.key)
    monkeypatch.setattr(sys, "argv", ["farthing", "certificate", "head", long.scope_id])
    with pytest.raises(SystemExit) as end:
        main()
    said = capfd.readouterr()
    assert end.value.code in (0, None)
    (line,) = (line for line in said.out.splitlines() if "[info" not in line)  # the service logs in this process, too
    assert line.count(".") == 2
    assert "verifies the ledger first" in said.err
