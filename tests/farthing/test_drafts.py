"""Drafts by the SDK and the command line: at a terminal, and in a script that nobody watches."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farthing import Client, FarthingError
from tests.farthing.test_cli import surroundings
from tests.support.embedded import COLUMNS, ROOT, Embedded


def broken(records: Path, share: float) -> Path:
    """Return the same file, with ages that cannot be read in the first rows."""
    head, *lines = records.read_text().splitlines()
    most = round(share * len(lines))
    mended = [f"soon,{line.split(',', 1)[1]}" if place < most else line for place, line in enumerate(lines)]
    path = records.with_name("broken.csv")
    path.write_text("\n".join([head, *mended, ""]))
    return path


def metadata(**changes: Any) -> dict[str, Any]:
    return {"name": "toy", "columns": COLUMNS, "budget": {"epsilon": "3"}, **changes}


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(metadata()))
    return path


def farthing(service: Embedded, *arguments: str | Path, typed: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command as a script does, or at a terminal with what is typed there."""
    command = [sys.executable, "-m", "farthing.cli", *map(str, arguments)]
    stdin: int = subprocess.DEVNULL
    if typed is not None:
        keyboard, stdin = pty.openpty()
        os.write(keyboard, f"{typed}\n".encode())
    return subprocess.run(
        command,
        cwd=ROOT,
        env=surroundings(service, {}),
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def made(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class TestClient:
    def test_the_way_of_a_draft(self, client: Client, records: Path) -> None:
        bad = broken(records, 0.2)
        draft = client.upload(bad, metadata(seal=False))
        assert draft.state == "draft"
        seen = client.draft(draft.id)
        assert (seen.rows, seen.excluded, seen.many_excluded) == (300, 60, True)
        assert seen.columns[0].unreadable == 60
        assert client.mend(draft.id, {"name": "better"}).declared["name"] == "better"
        with records.open("rb") as stream:
            assert client.send_records(draft.id, stream).rows == 300
        assert client.draft(draft.id).excluded == 0
        sealed = client.seal(draft.id)
        assert (sealed.state, sealed.name) == ("ready", "better")
        assert client.seal(draft.id) == sealed

    def test_many_excluded_rows_are_refused_with_their_columns(self, client: Client, records: Path) -> None:
        with pytest.raises(FarthingError) as many:
            client.upload(broken(records, 0.1), metadata())
        assert many.value.code == "many-excluded"
        assert [one["name"] for one in many.value.problem["columns"]] == ["age"]


class TestCommandLine:
    def test_a_script_is_not_asked(self, service: Embedded, records: Path, declared: Path) -> None:
        found = farthing(service, "upload", records, "-m", declared, "--json")
        assert made(found)["state"] == "ready"
        assert "300 rows, 0 of them" in found.stderr
        assert "WARNING" not in found.stderr

    def test_many_excluded_rows_end_a_script_that_does_not_accept_them(
        self, service: Embedded, client: Client, records: Path, declared: Path
    ) -> None:
        bad = broken(records, 0.1)
        before = {one.id for one in client.datasets()}
        refused = farthing(service, "upload", bad, "-m", declared)
        assert refused.returncode == 1
        assert "many-excluded" in refused.stderr
        assert "age" in refused.stderr
        assert {one.id for one in client.datasets()} == before
        accepted = farthing(service, "upload", bad, "-m", declared, "--yes", "--json")
        assert made(accepted)["state"] == "ready"
        assert "WARNING: 30 of 300 rows (10.0 %)" in accepted.stderr

    @pytest.mark.parametrize(("typed", "state"), [("y", "ready"), ("n", "draft")])
    def test_a_terminal_is_asked(
        self, service: Embedded, records: Path, declared: Path, typed: str, state: str
    ) -> None:
        found = farthing(service, "upload", broken(records, 0.1), "-m", declared, "--json", typed=typed)
        assert made(found)["state"] == state
        assert "WARNING: 30 of 300 rows (10.0 %)" in found.stderr
        assert ("stays a draft" in found.stderr) == (state == "draft")

    def test_the_way_of_a_draft(self, service: Embedded, records: Path, declared: Path, tmp_path: Path) -> None:
        bad = broken(records, 0.1)
        draft = made(farthing(service, "upload", bad, "-m", declared, "--draft", "--json"))["id"]
        shown = farthing(service, "draft", draft)
        assert "it is erased at" in shown.stdout
        assert "WARNING" in shown.stderr
        changes = tmp_path / "changes.json"
        changes.write_text(json.dumps({"name": "better", "columns": [{**COLUMNS[0], "upper": 90}, *COLUMNS[1:]]}))
        assert "send the file again" in farthing(service, "mend", draft, "-m", changes).stderr
        mended = farthing(service, "mend", draft, "--file", records, "--json")
        assert (made(mended)["state"], made(mended)["name"]) == ("draft", "better")
        assert made(farthing(service, "seal", draft, "--json"))["state"] == "ready"

    def test_a_file_of_unknown_form_is_found_out(self, service: Embedded, records: Path, tmp_path: Path) -> None:
        messy, told = tmp_path / "messy.csv", tmp_path / "sniff.json"
        messy.write_text(records.read_text().replace(",", ";"))
        told.write_text(json.dumps(metadata(reading="sniff")))
        refused = farthing(service, "upload", messy, "-m", told)
        assert refused.returncode == 1
        assert "/reading" in refused.stderr
        done = farthing(service, "upload", messy, "-m", told, "--draft", "--json")
        assert "Taken from the file: separator “;”, decimal “.”, no thousands" in done.stderr
        shown = farthing(service, "draft", made(done)["id"])
        assert "Taken from the file: separator “;”, decimal “.”, no thousands" in shown.stderr

    def test_wrong_calls_end_with_status_2(self, service: Embedded, records: Path, declared: Path) -> None:
        assert farthing(service, "mend", "ds_x").returncode == 2
        assert farthing(service, "upload", records, "-m", declared, "--yes", "--draft").returncode == 2
