"""A group under `torchrun`: two agents as on two machines, a supervisor in the first place, followers in the second."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.support.embedded import ROOT, START_SECONDS, Embedded, embedded, toy_csv

ROWS = 20_000
LEASE_SECONDS = 10


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def two_agents(service: Embedded) -> Iterator[list[psutil.Process]]:
    """Run the group; every process of it is gone afterwards."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    environment |= {
        "FARTHING_HOME": str(service.home),
        "FARTHING_LEASE_SECONDS": str(LEASE_SECONDS),
        "FARTHING_BEAT_SECONDS": "1",
        "FARTHING_VISIBLE_GRID_SECONDS": "0",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    }
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    with (service.home / "torchrun.txt").open("w") as said:
        agents = [
            subprocess.Popen(
                [*command, "--node-rank", str(node), "-m", "workers.torchrun_entry"],
                cwd=ROOT,
                env=environment,
                stdout=said,
                stderr=said,
            )
            for node in range(2)
        ]
    try:
        yield [psutil.Process(agent.pid) for agent in agents]
    finally:
        family = [child for agent in agents for child in psutil.Process(agent.pid).children(recursive=True)]
        for agent in agents:
            agent.terminate()
        for agent in agents:
            agent.wait(timeout=START_SECONDS)
        _, alive = psutil.wait_procs(family, timeout=START_SECONDS)
        assert alive == []


def members(agent: psutil.Process, module: str) -> list[psutil.Process]:
    """Return the live processes below an agent that run a module."""
    found = []
    for process in agent.children(recursive=True):
        try:
            if module in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    home = tmp_path_factory.mktemp("home")
    with embedded(home, workers=0, max_processes=2, lease_seconds=LEASE_SECONDS) as running:
        yield running


def wait_for_follower(agent: psutil.Process) -> psutil.Process:
    deadline = time.monotonic() + START_SECONDS
    while not (found := members(agent, "workers.rank")):
        assert time.monotonic() < deadline, "no follower came"
        time.sleep(0.05)
    return found[0]


@pytest.mark.slow
def test_a_job_runs_over_both_places(service: Embedded) -> None:
    dataset = service.upload(toy_csv(ROWS, seed=71_001))
    with two_agents(service) as (first, second):
        job = service.submit(dataset, resources={"processes": 2})
        follower = wait_for_follower(second)
        assert members(first, "workers.rank") == []
        assert service.wait(job)["state"] == "succeeded"
        assert not psutil.wait_procs([follower], timeout=START_SECONDS)[1]


@pytest.mark.slow
def test_a_team_outlives_a_lost_follower(service: Embedded) -> None:
    """The attempt ends; the next jobs, by the first place alone and by both, go on."""
    dataset = service.upload(toy_csv(ROWS, seed=71_002))
    with two_agents(service) as (_, second):
        lost = service.submit(dataset, optimizer={"kind": "noisy_gd", "steps": 60}, resources={"processes": 2})
        wait_for_follower(second).kill()
        ended = service.wait(lost)
        assert (ended["state"], ended["error"]) == ("failed", {"code": "trainer-failed"})
        for processes in (1, 2):
            job = service.submit(dataset, resources={"processes": processes})
            assert service.wait(job)["state"] == "succeeded"
