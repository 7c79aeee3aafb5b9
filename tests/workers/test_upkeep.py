"""Backup and restore of an embedded home, and the ledger that notices."""

from pathlib import Path

import pytest

from core.settings import ServiceSettings
from core.store import verification
from core.store.database import Database
from core.store.tables import Job, Scope
from tests.support.embedded import embedded
from workers.upkeep import main


def test_a_restored_home_is_frozen_until_it_is_reconciled(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    with embedded(home) as service:
        dataset = service.upload()
        first = service.submit(dataset)
        service.wait(first)
        main(["backup", "--home", str(home), "--to", str(copy)])  # while it runs
        assert not list(copy.glob("witness*"))
        second = service.submit(dataset)
        service.wait(second)
        spent = service.get(f"/v1/datasets/{dataset}/budget")["percent"]["spent"]
        with pytest.raises(SystemExit, match="in use"):
            main(["restore", "--home", str(home), "--from", str(copy)])
    main(["restore", "--home", str(home), "--from", str(copy)])
    with embedded(home) as service:
        refused = service.try_submit(dataset)
        assert (refused.status_code, refused.json()["code"]) == (503, "ledger-frozen")
        assert service.get(f"/v1/jobs/{first}")["state"] == "succeeded"
        main(["reconcile", "--home", str(home)])
        budget = service.get(f"/v1/datasets/{dataset}/budget")
        assert float(budget["percent"]["spent"]) >= float(spent)  # what the lost history had charged stays charged
        assert service.wait(service.submit(dataset))["state"] == "succeeded"  # the records came back, too
    database = Database(ServiceSettings(home=home).url)
    with database.read() as session:
        assert verification.verify(session, budget["scope"]).ok
        assert session.get(Job, second) is None
        assert session.get_one(Scope, budget["scope"]).frozen_reason is None
    database.dispose()


def test_a_ledger_that_agrees_needs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    with embedded(home, workers=0) as service:
        service.submit(service.upload())
    main(["reconcile", "--home", str(home)])
    assert "nothing to reconcile" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["backup", "--home", "{home}", "--to", "{home}"], "no database"),
        (["restore", "--home", "{home}", "--from", "{home}"], "no backup"),
        (["reconcile", "--home", "{home}"], "no database"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        main([argument.format(home=tmp_path / "none") for argument in arguments])
