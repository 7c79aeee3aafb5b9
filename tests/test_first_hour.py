"""Pages that give commands, run as they stand: every block of the README's job and of the first hour, in one shell."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workers.embedded import free_port

ROOT = Path(__file__).resolve().parents[1]
FIRST_HOUR = (ROOT / "docs" / "tutorials" / "first-hour.md").read_text()
README = (ROOT / "README.md").read_text()
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages' requests need curl, which is not here")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def answers(folder: Path, scripts: list[str], stand_ins: dict[str, str]) -> list[str]:
    """Run scripts in one shell, with what is here in place of what a page names; return each one's output."""
    # `set -m` numbers jobs, as a terminal does; a line before each block keeps their outputs apart.
    # A block that fails leaves no service behind.
    script = "set -m\ntrap 'kill %1 2> /dev/null || true' EXIT\n" + "".join(
        f"echo; echo '=== {number}'\n{block}" for number, block in enumerate(scripts, 1)
    )
    for named, here in stand_ins.items():
        assert named in script
        script = script.replace(named, here)
    (folder / "examples").symlink_to(ROOT / "examples")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    command = ["bash", "-eu", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return re.split(r"^=== \d+$", done.stdout, flags=re.MULTILINE)[1:]


@pytest.mark.slow
@NEEDS_CURL
def test_every_block_of_the_first_hour_runs_as_it_stands(tmp_path: Path) -> None:
    scripts = blocks(FIRST_HOUR, "sh")
    assert len(scripts) == 9
    port = str(free_port("127.0.0.1"))
    scripts[0] = f"export FARTHING_PORT={port}\n{scripts[0]}"
    farthing = str(Path(sys.executable).parent / "farthing")
    found = answers(tmp_path, [*scripts, "wait\n"], {".venv/bin/farthing": farthing, ":8000": f":{port}"})
    started, _, uploaded, asked, watched, read, spent, refused, *_ = found
    assert '"status":"ready"' in started
    assert '"columns"' in uploaded
    assert json.loads(asked.strip().splitlines()[0])["fits"]
    assert '"state":"succeeded"' in watched
    assert re.search(r"^age +-?[\d.]+", read, re.MULTILINE)
    assert '"ok":true' in spent
    assert "privacy-budget-exhausted" in refused


@pytest.mark.service
@NEEDS_CURL
def test_the_readme_s_job_runs_as_it_stands(tmp_path: Path) -> None:
    """Each output has the lines that the README shows, up to their figures."""
    upload, train, refuse = blocks(README, "sh")[1:]
    (python,) = blocks(README, "python")
    (summary,) = blocks(README, "text")
    refusal = refuse.partition("# ")[2]
    port = free_port("127.0.0.1")
    serve = f"{sys.executable} -m farthing.cli up --home {tmp_path / 'home'} --port {port}"
    run = f"export DATASET\n{sys.executable} - <<'PYTHON'\n{python}PYTHON\n"
    stand_ins = {"make serve": serve, ":8000": f":{port}"}
    shown = answers(tmp_path, [upload, train, refuse, run], stand_ins)
    assert outline(shown[1]) == outline(summary)
    assert outline(shown[2]) == outline(refusal)
    assert re.search(r"^0\.\d+\n(.*\n)+age +-?[\d.]+ +[\d.]+ ", shown[3], re.MULTILINE)


def outline(text: str) -> list[str]:
    """Return a text's lines without figures, ids and the widths of columns."""
    lines = (re.sub(r"(mdl|job)_\w+|-?\d[\d.,e+-]*", " ", line) for line in text.strip().splitlines())
    return [re.sub(r" +", " ", line).strip() for line in lines]
