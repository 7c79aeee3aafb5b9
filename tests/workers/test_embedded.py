"""The embedded service: its start, its output, and that nothing of it outlives it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import select

from core.access import principals
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.service_tables import Audit
from tests.support.embedded import ROOT, START_SECONDS, embedded
from workers.embedded import main, prepare
from workers.upkeep import main as upkeep


def start(home: Path) -> tuple["subprocess.Popen[str]", list[str]]:
    """Start a service without a key of our own; return it and what it said until it was ready."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    command = [sys.executable, "-m", "workers.embedded", "--home", str(home), "--port", "0", "--workers", "0"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith("Farthing is ready"):
            break
    return process, lines


def test_the_first_start_prints_a_key_and_later_ones_do_not(tmp_path: Path) -> None:
    first, said = start(tmp_path / "home")
    try:
        assert len(said) == 2
        key, url = said[0].split()[-1], said[1].split()[-1]
        answer = httpx.get(f"{url}/v1/keys", headers={"Authorization": f"Bearer {key}"}, timeout=30)
        assert answer.status_code == 200
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert first.returncode == 0
    second, said = start(tmp_path / "home")
    second.terminate()
    second.communicate(timeout=60)
    assert second.returncode == 0
    assert len(said) == 1


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"127.0.0.1:{port} .* another port"):
            main(["--home", str(tmp_path / "home"), "--port", str(port)])
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"lock"}  # no first key was made, and lost


def test_an_address_without_a_proxy_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARTHING_WITHOUT_PROXY", "true")
    monkeypatch.setenv("FARTHING_ADMIN_KEY", "weak")  # ends the start just after
    with pytest.raises(SystemExit):
        main(["--home", str(tmp_path / "home"), "--host", "0.0.0.0", "--port", "0"])
    assert "without TLS and a proxy" in capsys.readouterr().err


def test_a_key_that_comes_too_late_is_said_and_a_lost_one_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    first, late = "the-first-key-of-this-home-with-characters-enough", "another-key,-which-came-too-late"
    for key in (first, first, late):
        prepare(ServiceSettings(home=home, admin_key=key))
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("FARTHING_ADMIN_KEY is not taken") == 1
    with pytest.raises(SystemExit):
        upkeep(["admin-key", "--home", str(tmp_path / "elsewhere")])
    assert "no database" in capsys.readouterr().err
    upkeep(["admin-key", "--home", str(home)])
    made = capsys.readouterr().out.strip()
    database = Database(ServiceSettings(home=home).url)
    with database.read() as session:
        found = principals.find_all(session, [first, late, made])
        (line,) = session.execute(select(Audit)).scalars()
    database.dispose()
    assert {secret: caller.role for secret, caller in found.items()} == {first: "admin", made: "admin"}
    assert (line.action, line.target) == ("farthing admin-key", found[made].key_id)


def test_a_preparation_that_must_fail_fails_before_it_makes_or_prints_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a master key, then with an empty database beside the witness of one that is gone."""
    home = tmp_path / "home"
    monkeypatch.setenv("FARTHING_CLUSTER", "1")
    with pytest.raises(SystemExit) as ended:
        upkeep(["prepare", "--home", str(home)])
    said = capsys.readouterr()
    assert (ended.value.code, said.out, "master key is missing" in said.err) == (1, "", True)
    assert not list(tmp_path.rglob("*.sqlite"))
    monkeypatch.delenv("FARTHING_CLUSTER")
    upkeep(["prepare", "--home", str(home)])
    assert "Admin key, shown this once" in capsys.readouterr().out
    for file in home.glob("*.sqlite*"):
        file.unlink()
    with pytest.raises(SystemExit) as ended:
        upkeep(["prepare", "--home", str(home)])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert "witness.jsonl, and this database is empty" in said.err
    assert not list(home.glob("*.sqlite*"))


def test_a_home_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "farthing.cli", "up", "--port", "0", "--home", str(tmp_path / "file" / "home")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "home cannot be the home" in line
    assert "--home" in line


def test_a_celery_worker_without_a_broker_says_so_and_fails() -> None:
    command = [sys.executable, "-m", "workers.app"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "FARTHING_BROKER_URL is not set; without a broker run `python -m workers.supervisor`." in done.stderr


@pytest.mark.slow
def test_everything_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    with embedded(tmp_path / "home") as service:
        family = psutil.Process(service.process.pid).children(recursive=True)
        assert len(service.children("api")) == len(service.children("supervisor")) == 1
        service.process.kill()
        _, alive = psutil.wait_procs(family, timeout=START_SECONDS)
        assert alive == []


@pytest.mark.slow
def test_a_supervisor_started_again_goes_on(tmp_path: Path) -> None:
    with embedded(tmp_path / "home") as service:
        dataset = service.upload()
        for module in ("supervisor", "api"):
            (before,) = service.children(module)
            assert service.kill(module)
            deadline = time.monotonic() + START_SECONDS
            while [process.pid for process in service.children(module)] in ([], [before.pid]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        service.get(f"/v1/datasets/{dataset}")
        assert service.wait(service.submit(dataset))["state"] == "succeeded"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["workers.embedded", "workers.supervisor"])
def test_only_trainers_load_torch(module: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print('torch' in sys.modules, 'fastapi' in sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["False", "False"]
