"""The first hour by hand, run as its page has it: every block, in order, in one shell."""

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
PAGE = ROOT / "docs" / "tutorials" / "first-hour.md"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's requests are curl's, which is not here")
def test_every_block_runs_as_it_stands(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 9
    # `set -m` numbers jobs, as a shell of somebody's does; a line before each block tells them apart.
    # A block that fails leaves no service behind.
    script = "set -m\ntrap 'kill %1 2> /dev/null || true' EXIT\n" + "".join(
        f"echo; echo '=== {number}'\n{block}" for number, block in enumerate(blocks, 1)
    )
    for told, here in ((".venv/bin/farthing", str(Path(sys.executable).parent / "farthing")), (":8000", f":{port}")):
        assert told in script
        script = script.replace(told, here)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", f"{script}wait"],
        cwd=tmp_path,
        env=clean | {"FARTHING_PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout[-6000:] + done.stderr[-3000:]
    assert done.returncode == 0, said
    parts = re.split(r"^=== \d$", done.stdout, flags=re.MULTILINE)
    _, started, _, uploaded, asked, watched, read, spent, refused, _ = parts
    assert '"status":"ready"' in started, said
    assert '"columns"' in uploaded, said
    assert json.loads(asked.strip().splitlines()[0])["fits"], said
    assert '"state":"succeeded"' in watched, said
    assert re.search(r"^age +-?[\d.]+", read, re.MULTILINE), said
    assert '"ok":true' in spent, said
    assert "privacy-budget-exhausted" in refused, said
