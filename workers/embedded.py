"""The whole service on one machine, with no other server: `python -m workers.embedded --home DIR`.

The parent holds the home, prepares the database, and keeps an API process and a supervisor process alive. It imports
neither of them, and no torch, so that it is ready soon.
"""

import argparse
import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from core.access.bootstrap import console_link, first_admin, is_admin_key
from core.access.supplied import refuse_weak
from core.base.errors import Conflict, Refusal
from core.base.settings import ServiceSettings
from core.db import clock
from core.db.database import Database
from core.ledger.signing import prepare_signing_key
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.records import datasets
from core.records.master_key import load_master_keys, prepare_master_key
from workers.process import clock_seconds

SUPERVISOR: Final = "workers.supervisor"
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 30.0
"""A process that has lived this long and dies is started again at once."""
STOP_SECONDS: Final = 40.0
"""Longer than the supervisor's grace and the API's."""
_WATCH_SECONDS: Final = 0.05


class Service:
    """A child that is started again, after a growing pause, whenever it dies.

    Args:
        module: run as `python -m workers.exec_with_parent PARENT MODULE`.
        environment: of the child.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._environment = environment
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._started_at = 0.0
        self._start_at: float | None = None
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Start the child."""
        command = [sys.executable, "-m", "workers.exec_with_parent", str(os.getpid()), self._module]
        # A session of its own: Ctrl-C at the terminal is this parent's to pass on, once, in order.
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, env=dict(self._environment), start_new_session=True
        )
        self._started_at = clock_seconds()
        self._start_at = None

    def watch(self) -> None:
        """Notice a death, and start again when its pause is over."""
        now = clock_seconds()
        if self._start_at is not None:
            if now >= self._start_at:
                self.start()
        elif self._child is not None and self._child.poll() is not None:
            # A process that dies as it starts waits longer each time; one that was steady begins anew.
            if now - self._started_at > STEADY_SECONDS:
                self._pause_seconds = FIRST_PAUSE_SECONDS
            say(f"{self._module} ended with status {self._child.returncode}; starting it again", error=True)
            self._child = None
            self._start_at = now + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def ask_to_stop(self) -> None:
        """Ask the child to end."""
        self._start_at = None
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    def wait(self, deadline: float) -> None:
        """Wait for its end, and force it at the deadline."""
        if self._child is None:
            return
        try:
            self._child.wait(max(0.0, deadline - clock_seconds()))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Embedded:
    """The parent: prepares the home and keeps the services alive until it receives the order to stop."""

    def __init__(self, settings: ServiceSettings, supervisor: str = SUPERVISOR) -> None:
        port = settings.port or free_port(settings.host)
        self._settings = settings.model_copy(update={"port": port})
        environment = service_environment(self._settings)
        self._services = [Service("api", environment)]
        if settings.workers:
            self._services.append(Service(supervisor, environment))
        self._stopping = False

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Shut down soon. A signal handler."""
        del number, frame
        self._stopping = True

    def run(self) -> None:
        """Prepare, start, say so, and watch until stopped.

        Raises:
            SystemExit: the port cannot be listened on. Raised before anything is made: another service on the port
                would look like this one, and the first key would open nothing.
        """
        check_port(self._settings.host, self._settings.port)
        if self._settings.is_exposed:
            say(f"Warning: {self._settings.host} is reached from other machines, without TLS and a proxy.", error=True)
        prepare(self._settings)
        for service in self._services:
            service.start()
        announced = False
        while not self._stopping:
            for service in self._services:
                service.watch()
            # Said only when the API answers, so that whoever waits for the line can use the address.
            if not announced and answers(self._settings.host, self._settings.port):
                say(f"Farthing is ready on http://{self._settings.host}:{self._settings.port}")
                announce_console(self._settings)
                announced = True
            time.sleep(_WATCH_SECONDS)
        for service in self._services:
            service.ask_to_stop()
        deadline = clock_seconds() + STOP_SECONDS
        for service in self._services:
            service.wait(deadline)


def announce_console(settings: ServiceSettings) -> None:
    """Print on a terminal a link that signs the operator in to the console once; a log gets no secret."""
    if not sys.stdout.isatty():
        return
    database = Database(settings.url)
    try:
        token = database.transaction(console_link)
    finally:
        database.dispose()
    if token is not None:
        host = "127.0.0.1" if settings.host == "0.0.0.0" else settings.host  # noqa: S104 - compared, not bound
        say(f"Sign in to the console, once, within 15 minutes: http://{host}:{settings.port}/sign-in#link={token}")


def prepare(settings: ServiceSettings) -> None:
    """Bring the database up to date, make the keys that are missing, and compare the ledger with its witness.

    A ledger that is behind is frozen, and the service starts all the same: everything but training works, and every
    answer says what to do. The first admin's key comes last, since it is printed once.

    Raises:
        NotReady: a master key or the witness is missing or wrong; no admin key was made.
        Conflict: the database is empty, and the witness is another ledger's.
        Invalid: FARTHING_ADMIN_KEY is too weak.
    """
    witness = Witness(settings.witness_path)
    _refuse_unprepared(settings, witness)
    settings.records_path.mkdir(parents=True, exist_ok=True)
    database = Database(settings.url)
    try:
        database.migrate()
        with database.read() as session:
            wrapped = datasets.wrapped_keys(session, settings.site)
            at = clock.read(session)
        # After the migration: the keys in the database decide which master key must be there.
        prepare_master_key(settings, wrapped.values())
        prepare_signing_key(settings, at)
        for problem in guard(database, witness):
            say(f"The ledger is frozen: {problem} Run `farthing reconcile`.", error=True)
        _prepare_admin(settings, database)
    finally:
        database.dispose()


def _refuse_unprepared(settings: ServiceSettings, witness: Witness) -> None:
    """Check what can be checked before a database is opened or made; raises as `prepare`."""
    if settings.admin_key is not None:
        refuse_weak(settings.admin_key)
    if settings.cluster or settings.master_key is not None or settings.master_key_path.exists():
        load_master_keys(settings)
    witness.check()
    if witness.exists() and _is_empty(settings.url):  # in this order: a rival migrates before it makes the witness
        raise Conflict(
            f"There is a witness of another ledger at {settings.witness_path}, and this database is empty. If the "
            "database was lost, restore its backup. For a new ledger, name another place with FARTHING_WITNESS."
        )


def _is_empty(url: str) -> bool:
    """Tell whether a database has no tables; looking makes no SQLite file."""
    path = url.removeprefix("sqlite+pysqlite:///")
    # To connect to SQLite makes its file, so a missing one is looked for by its path.
    if path != url and not Path(path).exists():
        return True
    database = Database(url)
    try:
        return database.is_empty()
    finally:
        database.dispose()


def _prepare_admin(settings: ServiceSettings, database: Database) -> None:
    """Make the first admin's key, and print it where the operator gave none."""
    made = database.transaction(first_admin, settings.admin_key)
    if made is not None and settings.admin_key is None:
        say(f"Admin key, shown this once: {made}")
    if made is None and settings.admin_key is not None:
        with database.read() as session:
            known = is_admin_key(session, settings.admin_key)
        if not known:
            say(
                "FARTHING_ADMIN_KEY is not taken: there are keys already, and it is no admin's. If those are lost, "
                "`farthing admin-key` makes another.",
                error=True,
            )


@contextmanager
def holding(home: Path) -> Iterator[None]:
    """Hold a home, so that no second service uses it; the kernel lets go when this process ends, however it ends.

    Raises:
        SystemExit: another process holds it, or it cannot be made or written.
    """
    try:
        home.mkdir(parents=True, exist_ok=True)
        opened = (home / "lock").open("w")
    except OSError as error:
        raise SystemExit(
            f"{home} cannot be the home ({error.strerror or error}); choose another with --home or FARTHING_HOME."
        ) from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{home} is in use by another Farthing; stop it, or choose another --home.") from None
        yield


def service_environment(settings: ServiceSettings) -> dict[str, str]:
    """Return the environment of the API and the supervisor: all settings, but never the first key."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    # A child is started by `-m` and must find our modules as this process does.
    inherited["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    given = settings.model_dump(mode="json", exclude={"admin_key"}, exclude_none=True)
    return inherited | {f"FARTHING_{name.upper()}": str(value) for name, value in given.items()}


def free_port(host: str) -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(host: str, port: int) -> None:
    """See whether a port can be listened on.

    Raises:
        SystemExit: it cannot; the text says why and what to do.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Only a first look: the API binds the port again, and may still lose it to another process.
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise SystemExit(
            f"Nothing can listen on {host}:{port} ({error.strerror or error}). Choose another port with --port or "
            "FARTHING_PORT; 0 takes a free one."
        ) from None


def answers(host: str, port: int) -> bool:
    """Tell whether the API answers."""
    connection = http.client.HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, port, timeout=1)  # noqa: S104 - compared, not bound
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def say(text: str, *, error: bool = False) -> None:
    """Print one line for the operator, at once."""
    print(text, file=sys.stderr if error else sys.stdout, flush=True)


def read_settings(arguments: list[str] | None = None) -> ServiceSettings:
    """Return the settings: options first, then FARTHING_... in the environment, then the defaults."""
    parser = argparse.ArgumentParser(prog="python -m workers.embedded", description="Run Farthing on one machine.")
    parser.add_argument("--home", type=Path, help="everything lives here")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, help="0 takes a free one")
    parser.add_argument("--workers", type=int, help="jobs trained at a time; 0 serves the API alone")
    parser.add_argument(
        "--witness", help="what keeps the ledger's heads: a file on another disk, or s3://bucket/prefix"
    )
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    return ServiceSettings(**given)


def main(arguments: list[str] | None = None, supervisor: str = SUPERVISOR) -> None:
    """Serve until SIGINT or SIGTERM."""
    os.umask(0o077)  # the home holds records, keys' digests and unapproved releases
    settings = read_settings(arguments)
    embedded = Embedded(settings, supervisor)
    signal.signal(signal.SIGINT, embedded.stop)
    signal.signal(signal.SIGTERM, embedded.stop)
    try:
        with holding(settings.home):
            embedded.run()
    except Refusal as refusal:
        raise SystemExit(refusal.detail) from None


if __name__ == "__main__":
    main()
