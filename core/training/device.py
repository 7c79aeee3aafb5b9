"""Where a trainer computes: on the one GPU that it was pinned to, or on the CPU.

Records, masks and sums live there; theta, the method and the noise stay on the CPU. A GPU that cannot be used, or has
no room for the records, whose number is public, is found out before any record is opened.
"""

import ctypes
import os
import resource
from math import prod
from pathlib import Path
from typing import Final

import torch

from core.models.kinds import NetworkModel
from core.models.network.layers import Layer, Shape
from core.planning.memory import working_bytes
from core.planning.planner import PlannedJob
from core.queries.sums.network.pass_sizes import pass_numbers
from core.training.order import NoGpu

PIN: Final = "CUDA_VISIBLE_DEVICES"
_FLOAT_BYTES: Final = 8
_BESIDE: Final = 5
"""Numbers a record has beside its features: target, norm, weight, mask, and one to spare."""
_WORK_BYTES: Final = 2**29
"""For blocks and sums, and what the libraries take."""

_SPARE_BYTES: Final = 150_000_000
"""Of `working_bytes`, that libraries may have taken already when a trainer looks at what is left."""
_NUMBERS_A_PARAMETER: Final = 8
"""In single precision: two iterates and an answer in double, what records meet, and their sum."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of `mallopt`."""
_LARGEST_KEPT_BYTES: Final = 2**25
"""The most that it takes."""
_KEPT_BYTES: Final = 2**28


def own_device() -> torch.device:
    """Return the device of this process: a GPU only where it was pinned to one."""
    return torch.device("cuda" if os.environ.get(PIN) else "cpu")


def prepare_processor(planned: PlannedJob) -> None:
    """Set up a process that computes a network, before its threads start and it opens a record; leave others alone."""
    model = planned.spec.model
    if isinstance(model, NetworkModel):
        rows = planned.facts.part_rows
        assert rows is not None, "sums of networks have parts"
        prepare_for_network(model.layers, planned.design.shape, rows, planned.facts.dimension)


def prepare_for_network(layers: tuple[Layer, ...], given: Shape, part_rows: int, dimension: int) -> None:
    """Do so for layers, by public figures.

    Args:
        layers: the network.
        given: the shape of one record.
        part_rows: rows of a part.
        dimension: p, the number of trained parameters.
    """
    _flush_denormals()
    if pass_numbers(layers, given, part_rows) > _NUMBERS_A_PARAMETER * dimension:
        _keep_freed_memory()


def _flush_denormals() -> None:
    """Take numbers below 2^-126 for zero, in all threads.

    Processors compute with them a hundred times slower, and whether a record's activations and slopes are so small is
    the record's own: time would tell. The loss of sums is within the lattice's charge for networks, whose sums over
    places in double precision meet no such number (`core.queries.sums.network.grams`). The charge for other sums in
    double precision does not cover flushing, so such a process makes none.
    """
    torch.set_flush_denormal(True)


def _keep_freed_memory() -> None:
    """Set the C library to keep freed memory for the next request, where it supports this.

    Each step makes and frees the same tens of megabytes. Given back and asked for again, they come page by page, zeroed
    by the system: a sixth of a transformer's step. Not where parameters are most of what a step holds: they stand at
    their own places (`core.methods.buffers`), and between these a kept heap would have holes.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        # glibc raises these thresholds as it runs unless they are set.
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def make_sure_of_memory(planned: PlannedJob) -> None:
    """Find out whether the records fit what is left of this process's limit; from public facts, before they are opened.

    Raises:
        MemoryError: they do not.
    """
    needed = working_bytes(planned) - _SPARE_BYTES
    # Each limit is counted by the kernel in a figure of its own.
    for what, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(what)
        taken = _taken_bytes(field)
        if most != resource.RLIM_INFINITY and taken is not None and most - taken < needed:
            raise MemoryError(f"{most - taken} bytes are left, {needed} are needed")


def _taken_bytes(field: str) -> int | None:
    """Return what this process takes, as the system counts for a limit; None where it does not say."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def make_sure_of_device(planned: PlannedJob) -> None:
    """Find out whether the job can be computed here; from public facts, before any record is opened.

    Raises:
        NoGpu: this process was pinned to a GPU, and it cannot be used or has too little free memory.
    """
    device = own_device()
    if device.type == "cpu":
        return
    needed = planned.facts.units * (prod(planned.design.shape) + _BESIDE) * _FLOAT_BYTES + _WORK_BYTES
    try:
        probe = torch.ones(2, dtype=torch.float64, device=device)
        works = float(probe.sum().cpu()) == len(probe)
        free, _ = torch.cuda.mem_get_info(device)
    except (AssertionError, RuntimeError) as error:  # torch without CUDA, no driver, no such GPU, no memory at all
        raise NoGpu(type(error).__name__) from None
    if not works or free < needed:
        raise NoGpu(f"{free} bytes are free, {needed} are needed")
