"""Child processes for files that are not trusted: without secrets, under limits, and killed when their time is up.

A child reads one line from standard input and writes one small JSON answer. Its input and its output are encrypted on
the disk.
"""

import atexit
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn, Self

from core.base.errors import DiskFull, FieldError, Invalid, Refusal, TooLarge
from core.data.arrow import leave_pandas_out
from core.privacy.facts import Frozen

ROOT: Final = Path(__file__).resolve().parents[3]
_ANSWER_BYTES = 16 * 2**20
_FULL_SECONDS = 60
_NICE = 10
_SPARE_SECONDS = 600.0


class ChildRefusal(Frozen):
    """A refusal, on its way to the parent."""

    code: str
    detail: str
    fields: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, refusal: Refusal) -> Self:
        """Return a refusal as an answer has it."""
        fields = tuple((field.pointer, field.detail) for field in refusal.fields)
        return cls(code=refusal.code, detail=refusal.detail, fields=fields)


class Child:
    """A child process that has started, and waits for its request.

    Args:
        module: of the child; it ends with `answering`.
    """

    def __init__(self, module: str) -> None:
        # A file and no pipe: nobody reads before the child ends, and a full pipe would stop it.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - `ask` closes it
        self._process = subprocess.Popen(  # noqa: S603 - a module of ours
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=self._output,
            # Libraries quote cells in their messages, which must reach no log.
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=_environment(),
            # A group of its own, so that `killpg` also ends what the child started.
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ask(self, request: str, seconds: float) -> bytes:
        """Send a request of one line; return the answer, empty where the child crashed or took longer."""
        try:
            assert self._process.stdin is not None, "it is a pipe"
            with self._process.stdin as pipe:
                # the pipe stays open: its end tells the child that its parent has died
                pipe.write(request.encode() + b"\n")
                pipe.flush()
                code = self._process.wait(seconds)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            code = -signal.SIGKILL
        finally:
            self._end()
        with self._output as output:
            output.seek(0)
            return output.read(_ANSWER_BYTES) if code == 0 else b""

    def close(self) -> None:
        """End it without a request."""
        self._end()
        self._output.close()

    def _end(self) -> None:
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


class Spare:
    """Children of one module, of which one is started ahead: a request need not wait for its imports.

    The first request starts the first child; a spare one ends when nothing has come for ten minutes.

    Args:
        module: as `Child`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._child: Child | None = None
        atexit.register(self.close)

    def ask(self, request: str, seconds: float) -> bytes:
        """Send a request to a child of its own; as `Child.ask`."""
        with self._lock:
            child, self._child = self._child, Child(self._module)
        if child is not None and not child.is_alive:
            child.close()
            child = None
        child = child or Child(self._module)
        return child.ask(request, seconds)

    def close(self) -> None:
        """End the spare child."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()


def refuse(problem: ChildRefusal | None) -> NoReturn:
    """Raise the refusal that a child answered with.

    Args:
        problem: None: the child crashed, or passed a limit.
    """
    if problem is None:
        raise Invalid(
            "The file could not be decoded within its limits.",
            FieldError("/file", "send fewer rows, or smaller row groups"),
        )
    if problem.code == DiskFull.code:
        raise DiskFull(problem.detail, retry_after_seconds=_FULL_SECONDS)
    kind = TooLarge if problem.code == TooLarge.code else Invalid
    raise kind(problem.detail, *(FieldError(*field) for field in problem.fields))


def _environment() -> dict[str, str]:
    """Return the child's environment: nothing of the service's but what finds the libraries."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    return kept | {
        "LANG": "C.UTF-8",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve address space that the limit would count
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
    }


def answering(answer: Callable[[bytes], str]) -> NoReturn:
    """Read one request from standard input, answer on standard output, and end."""
    os.umask(0o077)
    leave_pandas_out()
    has_come, _, _ = select.select([sys.stdin], [], [], _SPARE_SECONDS)
    line = sys.stdin.buffer.readline() if has_come else b""
    # Nothing came, or the parent has died.
    if not line:
        os._exit(0)
    stand_back()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    sys.stdout.write(answer(line))
    sys.stdout.flush()
    # A thread of Arrow's that still reads what was refused would abort the normal exit, now and then.
    os._exit(0)


def _exit_with_parent() -> None:
    while os.read(0, 1):  # not the buffered reader: its lock, held by a daemon thread, aborts a normal exit
        pass
    os._exit(1)


def stand_back() -> None:
    """Let every other process go first, and be the first to end where the machine has no memory left."""
    os.nice(_NICE)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def limit(*, memory_bytes: int, seconds: float, file_bytes: int) -> None:
    """Bound what this process may use from here on.

    Args:
        memory_bytes: of its address space.
        seconds: of two threads.
        file_bytes: of a file that it writes.
    """
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, int(2 * seconds) + 1),
        (resource.RLIMIT_FSIZE, file_bytes),
        # A core dump would hold cells and keys in the clear.
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        # A process may not raise its hard limit.
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
