"""The compose stack as a test has it: its own project, secrets and port, gone afterwards with all its volumes."""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.stack.engine import Engine, run, say
from tests.stack.images import ROOT

PROJECT: Final = "farthing-test"
FILES: Final = (ROOT / "docker-compose.yml", Path(__file__).parent / "quick.yml")
SECRETS: Final = ("database_password", "redis_password", "master_key", "signing_key", "admin_key")
READY_SECONDS: Final = 180
STOP_SECONDS: Final = 20


@dataclass(frozen=True)
class Stack:
    """A stack that runs."""

    url: str
    replica_url: str
    key: str
    secrets: Path

    def environment(self, engine: Engine, composes: Mapping[str, list[str]]) -> dict[str, str]:
        """Return what the tests read of it."""
        return engine.environment | {
            "FARTHING_STACK_URL": self.url,
            "FARTHING_STACK_REPLICA_URL": self.replica_url,
            "FARTHING_STACK_KEY": self.key,
            "FARTHING_STACK_SECRETS": str(self.secrets),
            "FARTHING_STACK_DOCKER": engine.client,
            "FARTHING_STACK_COMPOSES": json.dumps(composes),
            "SSL_CERT_FILE": str(self.secrets / "tls"),
        }


@contextmanager
def stack(engine: Engine, images: Mapping[str, str], compose: list[str]) -> Iterator[Stack]:
    """Start the stack with a second API beside the first, wait until both are ready, and take all down afterwards."""
    secrets = engine.folder / "secrets"
    key = _make_secrets(secrets)
    port, replica_port = _free_ports()
    environment = engine.environment | dict(images)
    environment |= {"FARTHING_SECRETS": str(secrets), "FARTHING_PORT": str(port), "COMPOSE_DOCKER_CLI_BUILD": "1"}
    files = [part for path in FILES for part in ("--file", str(path))]
    command = [*compose, "--project-name", PROJECT, "--project-directory", str(ROOT), *files]

    def ask(*arguments: str, check: bool = True) -> str:
        return run([*command, *arguments], environment, check=check).stdout

    try:
        say(f"starting, with {' '.join(compose)}")
        ask("up", "--detach", "--no-build")
        ask("run", "--detach", "--no-deps", f"--publish=127.0.0.1:{replica_port}:8000", "--name", "replica", "api")
        made = Stack(f"https://127.0.0.1:{port}", f"http://127.0.0.1:{replica_port}", key, secrets)
        for url in (made.url, made.replica_url):
            _wait(url, secrets / "tls")
        yield made
    except BaseException:
        say(ask("ps", check=False) + ask("logs", "--no-color", "--tail=60", check=False))
        raise
    finally:
        say("taking it down")
        engine("rm", "--force", "replica", check=False, stderr=subprocess.DEVNULL)
        ask("down", "--volumes", "--remove-orphans", f"--timeout={STOP_SECONDS}", check=False)


def _make_secrets(folder: Path) -> str:
    """Make the secrets as `make stack` does; return the admin key."""
    folder.mkdir(mode=0o700)
    run(["make", "--silent", "--file", str(ROOT / "Makefile"), ".stack/tls"], cwd=folder)
    (folder / ".stack/tls").rename(folder / "tls")
    shutil.rmtree(folder / ".stack")
    for name in SECRETS:
        path = folder / name
        path.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
        path.chmod(0o444)  # the containers' users read them; the folder keeps others out
    return (folder / "admin_key").read_text().strip()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def _wait(url: str, certificate: Path) -> None:
    """Wait until a service is ready."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5, context=trusting):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    raise AssertionError(f"{url} did not get ready in {READY_SECONDS} s")
