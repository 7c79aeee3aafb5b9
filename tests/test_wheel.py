"""The built wheel, installed into an environment of its own: the SDK and the command work, and nothing else came along.

The wheel's dependencies are made visible from this environment, so nothing is downloaded.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.embedded import Embedded, embedded

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; its build backend comes from this environment where it is installed, else from the index."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-isolation"] if find_spec("hatchling") else []
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    (built,) = folder.glob("farthing-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, which sees the libraries of this one but not its checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    subprocess.run(
        [*install, "--no-deps", "--prefix", str(folder), "--ignore-installed", str(wheel)],
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    assert (site / "farthing").is_dir()
    # Unlike a .pth file's own lines, a plain path in one is not searched for .pth files: ours, to the checkout, is not.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = folder / "bin" / "farthing"
    lines = command.read_text().splitlines()
    command.write_text("\n".join([f"#!{folder}/bin/python", *lines[1:], ""]))  # pip wrote its own interpreter
    return folder


def run(environment: Path, *command: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FARTHING_", "PYTHON"))}
    return subprocess.run(
        [str(environment / "bin" / command[0]), *command[1:]],
        cwd=cwd,
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), workers=0) as running:
        yield running


def test_it_holds_the_sdk_and_nothing_of_the_service(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"farthing", next(top for top in tops if top.endswith(".dist-info"))}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "farthing").glob("*.py")} <= set(names)
    assert {"farthing/py.typed", "farthing/asynchronous.pyi"} <= set(names)
    assert any(name.endswith("/LICENSE") for name in names)


def test_it_asks_for_no_more_than_a_client_needs(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    needed = {line.split(":", 1)[1].strip() for line in lines if line.startswith("Requires-Dist:")}
    base = {line.split("~")[0].split(">")[0].split("<")[0] for line in needed if "extra ==" not in line}
    assert base == {"httpx", "joserfc", "pydantic", "rich", "tenacity", "typer"}


def test_it_is_imported_without_the_service(environment: Path, tmp_path: Path) -> None:
    program = (
        "import sys, farthing, farthing.cli\n"
        "from importlib.util import find_spec\n"
        "print(farthing.__file__)\n"
        "print([name for name in ('api', 'core', 'workers') if find_spec(name)])\n"
        "print([name for name in ('torch', 'fastapi', 'sqlalchemy', 'numpy') if name in sys.modules])\n"
    )
    done = run(environment, "python", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    file, found, loaded = done.stdout.splitlines()
    assert Path(file).is_relative_to(environment)
    assert found == loaded == "[]"


def test_its_command_helps_and_says_where_the_service_is(environment: Path, tmp_path: Path) -> None:
    helped = run(environment, "farthing", "--help", cwd=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert "Train models privately" in helped.stdout
    data = str(environment / "pyvenv.cfg")
    (environment / "visits.json").write_text("{}")
    home = (["declare", data], ["check", data, "--declaration", str(environment / "visits.json")])
    for tool in (["up"], ["backup", "copy"], ["restore", "copy"], ["reconcile"], *home):
        refused = run(environment, "farthing", *tool, cwd=tmp_path)
        assert refused.returncode == 2
        assert "The service is not installed here" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_its_command_talks_to_a_service(environment: Path, tmp_path: Path, service: Embedded) -> None:
    key = service.http.headers["Authorization"].removeprefix("Bearer ")
    done = run(environment, "farthing", "me", cwd=tmp_path, FARTHING_URL=service.url, FARTHING_KEY=key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("admin pr_")
