"""Sites as custodians run them, by `docker-compose.site.yml`: each in containers of its own beside the stack.

On one machine they are in the stack's inner network, where on several there would be a VPN. Each has a volume of
records, a master key and a login of its own; database and witness are shared, as the design has it.
"""

import base64
import io
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from farthing import Client
from farthing.schemas.datasets import Dataset
from tests.integration.test_service import metadata, until
from tests.stack.containers import container, docker, give_password, inspected
from tests.stack.images import ROOT
from tests.stack.stack import PROJECT
from tests.support.embedded import toy_csv

FILES: Final = (ROOT / "docker-compose.site.yml", Path(__file__).parent / "site.yml")
NETWORK: Final = f"{PROJECT}_inside"
START_SECONDS: Final = 300.0
"""On a busy machine; on an idle one it takes ten."""


@dataclass(frozen=True)
class Site:
    """A site that runs, with an owner who has uploaded through its own API."""

    name: str
    url: str
    secrets: Path
    owner: Client
    key: str
    """The owner's."""
    dataset: Dataset

    @property
    def project(self) -> str:
        """Of compose."""
        return project_of(self.name)

    @property
    def worker(self) -> str:
        """The container of its worker."""
        return container("worker", self.project)

    @property
    def address(self) -> str:
        """Of its worker, in the network of all."""
        return _address(self.name, "worker")

    def secret(self, name: str) -> str:
        """Return one of its secrets."""
        return (self.secrets / name).read_text().strip()


@contextmanager
def sites(admin: Client, rows: dict[str, int], folder: Path) -> Iterator[dict[str, Site]]:
    """Start sites with so many records each, an owner at each; they and their volumes are gone afterwards."""
    with ExitStack() as stack:
        secrets = {name: stack.enter_context(_started(name, folder / name)) for name in rows}
        found = {}
        for place, (name, count) in enumerate(rows.items()):
            url = f"http://{_address(name, 'api')}:8000"  # this machine is the network's gateway
            until(lambda url=url: _answers(url), START_SECONDS)
            made = admin.create_key(name, "owner")
            with Client(admin.url, made.key or "") as first:  # a site's own service makes no keys
                key = first.rotate_key(made.id).key  # which nobody else has seen
            assert key is not None
            owner = stack.enter_context(Client(url, key))
            content = io.BytesIO(toy_csv(count, seed=90_001 + place))
            content.name = "toy.csv"
            found[name] = Site(name, url, secrets[name], owner, key, owner.upload(content, metadata()))
        yield found


def project_of(name: str) -> str:
    """Return a site's project of compose."""
    return f"{PROJECT}-{name}"


@contextmanager
def _started(name: str, secrets: Path) -> Iterator[Path]:
    """Start a site's containers as docs/guides/operator/run-a-site.md says, with secrets, and stop them."""
    made = docker("exec", container("api"), "python", "-m", "workers.upkeep", "site", name).stdout
    assert f"farthing_site_{name} has the rights" in made
    secrets.mkdir(mode=0o700)
    for file in ("database_password", "master_key", "signing_key"):
        (secrets / file).write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
        (secrets / file).chmod(0o444)  # the containers' user reads them; the folder keeps others out
    give_password(f"farthing_site_{name}", (secrets / "database_password").read_text().strip())
    told = {
        "FARTHING_SITE": name,
        "FARTHING_SITE_NETWORK": NETWORK,
        "FARTHING_DATABASE_HOST": "postgres",
        "FARTHING_LISTEN": "0.0.0.0",
        "FARTHING_MEETING_HOST": f"{project_of(name)}-trainers",
        "GLOO_SOCKET_IFNAME": "eth0",
        "FARTHING_WITNESS_VOLUME": f"{PROJECT}_witness",
        "FARTHING_SECRETS": str(secrets),
        **{f"FARTHING_{one.upper()}_IMAGE": inspected(one)["Config"]["Image"] for one in ("api", "worker")},
    }
    composes = json.loads(os.environ["FARTHING_STACK_COMPOSES"])
    files = [part for path in FILES for part in ("--file", str(path))]
    compose = [*composes[max(composes)], "--project-name", project_of(name), "--project-directory", str(ROOT), *files]

    def ask(*arguments: str) -> None:
        subprocess.run([*compose, *arguments], check=True, env=os.environ | told, cwd=ROOT)

    try:
        ask("up", "--detach", "--no-build")
        yield secrets
    finally:
        ask("logs", "--no-color", "--tail=40")  # pytest shows it where a test has failed
        ask("down", "--volumes", "--timeout=20")


def _address(name: str, service: str) -> str:
    """Return the address of a site's container in the network of all."""
    found = inspected(service, project_of(name))["NetworkSettings"]["Networks"]
    return str(found[NETWORK]["IPAddress"])


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
