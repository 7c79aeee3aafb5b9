"""The GPUs of this machine, as `nvidia-smi` tells: a supervisor never loads CUDA, which would hold memory on each.

One GPU serves one supervisor, which holds a lock on it for as long as it lives, and one job at a time.
"""

import csv
import fcntl
import io
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.process import VISIBLE

_ASK: Final = ("nvidia-smi", "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits")
_ASK_SECONDS: Final = 5.0
_MEBIBYTE: Final = 2**20


class NoAnswer(Exception):
    """`nvidia-smi` is missing, fails, or does not answer in time."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, by the name that stays with it over restarts."""

    index: str
    uuid: str


def find_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Return the GPUs of this machine, those that CUDA_VISIBLE_DEVICES names where it is set.

    Raises:
        NoAnswer: `nvidia-smi` does not say.
    """
    found = list(_ask())
    if VISIBLE not in environment:
        return found
    named = [name.strip() for name in environment[VISIBLE].split(",") if name.strip()]
    # CUDA names GPUs by index or by the beginning of a UUID.
    return [gpu for gpu in found if any(name == gpu.index or gpu.uuid.startswith(name) for name in named)]


def free_bytes(gpu: Gpu) -> int | None:
    """Return the memory that is free on a GPU, None where the driver does not count it.

    Raises:
        NoAnswer: `nvidia-smi` does not say.
    """
    free = _ask()
    if gpu not in free:
        raise NoAnswer(f"{gpu.uuid} is gone")
    return free[gpu]


def hold(gpus: list[Gpu], locks: ExitStack, folder: Path | None) -> list[Gpu]:
    """Return the GPUs that no other supervisor of this machine holds, and hold them until `locks` is closed.

    Args:
        gpus: wanted.
        locks: keeps the locks; the kernel lets go of them when the process ends, however it ends.
        folder: where the locks are; every supervisor of the machine must see the same. None: that of temporary files.

    Raises:
        SystemExit: there is no such folder; without it two supervisors would take one GPU.
    """
    place = folder or Path(tempfile.gettempdir())
    if not place.is_dir():
        raise SystemExit(f"FARTHING_GPU_LOCKS is {place}: there is no such folder.")
    held = []
    for gpu in gpus:
        path = place / f"farthing-{gpu.uuid}.lock"
        try:
            # "a" makes the file where it is missing, and empties none that another holds.
            file = locks.enter_context(path.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or another user's
            continue
        held.append(gpu)
    return held


def _ask() -> dict[Gpu, int | None]:
    """Return each GPU's free memory."""
    try:
        listing = subprocess.run(_ASK, capture_output=True, check=True, text=True, timeout=_ASK_SECONDS).stdout  # noqa: S603 - a fixed command
    except (OSError, subprocess.SubprocessError) as error:
        raise NoAnswer(type(error).__name__) from error
    lines = [[cell.strip() for cell in line] for line in csv.reader(io.StringIO(listing)) if line]
    return {Gpu(index, uuid): int(free) * _MEBIBYTE if free.isdigit() else None for index, uuid, free in lines}
