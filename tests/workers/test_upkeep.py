"""Backup, restore and reconciliation of an embedded home, with the real service before and after."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.operations.backup import DATABASE, MANIFEST, RECORDS
from core.records.master_key import make_master_key
from tests.support.embedded import KEY, ROOT, START_SECONDS, Embedded, embedded
from tests.support.verified import verified


def upkeep(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "farthing.cli", *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shares_of(service: Embedded, dataset: str) -> dict[str, str]:
    return dict(service.get(f"/v1/datasets/{dataset}/budget")["budget_share"])


def moved(old: Path, new: Path) -> Path:
    """Make a new home that holds the old one's master key and witness, as an operator would before restoring."""
    new.mkdir()
    for name in ("master.key", "witness.jsonl"):
        shutil.copy(old / name, new / name)
    return new


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A home that went on spending after its backup, and that backup."""
    folder = tmp_path_factory.mktemp("upkeep")
    home, copy = folder / "home", folder / "copy"
    with embedded(home) as service:
        dataset = service.upload()
        first = service.wait(service.submit(dataset, privacy={"mu": "0.2"}))
        made = upkeep("backup", copy, "--home", home)  # while it serves
        assert made.returncode == 0, made.stderr
        at_backup = shares_of(service, dataset)
        last = service.wait(service.submit(dataset, privacy={"mu": "0.3"}))
        assert first["state"] == last["state"] == "succeeded"
        return {
            "home": home,
            "copy": copy,
            "dataset": dataset,
            "model": first["result"]["model"],
            "lost": last["id"],
            "said": made.stdout,
            "at_backup": at_backup,
            "at_end": shares_of(service, dataset),
            "scope": service.get(f"/v1/datasets/{dataset}")["scope"],
        }


def test_a_backup_holds_the_database_the_records_and_their_digests(yesterday: dict[str, Any]) -> None:
    copy = yesterday["copy"]
    assert sorted(path.name for path in copy.iterdir()) == sorted([DATABASE, MANIFEST, RECORDS])
    told = json.loads((copy / MANIFEST).read_text())
    assert {file["path"] for file in told["files"]} == {
        DATABASE,
        *(f"{RECORDS}/{path.name}" for path in (copy / RECORDS).iterdir()),
    }
    assert len(told["files"]) == 2
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert "witness" in yesterday["said"]
    (fingerprint,) = told["master_keys"]
    assert f"Nor is master key {fingerprint}" in yesterday["said"]
    key = (yesterday["home"] / "master.key").read_bytes().strip()
    assert not any(key in path.read_bytes() for path in copy.rglob("*") if path.is_file())


def test_a_restored_home_is_frozen_until_it_is_reconciled_and_then_owns_up_to_all_that_was_spent(
    yesterday: dict[str, Any], tmp_path: Path
) -> None:
    home, dataset = moved(yesterday["home"], tmp_path / "home"), yesterday["dataset"]
    restored = upkeep("restore", yesterday["copy"], "--home", home)
    assert restored.returncode == 0, restored.stderr
    assert "frozen until `farthing reconcile`" in restored.stdout
    with embedded(home) as service:
        assert shares_of(service, dataset) == yesterday["at_backup"]
        refused = service.try_submit(dataset)
        assert (refused.status_code, refused.json()["code"]) == (503, "ledger-frozen")
        assert service.http.get("/readyz").status_code == 503
        assert service.get(f"/v1/models/{yesterday['model']}/summary")["coefficients"]  # reading goes on
        done = upkeep("reconcile", "--home", home)
        assert done.returncode == 0, done.stderr
        assert float(shares_of(service, dataset)["spent"]) >= float(yesterday["at_end"]["spent"])
        entries = service.get(f"/v1/scopes/{yesterday['scope']}/entries", limit=100)["data"]
        (raised,) = [entry for entry in entries if entry["kind"] == "reconcile"]
        amounts = json.loads(raised["body"])["accounts"]
        assert yesterday["scope"] in amounts
        assert verified(service.http, yesterday["scope"])["ok"] is True
        answer = service.http.get("/readyz")
        assert answer.status_code == 200, answer.text  # at once: no supervisor's look freezes what was reconciled
        job = service.wait(service.submit(dataset))
        assert job["state"] == "succeeded", (job, (home / "stderr.txt").read_text()[-3000:])
        again = upkeep("reconcile", "--home", home)
        assert "nothing to do" in again.stdout
        assert [entry["kind"] for entry in entries].count("reconcile") == 1


@pytest.mark.slow
def test_a_restore_without_its_witness_says_so_and_reconciles_only_when_told(
    yesterday: dict[str, Any], tmp_path: Path
) -> None:
    home = moved(yesterday["home"], tmp_path / "home")
    (home / "witness.jsonl").unlink()
    restored = upkeep("restore", yesterday["copy"], "--home", home)
    assert restored.returncode == 0, restored.stderr
    assert "There is no witness" in restored.stderr
    refused = upkeep("reconcile", "--home", home)
    assert refused.returncode == 1
    assert "--without-witness" in refused.stderr
    done = upkeep("reconcile", "--home", home, "--without-witness")
    assert done.returncode == 0, done.stderr
    assert "until their owners run `farthing accept`" in done.stdout
    scope = yesterday["scope"]
    with embedded(home, workers=0) as service:
        assert shares_of(service, yesterday["dataset"]) == yesterday["at_backup"]
        refused = service.try_submit(yesterday["dataset"])
        assert refused.json()["code"] == "scope-frozen", refused.text
        budget = service.get(f"/v1/scopes/{scope}/budget")
        (gap,) = budget["unwitnessed"]
        assert gap["accepted"] is None
        assert "may be missing" in budget["frozen"]
        said = {"entry": gap["entry"], "reason": "nothing ran after the backup"}
        accepted = service.http.post(f"/v1/scopes/{scope}/acceptances", json=said)
        assert accepted.status_code == 200, accepted.text
        assert accepted.json()["frozen"] is None
        assert service.http.post(f"/v1/scopes/{scope}/acceptances", json=said).status_code == 409
        assert verified(service.http, scope)["unwitnessed"][0]["accepted"] == gap["entry"] + 1
        assert service.try_submit(yesterday["dataset"]).status_code == 202


@pytest.mark.parametrize("key", ["none", pytest.param("another", marks=pytest.mark.slow)])
def test_a_backup_is_restored_only_where_its_master_key_is(yesterday: dict[str, Any], tmp_path: Path, key: str) -> None:
    home = moved(yesterday["home"], tmp_path / "home")
    (fingerprint,) = json.loads((yesterday["copy"] / MANIFEST).read_text())["master_keys"]
    (home / "master.key").unlink()
    if key == "another":
        make_master_key(home / "master.key")
    before = sorted(path.name for path in home.iterdir())
    refused = upkeep("restore", yesterday["copy"], "--home", home)
    assert refused.returncode == 1
    assert f"encrypted under master key {fingerprint}" in refused.stderr
    assert str(home / "master.key") in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted({path.name for path in home.iterdir()} - {"lock"}) == before
    shutil.copy(yesterday["home"] / "master.key", home / "master.key")
    assert upkeep("restore", yesterday["copy"], "--home", home).returncode == 0


def tool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run a tool that has no command of its own."""
    return subprocess.run(
        [sys.executable, "-m", "workers.upkeep", *map(str, arguments)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_master_key_is_replaced_while_the_service_runs_and_old_backups_need_the_old_one(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    key = home / "master.key"
    with embedded(home) as service:
        dataset = service.upload()
        assert upkeep("backup", copy, "--home", home).returncode == 0
        old = key.read_text()
        done = tool("rewrap", "--home", home, "--fresh")
        assert done.returncode == 0, done.stderr
        assert "2 of 2 keys were wrapped anew" in done.stdout
        new, kept = key.read_text().splitlines(keepends=True)
        assert (new != old, kept) == (True, old)
        assert "0 of 2 keys" in tool("rewrap", "--home", home).stdout  # again changes nothing
        key.write_text(new)
        assert service.http.get("/readyz").status_code == 200
        assert service.wait(service.submit(dataset))["state"] == "succeeded"
        key.write_text(old)
        refused = tool("rewrap", "--home", home)
        assert (refused.returncode, "Records are encrypted under" in refused.stderr) == (1, True)
        key.write_text(new)
    restored = moved(home, tmp_path / "restored")
    assert upkeep("restore", copy, "--home", restored).returncode == 1
    (restored / "master.key").write_text(new + old)
    assert upkeep("restore", copy, "--home", restored).returncode == 0


@pytest.mark.slow
def test_a_home_in_use_or_not_empty_is_not_restored_into(yesterday: dict[str, Any], tmp_path: Path) -> None:
    before = sorted(path.name for path in yesterday["home"].iterdir())
    refused = upkeep("restore", yesterday["copy"], "--home", yesterday["home"])
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    assert sorted(path.name for path in yesterday["home"].iterdir()) == before
    with embedded(tmp_path / "home", workers=0) as service:
        refused = upkeep("restore", yesterday["copy"], "--home", service.home)
        assert refused.returncode == 1
        assert "in use by another Farthing" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["flipped", "missing", "path", "no backup"])
def test_a_damaged_backup_is_refused_and_nothing_is_written(
    yesterday: dict[str, Any], tmp_path: Path, harm: str
) -> None:
    copy, home = tmp_path / "copy", tmp_path / "home"
    shutil.copytree(yesterday["copy"], copy)
    (records,) = (copy / RECORDS).iterdir()
    if harm == "flipped":
        content = bytearray(records.read_bytes())
        content[len(content) // 2] ^= 1
        records.write_bytes(content)
    elif harm == "missing":
        records.unlink()
    elif harm == "path":
        told = json.loads((copy / MANIFEST).read_text())
        told["files"][1]["path"] = "records/../../stolen"
        (copy / MANIFEST).write_text(json.dumps(told))
    else:
        (copy / MANIFEST).unlink()
    refused = upkeep("restore", copy, "--home", home)
    assert refused.returncode == 1
    assert refused.stderr.strip()
    assert "Traceback" not in refused.stderr
    assert [path.name for path in home.iterdir()] == ["lock"]


@pytest.mark.slow
def test_a_backup_needs_a_new_folder_a_database_and_its_records(yesterday: dict[str, Any], tmp_path: Path) -> None:
    assert "exists" in upkeep("backup", yesterday["copy"], "--home", yesterday["home"]).stderr
    nothing = upkeep("backup", tmp_path / "copy", "--home", tmp_path / "nowhere")
    assert (nothing.returncode, "holds no database" in nothing.stderr) == (1, True)
    home = tmp_path / "home"
    shutil.copytree(yesterday["home"], home)
    (records,) = (home / RECORDS).iterdir()
    records.unlink()
    missing = upkeep("backup", tmp_path / "copy", "--home", home)
    assert missing.returncode == 1
    assert yesterday["dataset"] in missing.stderr
    assert not list(tmp_path.glob("*copy*"))


@pytest.mark.slow
def test_erased_records_are_not_in_a_backup(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", workers=0) as service:
        dataset = service.upload()
        assert service.http.delete(f"/v1/datasets/{dataset}").status_code == 202
        assert upkeep("backup", tmp_path / "copy", "--home", service.home).returncode == 0
    assert not list((tmp_path / "copy" / RECORDS).iterdir())
    assert KEY not in (tmp_path / "copy" / DATABASE).read_bytes().decode("latin-1")


@pytest.mark.slow
def test_what_was_erased_after_a_backup_is_erased_again(tmp_path: Path) -> None:
    with embedded(tmp_path / "old", workers=0) as service:
        kept, erased = service.upload(), service.upload()
        assert upkeep("backup", tmp_path / "copy", "--home", service.home).returncode == 0
        assert service.http.delete(f"/v1/datasets/{erased}").status_code == 202
    home = moved(tmp_path / "old", tmp_path / "home")
    assert upkeep("restore", tmp_path / "copy", "--home", home).returncode == 0
    assert len(list((home / RECORDS).iterdir())) == 2
    with embedded(home, workers=0) as service:
        unready = service.http.get("/readyz")
        assert (unready.status_code, f"{erased}, or this file of it" in unready.json()["detail"]) == (503, True)
        assert service.try_submit(erased).json()["code"] == "ledger-frozen"
        for _ in range(2):  # the witness remembers it beyond a reconciliation
            assert upkeep("reconcile", "--home", home).returncode == 0
        deadline = time.monotonic() + START_SECONDS
        while service.get(f"/v1/datasets/{erased}")["state"] != "erased" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert service.get(f"/v1/datasets/{erased}")["state"] == "erased"
        assert service.get(f"/v1/datasets/{kept}")["state"] == "ready"
        assert len(list((home / RECORDS).iterdir())) == 1
        assert erased in (home / "witness.jsonl").read_text()
