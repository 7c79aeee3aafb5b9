"""The stack's images, from our Dockerfile: on the ordinary ones, or on stand-ins where no registry answers."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.stack.engine import Engine, NoEngineError, debian_mirror, run, say

ROOT: Final = Path(__file__).resolve().parents[2]
STANDINS: Final = Path(__file__).parent / "standins"
ORDINARY: Final = {
    "PYTHON_IMAGE": "python:3.11-slim-bookworm",
    "POSTGRES_IMAGE": "postgres:17-bookworm",
    "REDIS_IMAGE": "redis:7.2-bookworm",
    "PROXY_IMAGE": "haproxy:3.0-bookworm",
}
BASE: Final = ("ca-certificates", "python3", "python3-venv", "python3-pip")
PULL_SECONDS: Final = 600
OURS: Final = "farthing-test"


def build(engine: Engine) -> dict[str, str]:
    """Build both images; return the variables with which docker-compose.yml takes them and their servers.

    Raises:
        NoEngineError: neither a registry nor a Debian mirror answers.
    """
    servers, arguments = (ORDINARY, []) if _pulled(engine) else _standins(engine)
    built = {"FARTHING_API_IMAGE": "api", "FARTHING_WORKER_IMAGE": "worker"}
    for target in built.values():
        say(f"building the {target} image")
        python = ["--build-arg", f"PYTHON_IMAGE={servers['PYTHON_IMAGE']}", *arguments]
        engine("build", "--quiet", "--target", target, "--tag", f"{OURS}-{target}", *python, str(ROOT))
    return servers | {name: f"{OURS}-{target}" for name, target in built.items()}


def remove(engine: Engine) -> None:
    """Remove the images that carry our names."""
    listed = engine("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"{OURS}-*").stdout.split()
    if listed:
        engine("image", "rm", "--force", *listed, check=False)


def _pulled(engine: Engine) -> bool:
    """Fetch the ordinary images; False where a registry does not answer."""
    for image in ORDINARY.values():
        if engine("image", "inspect", image, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            continue
        try:
            pulled = engine("pull", "--quiet", image, check=False, stderr=subprocess.PIPE, timeout=PULL_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        if pulled.returncode != 0:
            say(f"no registry gives {image}; stand-ins are built from Debian's packages")
            return False
    return True


def _standins(engine: Engine) -> tuple[dict[str, str], list[str]]:
    """Build stand-ins; return their names and what our own builds need to do without a network."""
    names = {variable: f"{OURS}-{variable.removesuffix('_IMAGE').lower()}" for variable in ORDINARY}
    base, wheels = names["PYTHON_IMAGE"], f"{OURS}-wheels"
    try:
        _import_debian(engine, base)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise NoEngineError(f"no image registry answers, and debootstrap made no base: {error}") from error
    compiler = f"{OURS}-compiler"
    tags = {name: names[f"{name.upper()}_IMAGE"] for name in ("postgres", "redis", "proxy")} | {"compiler": compiler}
    for target, tag in tags.items():
        say(f"building a stand-in: {target}")
        options = ["--network", "host", "--build-arg", f"PYTHON_IMAGE={base}", "--target", target]
        engine("build", "--quiet", *options, "--tag", tag, str(STANDINS))
    _import_wheels(engine, wheels)
    given = {"WHEELS": wheels, "PIP_NO_INDEX": "1", "COMPILER_IMAGE": compiler}
    return names, ["--network", "none", *(part for at in given.items() for part in ("--build-arg", "=".join(at)))]


def _import_debian(engine: Engine, name: str) -> None:
    """Make a small Debian with Python into an image."""
    say("a base of Debian's packages")
    folder = engine.folder / "debian"
    options = ["--variant=minbase", f"--include={','.join(BASE)}"]
    run(["debootstrap", *options, "bookworm", str(folder), debian_mirror()])
    _import(engine, folder, name)


def _import_wheels(engine: Engine, name: str) -> None:
    """Fetch every wheel with this environment's own pip, however that is configured, and make them an image."""
    say("fetching wheels")
    folder = engine.folder / "wheels"
    # Debian's Python is older than 3.11.3, where redis needs async-timeout; hatchling builds the SDK.
    wanted = [".[train,cluster]", "hatchling", "async-timeout"]
    options = ["--only-binary", ":all:", "--dest", str(folder), "--constraint", "constraints.txt"]
    run([sys.executable, "-m", "pip", "download", "--quiet", "--progress-bar", "off", *options, *wanted], cwd=ROOT)
    _import(engine, folder, name)


def _import(engine: Engine, folder: Path, name: str) -> None:
    """Make a folder an image."""
    with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as archive:
        engine("import", "-", name, stdin=archive.stdout)
    assert archive.returncode == 0, f"tar of {folder} failed"
