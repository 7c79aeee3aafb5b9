"""Limits of every process by the kernel: it dies with its parent, leaves no core file, and stays in bounds."""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_SECRETS_PREFIX: Final = "FARTHING_"
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def die_with_parent(parent: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Ask for `how` when the thread that created this process ends, and check that it has not ended already.

    Args:
        parent: process id of the parent, as given by the parent.
        how: the signal to get.

    Raises:
        SystemExit: the parent was gone before this process could ask.
        OSError: the kernel refused.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None, use_errno=True)
        if library.prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    # Checked after asking: a parent that died before the call sends no signal.
    if os.getppid() != parent:
        raise SystemExit(1)


def take_orphans() -> bool:
    """Become the parent of descendants whose own parent ends, of those to come; say whether the kernel does that."""
    if sys.platform != "linux":
        return False
    refused: int = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return not refused


def leave_no_core() -> None:
    """Let a crash write no memory image: it would hold records."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_memory(size_bytes: int, *, with_gpu: bool = False) -> None:
    """Bound the memory of this process.

    That is its address space; with a GPU, whose driver reserves hundreds of gigabytes of addresses, it is what the
    process may write to.
    """
    what = resource.RLIMIT_DATA if with_gpu else resource.RLIMIT_AS
    _, hard = resource.getrlimit(what)
    most = size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)
    resource.setrlimit(what, (most, most))


def pin(gpu: str | None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Let CUDA, which is not in use yet, see one GPU or none, and compute in the float64 that proofs speak of."""
    environment[VISIBLE] = gpu or ""
    environment["CUBLAS_EMULATE_DOUBLE_PRECISION"] = "0"


def clock_seconds() -> float:
    """Return seconds by a clock that also counts while the machine sleeps; only differences mean anything."""
    # A lease in the database goes on while a machine sleeps; a monotonic clock would stand still.
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def child_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return an environment for a trainer: no setting of ours, which may be secret, and threads set, not inherited.

    On a GPU, cuBLAS adds up in the same order every time only with a setting before its first product.
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_SECRETS_PREFIX)}
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return kept | dict.fromkeys(_THREAD_VARIABLES, str(threads)) | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@contextmanager
def held_back(how: signal.Signals) -> Iterator[None]:
    """Keep a signal from processes that are started in this block, until they ask for it by `let_in`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {how})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_in(how: signal.Signals) -> None:
    """Take a signal that was held back when this process started; at once, if it came meanwhile."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {how})


def kill_group(leader: int, how: signal.Signals) -> None:
    """Signal a process group whose leader we started and have not reaped yet."""
    try:
        os.killpg(leader, how)
    except ProcessLookupError:
        return


def reap_group(group: int) -> bool:
    """Take note of children of a process group that have ended; say whether others are left.

    Args:
        group: its leader has been reaped already.
    """
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
