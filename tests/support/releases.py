"""Processes of this code and of the first release, side by side on one database."""

import io
import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIRST = "3fb3465"
"""The last commit of the first release; its tables are at revision 0001."""


def first_release(folder: Path) -> Path:
    """Return the first release's code, unpacked; skip the test where the history is not here, as in a shallow clone."""
    asked = subprocess.run(["git", "archive", FIRST], cwd=ROOT, capture_output=True, check=False)
    if asked.returncode != 0:
        pytest.skip(f"the first release ({FIRST}) is not in this clone: {asked.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(asked.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextmanager
def process(code: Path, module: str, log: Path, environment: Mapping[str, str], *arguments: str) -> Iterator[None]:
    """Run a module of some code until the end of the block; ask it to end then, and see that it does."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("FARTHING_")}
    with log.open("ab") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=code,
            env=inherited | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"} | dict(environment),
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextmanager
def api(code: Path, log: Path, environment: Mapping[str, str], key: str) -> Iterator[httpx.Client]:
    """Run the API of some code, and give a client of it once it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (
        process(code, "api", log, environment, "--host", "127.0.0.1", "--port", str(port)),
        httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client,
    ):
        deadline = time.monotonic() + 90
        while not _is_ready(client):
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        yield client


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
