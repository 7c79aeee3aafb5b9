"""Several sites on one machine, each with its own home, storage, master key, login and supervisor, on one PostgreSQL.

    with sites(home, ("north", "south")) as ground:
        job = ground.submit(("north", "south"))
        ground.start("north")                      # a real supervisor, with that site's settings alone
        ground.kill("north")
        north = ground.serve("north")              # a real API, likewise

Where a test needs no API process, a site's use cases run in this one, with the site's own settings.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import httpx
import psutil
from sqlalchemy.engine import make_url

from core.base.settings import ServiceSettings
from core.data.datasets import parse_metadata
from core.db.database import Database
from core.operations.roles import make_role
from core.planning.job import JobSpec
from core.records.master_key import make_master_key
from core.service import access, jobs, keys, uploads
from core.service.context import Caller, Context, Role
from tests.support import entry
from tests.support.cluster import Postgres, Reaper, is_ready, until
from tests.support.embedded import (
    COLUMNS,
    CONNECTIONS,
    KEY,
    LINEAR,
    PATIENCE_SECONDS,
    ROOT,
    TERMINAL,
    Embedded,
    Running,
)
from tests.support.federated import STEPS, Federation, shard
from workers.embedded import free_port, prepare

SIZES = (1500, 750, 900)


def site_settings(home: Path, name: str, url: str, **changes: Any) -> ServiceSettings:
    """Return the settings of a site that has its own records and its own master key, both below its own folder."""
    own = home / (name or "service")
    (own / "records").mkdir(parents=True, exist_ok=True)
    if not (own / "master.key").exists():
        make_master_key(own / "master.key")
    chosen = {
        "home": own,
        "cluster": True,
        "database_url": url,
        "witness": home / "witness.jsonl",
        "site": name,
        "meeting_host": "127.0.0.1",
        "seat_seconds": 20.0,
        "lease_seconds": 6.0,
        "beat_seconds": 0.5,
        "sweep_seconds": 1.0,
        "poll_seconds": 0.3,
        "visible_grid_seconds": 0.0,
        **changes,
    }
    return ServiceSettings(**chosen)


@dataclass
class Ground:
    """Sites, and the words that tests speak to them."""

    home: Path
    reaper: Reaper
    contexts: dict[str, Context]
    admin: Caller
    service: Context
    """With the database owner's login: it makes keys, as no site can."""
    processes: dict[str, psutil.Process] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)
    """Closed with the sites."""

    def database(self) -> Database:
        """Return the database that all sites share."""
        return Database(next(iter(self.contexts.values())).settings.url)

    def secret(self, role: Role) -> str:
        """Make a principal, and return a key of its own."""
        made, _ = keys.create(
            self.service, self.admin, name=role, role=role, principal_id=None, lasts_seconds=None, idempotency_key=None
        )
        assert made.key is not None
        holder = entry.holder(self.service, made.key)
        assert holder is not None
        fresh = keys.rotate(self.service, holder, made.id)
        assert fresh.key is not None
        return fresh.key

    def someone(self, role: Role) -> Caller:
        """Make a principal."""
        found = entry.holder(self.service, self.secret(role))
        assert found is not None
        return found

    def upload(self, site: str, content: bytes, analyst: Caller) -> str:
        """Have an owner upload through a site's own service, and share with an analyst."""
        context, owner = self.contexts[site], self.someone("owner")
        metadata = {"name": f"toy {uuid4().hex[:8]}", "columns": COLUMNS, "budget": {"epsilon": "8", "delta": "1e-6"}}
        view, _ = uploads.create(context, owner, parse_metadata(metadata), None, [content], None)
        access.give(context, owner, view["id"], analyst.id, "all", None)
        return str(view["id"])

    def submit(self, named: Sequence[str], quorum: int | None = None, **changes: Any) -> Federation:
        """Have an owner at each of these sites upload a shard, and an analyst submit a federated job."""
        analyst = self.someone("analyst")
        found = [self.upload(site, shard(SIZES[place], place), analyst) for place, site in enumerate(named)]
        body = {
            "federation": {"datasets": found, "quorum": quorum},
            "model": LINEAR,
            "optimizer": {"kind": "noisy_gd", "steps": STEPS},
            "privacy": {"mu": "0.5"},
            "inference": {"intervals": False},
            **changes,
        }
        context = next(iter(self.contexts.values()))
        told = entry.submit(context, analyst, JobSpec.model_validate(body), uuid4().hex).body
        clients = [client["job"] for client in told["federation"]["sites"]]
        return Federation(cast("Embedded", self), told["id"], clients)

    def view(self, job_id: str) -> dict[str, Any]:
        """Return a job as an admin sees it."""
        found = jobs.get(next(iter(self.contexts.values())), self.admin, job_id)
        return json.loads(found.model_dump_json())  # type: ignore[no-any-return] # as a client reads it

    def wait_until(
        self, job_id: str, met: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE_SECONDS
    ) -> dict[str, Any]:
        """Return a job once it meets a condition."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            view = self.view(job_id)
            if met(view):
                return view
            time.sleep(0.2)
        raise AssertionError(f"{job_id} did not get there in {seconds} s: {view}; {self.logs()}")

    def wait(self, job_id: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Return a job once it has ended."""
        return self.wait_until(job_id, lambda view: view["state"] in TERMINAL, seconds)

    def logs(self) -> str:
        """Return the ends of what the supervisors said."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.home.glob("*.log")))

    def told(self, site: str) -> dict[str, str]:
        """Return the environment of a site's processes, which get that site's settings and nobody else's."""
        settings = self.contexts[site].settings
        told = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
        for name in settings.model_fields_set - {"admin_key"}:
            told[f"FARTHING_{name.upper()}"] = str(getattr(settings, name))
        return told | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def start(self, site: str, **environment: str) -> None:
        """Start a site's supervisor."""
        told = self.told(site) | {"GLOO_SOCKET_IFNAME": "lo", "PATIENCE": "10"}
        told |= {"OBSERVED": str(self.home / "observed.jsonl"), **environment}
        command = [sys.executable, "-m", "tests.support.observed_supervisor"]
        started = self.reaper.start(f"supervisor-{site or 'service'}", command, told)
        self.processes[site] = psutil.Process(started.pid)

    def client(self, url: str, secret: str = KEY) -> httpx.Client:
        """Return what speaks to a site's API, for the admin or for the principal of the key."""
        made = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=60, limits=CONNECTIONS)
        self.opened.callback(made.close)
        return made

    def serve(self, site: str) -> Running:
        """Start a site's API; return the words to speak to it with the admin's key, once it is ready."""
        port = free_port("127.0.0.1")
        command = [sys.executable, "-m", "api", "--host", "127.0.0.1", "--port", str(port)]
        name = f"api-{site or 'service'}"
        process = self.reaper.start(name, command, self.told(site))
        url = f"http://127.0.0.1:{port}"
        until(lambda: is_ready(url), name, process=process, log=(self.home / f"{name}.log").read_text)
        self.processes[name] = psutil.Process(process.pid)
        return Running(self.home, url, self.client(url), self.contexts[site].settings)

    def kill(self, site: str) -> None:
        """SIGKILL a site's supervisor; its trainers die with it."""
        self.processes[site].kill()


@contextmanager
def sites(home: Path, names: Sequence[str], **settings: Any) -> Iterator[Ground]:
    """Make sites with their own keys and storages; every process is gone afterwards."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        reaper = Reaper(home)
        stack.callback(reaper.reap)
        postgres = Postgres(home, reaper)
        stack.callback(shutil.rmtree, postgres.folder, ignore_errors=True)
        stack.callback(reaper.reap)  # before its files go
        own = site_settings(home, "", postgres.url, **settings)
        prepare(own.model_copy(update={"admin_key": KEY}))
        service = Context(own, Database(own.url))
        contexts = {}
        for name in names:
            login = make_url(postgres.url).set(username=make_role(service.database, name))
            chosen = site_settings(home, name, login.render_as_string(hide_password=False), **settings)
            contexts[name] = Context(chosen, Database(chosen.url))
        for context in (service, *contexts.values()):
            stack.callback(context.database.dispose)
        admin = entry.holder(service, KEY)
        assert admin is not None
        yield Ground(home, reaper, contexts, admin, service, opened=stack)
