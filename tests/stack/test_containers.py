"""Facts that only containers can show: their user, the files they can write and read, a restart's effect on a job."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing import Client
from tests.integration.test_service import end_of, job, until, upload
from tests.stack.containers import container, docker, inspected
from tests.support.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("postgres", "redis", "api", "proxy", "worker")
LONGER: dict[str, Any] = {"optimizer": {"kind": "noisy_gd", "steps": 4_000}}
"""A job that lasts long enough to be in the middle of it."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with TARGETS["stack"](tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Target) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_nobody_special_and_can_change_nothing_of_its_image(name: str) -> None:
    found = inspected(name)
    assert docker("exec", container(name), "id", "-u").stdout.strip() not in ("", "0")
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert not found["HostConfig"]["CapAdd"]
    assert any(option.startswith("no-new-privileges") for option in found["HostConfig"]["SecurityOpt"])
    assert docker("exec", "--user", "0", container(name), "touch", "/etc/changed", check=False).returncode != 0
    assert found["HostConfig"]["Memory"] > 0
    assert found["HostConfig"]["PidsLimit"] > 0


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_says_that_it_is_well(name: str) -> None:
    assert until(lambda: inspected(name)["State"]["Health"]["Status"] == "healthy")


def test_the_image_of_the_api_has_no_torch_and_that_of_the_worker_has() -> None:
    look = "import importlib.util as found; raise SystemExit(found.find_spec('torch') is not None)"
    assert docker("exec", container("api"), "python", "-c", look, check=False).returncode == 0
    assert docker("exec", container("worker"), "python", "-c", look, check=False).returncode == 1


@pytest.mark.parametrize("name", ["api", "worker"])
def test_an_image_has_compiled_kernels_and_no_compiler(name: str) -> None:
    look = "import shutil; from core.native.library import library; print(library()[1], shutil.which('cc'))"
    assert docker("exec", container(name), "python", "-c", look).stdout.split() == ["compiled", "None"]


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_is_in_an_image_an_environment_an_argument_or_a_log(name: str) -> None:
    secrets = [path.read_text().strip() for path in Path(os.environ["FARTHING_STACK_SECRETS"]).iterdir()]
    assert len(secrets) == 6
    found = container(name)
    said = docker("logs", found)
    processes = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null"
    looked = [
        json.dumps(inspected(name)),
        docker("history", "--no-trunc", inspected(name)["Image"]).stdout,
        docker("exec", found, "sh", "-c", processes, check=False).stdout,
        said.stdout + said.stderr,
    ]
    assert not [secret for secret in secrets for text in looked if secret in text]


def test_database_queue_and_trainers_reach_nothing_outside() -> None:
    for name in ("postgres", "redis", "worker"):
        networks = inspected(name)["NetworkSettings"]["Networks"]
        for network in networks:
            assert json.loads(docker("network", "inspect", network).stdout)[0]["Internal"], name
        assert not inspected(name)["HostConfig"]["PortBindings"]


@pytest.mark.parametrize("how", ["redis", "postgres", "worker-drained", "worker-killed"])
def test_a_job_survives_a_restart_of_what_it_runs_on(admin: Client, how: str) -> None:
    name, _, way = how.partition("-")
    made = upload(admin)
    running = admin.submit(job(made.id, **LONGER)).id
    until(lambda: admin.job(running).progress.step > 0)
    docker("restart", "--time", "0" if way == "killed" else "40", container(name))
    until(lambda: inspected(name)["State"]["Health"]["Status"] == "healthy")
    ended = end_of(admin, running)
    assert ended.state == "succeeded", ended
    assert admin.budget(made.id).budget_share.reserved == "0"
    assert admin.verify(made.scope or "").ok
    assert admin.wait(admin.submit(job(made.id)).id).state == "succeeded"


@pytest.mark.parametrize("major", ["1", "2"])
def test_the_compose_file_is_valid_in_both_syntaxes(major: str) -> None:
    composes = json.loads(os.environ["FARTHING_STACK_COMPOSES"])
    if major not in composes:
        pytest.skip(f"there is no compose {major} on this machine")
    told = configured(composes[major], {}, "docker-compose.yml")
    assert "gpu-worker" in told.stdout
    assert "variable is not set" not in told.stderr
    assert "/run/secrets/storage" not in told.stdout
    place = {"FARTHING_STORAGE_URL": "s3://bucket/prefix"}
    opened = configured(composes[major], place, "docker-compose.yml", "docker-compose.storage.yml")
    found = re.search(r"^services:\n(?:(?: .*)?\n)+", opened.stdout, re.MULTILINE)
    assert found is not None, opened.stdout
    services = found[0]  # compose 2 also prints what they have in common, as it stands in the file
    assert services.count("FARTHING_STORAGE_URL: s3://bucket/prefix") == 4
    assert services.count("AWS_CONFIG_FILE: /run/secrets/storage") == 4
    assert services.count("FARTHING_DATABASE_URL") == 4, "what is there already stays"
    assert "variable is not set" not in opened.stderr


@pytest.mark.parametrize("major", ["1", "2"])
def test_the_files_of_sites_are_valid_in_both_syntaxes(major: str) -> None:
    """A site is on its machine's own network unless another one is named; the service shows it PostgreSQL alone."""
    composes = json.loads(os.environ["FARTHING_STACK_COMPOSES"])
    if major not in composes:
        pytest.skip(f"there is no compose {major} on this machine")
    told = {"FARTHING_SITE": "north", "FARTHING_DATABASE_HOST": "10.8.0.1", "FARTHING_DATABASE_ADDRESS": "10.8.0.1"}
    told |= {"FARTHING_MEETING_HOST": "10.8.0.11", "GLOO_SOCKET_IFNAME": "wg0"}
    site = configured(composes[major], told, "docker-compose.site.yml")
    assert "postgresql+psycopg://farthing_site_north@10.8.0.1/farthing" in site.stdout
    assert site.stdout.count("\n    network_mode: host\n") == 2
    assert "broker" not in site.stdout.lower(), "a site hears no notification, and needs no password of it"
    shared = configured(composes[major], told, "docker-compose.yml", "docker-compose.shared.yml")
    assert shared.stdout.count("10.8.0.1") == 1
    assert "name: farthing-witness" in shared.stdout
    assert not [one for one in (site, shared) if "variable is not set" in one.stderr]


def configured(compose: list[str], more: dict[str, str], *files: str) -> "subprocess.CompletedProcess[str]":
    """Return what compose makes of files of the checkout."""
    named = [part for file in files for part in ("--file", file)]
    command = [*compose, *named, "--profile", "gpu", "config"]
    return subprocess.run(command, check=True, cwd=ROOT, env=os.environ | more, capture_output=True, text=True)
