"""Fresh processes of a supervisor: forked, its own children, and with only what the forkserver loaded."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import drawing_trainer
from workers import trainer_pool
from workers.outcome import Outcome
from workers.process import reap_group, take_orphans
from workers.trainer_pool import Adopted, Fresh, TrainerPool

ROOT = Path(__file__).parents[2]
DRAWING = drawing_trainer.__name__
SOON_SECONDS = 60
SUBREAPER = 36
"""Of `prctl`."""


@pytest.fixture(scope="module", autouse=True)
def ordinary() -> Iterator[None]:
    """Leave orphans to whom they fall to otherwise."""
    yield
    assert ctypes.CDLL(None).prctl(SUBREAPER, 0, 0, 0, 0) == 0


@pytest.fixture(scope="module")
def trainers() -> Iterator[TrainerPool]:
    """A trainer pool of the real trainers, ready."""
    made = TrainerPool("workers.trainer", 1)
    until(made)
    yield made
    made.close()


@pytest.fixture
def drawers() -> Iterator[TrainerPool]:
    """A trainer pool of processes that tell what they draw."""
    made = TrainerPool(DRAWING, 1)
    until(made)
    yield made
    made.close()


def until(made: TrainerPool) -> None:
    """Keep a trainer pool until it is able."""
    wait(lambda: made.keep() or made.able())


def wait(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def end(fresh: Fresh) -> int:
    """Close what holds a process, and return its status."""
    os.close(fresh.orders)
    wait(lambda: fresh.process.poll() is not None)
    os.close(fresh.pipe)
    status = fresh.process.poll()
    assert status is not None
    return status


def heard(fresh: Fresh) -> str:
    """Return what a process tells, until it ends."""
    told = b""
    while piece := os.read(fresh.pipe, 4096):
        told += piece
    assert end(fresh) == 0
    return told.decode()


def lives(process: psutil.Process) -> bool:
    """Tell a process from one that has ended, asked about or not."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def opened(pid: int) -> dict[int, str]:
    """Return another process's descriptors and what they are."""
    return {int(path.name): str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


def forkserver_of(made: TrainerPool) -> psutil.Process:
    """Return the process that a trainer pool forks."""
    assert made._forkserver is not None
    return psutil.Process(made._forkserver.process.pid)


def test_a_forked_trainer_is_our_child_in_its_own_session_and_has_nothing_of_the_forkserver(
    trainers: TrainerPool,
) -> None:
    fresh = trainers.fresh()
    assert isinstance(fresh.process, Adopted)
    pid, forked = fresh.process.pid, psutil.Process(fresh.process.pid)
    assert forked.ppid() == os.getpid()
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert forked.num_threads() == forkserver_of(trainers).num_threads() == 1
    descriptors = Path(f"/proc/{pid}/fd")
    wait(lambda: len([*descriptors.iterdir()]) == 4)  # it puts the pipe of its order into its place first
    held = opened(pid)
    assert held[1] == held[2] == "/dev/null"
    assert sorted(link.partition(":")[0] for link in held.values()) == ["/dev/null", "/dev/null", "pipe", "pipe"]
    assert (descriptors / "0").stat().st_ino == os.fstat(fresh.orders).st_ino
    assert end(fresh) == Outcome.ORPHANED


def test_a_forkserver_keeps_nothing_of_what_it_forked(trainers: TrainerPool) -> None:
    forkserver = forkserver_of(trainers)
    before = opened(forkserver.pid)
    several = [trainers.fresh() for _ in range(3)]
    assert opened(forkserver.pid) == before
    assert forkserver.children(recursive=True) == []
    assert len({fresh.process.pid for fresh in several}) == 3
    assert [end(fresh) for fresh in several] == [Outcome.ORPHANED] * 3


def test_a_request_to_stop_that_comes_at_once_is_heard_and_no_death(trainers: TrainerPool) -> None:
    fresh = trainers.fresh()
    os.killpg(fresh.process.pid, signal.SIGTERM)
    assert end(fresh) == Outcome.ORPHANED


def test_how_a_forked_process_was_killed_is_known(trainers: TrainerPool) -> None:
    fresh = trainers.fresh()
    assert fresh.process.poll() is None
    os.killpg(fresh.process.pid, signal.SIGKILL)
    assert end(fresh) == -signal.SIGKILL
    assert fresh.process.poll() == -signal.SIGKILL, "asked again"


def test_forked_processes_draw_other_noise_and_other_numbers(drawers: TrainerPool) -> None:
    """By a generator that the forkserver made and used, too; equal lines have probability below 2^-180."""
    told = [heard(drawers.fresh()) for _ in range(3)]
    lines = [line for one in told for line in one.splitlines()]
    assert len(lines) == len(set(lines)) == 3 * drawing_trainer.LINES


def test_a_forkserver_that_is_killed_is_replaced_and_nobody_waits_for_it(drawers: TrainerPool) -> None:
    forkserver = forkserver_of(drawers)
    forkserver.kill()
    wait(lambda: forkserver.status() == psutil.STATUS_ZOMBIE)
    alone = drawers.fresh()
    assert isinstance(alone.process, subprocess.Popen), "started by itself"
    assert len(heard(alone).splitlines()) == drawing_trainer.LINES
    assert not drawers.able(), "so long, nothing is claimed"
    until(drawers)
    assert forkserver_of(drawers).pid != forkserver.pid
    assert isinstance(drawers.fresh().process, Adopted)


def test_a_forkserver_that_does_not_answer_is_given_up_and_what_it_forks_late_finds_no_order(
    drawers: TrainerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_pool, "ANSWER_SECONDS", 0.2)
    forkserver = forkserver_of(drawers)
    forkserver.suspend()
    fresh = drawers.fresh()
    assert isinstance(fresh.process, subprocess.Popen)
    assert not forkserver.is_running()
    assert len(heard(fresh).splitlines()) == drawing_trainer.LINES


def test_where_a_forkserver_cannot_load_a_process_is_started_that_says_why() -> None:
    made = TrainerPool("tests.support.no_such_module", 1)
    assert not made.able()
    until(made)
    fresh = made.fresh()
    assert isinstance(fresh.process, subprocess.Popen)
    assert end(fresh) == 1
    made.close()


def test_with_several_threads_one_process_is_started_ahead() -> None:
    made = TrainerPool(DRAWING, 2)
    assert made.able(), "whoever waits gains nothing"
    started = time.monotonic()
    made.keep()
    ahead = made._ahead
    assert ahead is not None
    made.keep()
    assert made._ahead is ahead
    assert made.fresh() is ahead
    assert len(heard(ahead).splitlines()) == drawing_trainer.LINES
    wait(lambda: made.keep() or made._ahead is not None)
    assert time.monotonic() - started >= trainer_pool._AGAIN_SECONDS
    again = made._ahead
    assert again is not None
    made.close()
    assert again.process.poll() is not None


def test_a_process_ahead_that_has_died_gets_no_job() -> None:
    made = TrainerPool(DRAWING, 2)
    made.keep()
    dead = made._ahead
    assert dead is not None
    os.killpg(dead.process.pid, signal.SIGKILL)
    wait(lambda: dead.process.poll() is not None)
    fresh = made.fresh()
    assert fresh.process.pid != dead.process.pid
    assert len(heard(fresh).splitlines()) == drawing_trainer.LINES


def test_a_forkserver_with_a_thread_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and jobs get processes that are started for them."""
    monkeypatch.setenv(drawing_trainer.THREAD, "1")
    made = TrainerPool(DRAWING, 1)
    until(made)
    fresh = made.fresh()
    assert isinstance(fresh.process, subprocess.Popen)
    assert len(heard(fresh).splitlines()) == drawing_trainer.LINES
    made.close()


HOLDER = """
import sys, time
from workers.trainer_pool import TrainerPool
made = TrainerPool('workers.trainer', 1)
while not made.able():
    made.keep()
    time.sleep(0.01)
fresh = made.fresh()
print(made._forkserver.process.pid, fresh.process.pid, flush=True)
time.sleep(600)
"""


def test_a_supervisor_s_death_takes_its_forkserver_and_what_was_forked_along() -> None:
    """Those that are stopped too, which read no pipe's end: the kernel sees to it."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            held = [psutil.Process(int(pid)) for pid in holder.stdout.readline().split()]
            wait(lambda: len([*Path(f"/proc/{held[1].pid}/fd").iterdir()]) == 4)  # it has asked for that
            for process in held:
                process.suspend()
        finally:
            holder.kill()
    assert len(held) == 2
    wait(lambda: not any(map(lives, held)))


def test_orphans_of_a_group_are_reaped() -> None:
    assert take_orphans()
    leader = subprocess.Popen(["sh", "-c", "sleep 600 & echo; exec sleep 600"], stdout=-1, start_new_session=True)
    assert leader.stdout is not None
    assert leader.stdout.readline() == b"\n"
    (follower,) = psutil.Process(leader.pid).children()
    os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    leader.stdout.close()
    wait(lambda: not reap_group(leader.pid))
    assert not psutil.pid_exists(follower.pid)
