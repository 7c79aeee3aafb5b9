"""A container engine for the stack's tests: the one that answers, or one of our own that leaves nothing behind.

Where none answers and this is root on Debian with apt, Debian's packages are installed and a daemon is started. Its
data, state and socket are in a folder that is removed at the end; no image, network or volume of anybody else is seen.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PACKAGES: Final = ("docker.io", "docker-compose", "debootstrap", "iptables")
FLAGS: Final = ((), ("--storage-driver=vfs",), ("--iptables=false", "--storage-driver=vfs"))
"""Of the daemon, tried in turn: kernels of small machines lack one or the other thing."""
NEWER_DEBIAN: Final = "trixie"
"""The first release of Debian that has docker compose 2."""
START_SECONDS: Final = 30
_OWN_BUILDKIT_ENDS: Final = 23
"""From this version of the client on, building takes a plug-in."""


class NoEngineError(Exception):
    """There is no engine here and none can be started; the text says why."""


@dataclass(frozen=True)
class Engine:
    """The access to an engine: its client and the environment that the client needs."""

    client: str
    folder: Path
    """For whatever a run keeps; removed at its end."""
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, check: bool = True, **options: object) -> "subprocess.CompletedProcess[str]":
        """Run the client and return what it said; errors are printed as they come."""
        return run([self.client, *arguments], self.environment, check=check, **options)

    def composes(self) -> dict[str, list[str]]:
        """Return the commands of compose that there are, by major version, after fetching what Debian offers."""
        tried = [[self.client, "compose"], ["docker-compose"], ["docker", "compose"]]
        if _is_debian() and os.geteuid() == 0 and not any(_major(command) == "2" for command in tried):
            tried.append([str(_fetch_newer_compose(self.folder / "compose"))])
        return {major: command for command in reversed(tried) if (major := _major(command)) is not None}


def run(
    command: Sequence[str], environment: dict[str, str] | None = None, *, check: bool = True, **options: object
) -> "subprocess.CompletedProcess[str]":
    """Run a command with more in its environment and return what it wrote to standard output."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return] # the options are subprocess's own
        command, env=os.environ | (environment or {}), check=check, stdout=subprocess.PIPE, text=True, **options
    )


@contextmanager
def engine() -> Iterator[Engine]:
    """Give an engine.

    Raises:
        NoEngineError: none answers, and none can be started here.
    """
    with tempfile.TemporaryDirectory(prefix="farthing-stack-") as name:
        folder = Path(name)
        found = _answering(folder)
        if found is not None:
            yield found
            return
        _install()
        with _daemon(folder) as started:
            yield started


def say(text: str) -> None:
    """Print a line of progress at once."""
    sys.stderr.write(f"stack: {text}\n")
    sys.stderr.flush()


def _answering(folder: Path) -> Engine | None:
    """Return the engine that a client reaches which can build, the one on the PATH first, if there is one."""
    for client in dict.fromkeys((shutil.which("docker"), "/usr/bin/docker")):
        if client is not None and Path(client).exists():
            found = Engine(client, folder, {"DOCKER_BUILDKIT": "1"})
            told = "{{.Client.Version}} {{.Server.Version}}"
            answered = found("version", "--format", told, check=False, stderr=subprocess.DEVNULL)
            versions = answered.stdout.split()
            if answered.returncode == 0 and len(versions) == 2 and _builds(found, versions[0]):
                return found
    return None


def _builds(engine: Engine, version: str) -> bool:
    """Say whether a client can build: its own BuildKit is in those before 23, later ones need their plug-in."""
    if int(version.split(".", maxsplit=1)[0]) < _OWN_BUILDKIT_ENDS:
        return True
    return engine("buildx", "version", check=False, stderr=subprocess.DEVNULL).returncode == 0


def _is_debian() -> bool:
    return Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def _install() -> None:
    """Install Debian's engine."""
    if not _is_debian():
        raise NoEngineError("no container engine answers, and this is not Debian, where one could be installed")
    if os.geteuid() != 0:
        raise NoEngineError("no container engine answers, and only root could install one")
    if all(Path(path).exists() for path in ("/usr/sbin/dockerd", "/usr/bin/docker", "/usr/sbin/debootstrap")):
        return
    say(f"installing {', '.join(PACKAGES)}")
    environment = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # the package starts no daemon of its own
    try:
        run(["apt-get", "update", "-qq"], environment)
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES], environment)
    except subprocess.CalledProcessError as error:
        raise NoEngineError(f"no container engine answers, and apt could not install one: {error}") from error


@contextmanager
def _daemon(folder: Path) -> Iterator[Engine]:
    """Run a daemon of our own, with the first flags that this kernel can do."""
    socket = f"unix://{folder / 'engine.sock'}"
    # Debian's own client: another one on the PATH may be newer than what this daemon can build with.
    found = Engine("/usr/bin/docker", folder, {"DOCKER_HOST": socket, "DOCKER_BUILDKIT": "1"})
    for flags in FLAGS:
        places = [f"--data-root={folder / 'data'}", f"--exec-root={folder / 'state'}"]
        with (folder / "daemon.log").open("w") as log:
            daemon = subprocess.Popen(
                ["/usr/sbin/dockerd", "--host", socket, f"--pidfile={folder / 'pid'}", *places, *flags],
                stdout=log,
                stderr=log,
            )
        try:
            if _is_up(found, daemon):
                say(f"an engine of our own, {' '.join(flags) or 'as it is'}")
                yield found
                return
        finally:
            daemon.terminate()
            daemon.wait()
            for mount in _mounts_below(folder):
                subprocess.run(["umount", "--lazy", mount], check=False)
    text = (folder / "daemon.log").read_text()[-1000:]
    raise NoEngineError(f"no container engine answers, and dockerd does not start here: {text}")


def _is_up(found: Engine, daemon: "subprocess.Popen[bytes]") -> bool:
    """Wait for the daemon's answer; False where it ends instead."""
    deadline = time.monotonic() + START_SECONDS
    while daemon.poll() is None and time.monotonic() < deadline:
        if found("info", check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return True
        time.sleep(0.3)
    return False


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def _major(command: Sequence[str]) -> str | None:
    """Return the major version of a compose command, None where there is no such command."""
    try:
        told = run([*command, "version", "--short"], check=False, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return None
    version = told.stdout.strip().lstrip("v")
    return version.split(".")[0] if told.returncode == 0 and version[:1].isdigit() else None


def _fetch_newer_compose(folder: Path) -> Path:
    """Unpack docker compose 2 of a newer Debian, without installing it; nothing of apt's own state changes."""
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True)
    (folder / "sources").write_text(f"deb {debian_mirror()} {NEWER_DEBIAN} main\n")
    options = [f"Dir::Etc::SourceList={folder / 'sources'}", "Dir::Etc::SourceParts=-", f"Dir::State::Lists={lists}"]
    options += [f"Dir::Cache={folder}", "APT::Sandbox::User=root"]
    apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
    run([*apt, "update"])
    run([*apt, "download", "docker-compose"], cwd=folder)
    (package,) = folder.glob("docker-compose_*.deb")
    run(["dpkg", "--extract", str(package), str(folder / "files")])
    return folder / "files/usr/libexec/docker/cli-plugins/docker-compose"


def debian_mirror() -> str:
    """Return the mirror that this machine's apt uses for Debian."""
    listed = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"])
    return next(iter(listed.stdout.split()), "http://deb.debian.org/debian/")
