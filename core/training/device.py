"""Where a trainer computes: on the one GPU that it was pinned to, or on the CPU.

Records, masks and sums live there; theta, the method and the noise stay on the CPU. A GPU that cannot be used, or has
no room for the records, whose number is public, is found out before any record is opened.
"""

import os
from math import prod
from typing import Final

import torch

from core.catalogue.models import NetworkModel
from core.catalogue.planning import PlannedJob
from core.training.order import NoGpu

PIN: Final = "CUDA_VISIBLE_DEVICES"
_FLOAT_BYTES: Final = 8
_BESIDE: Final = 5
"""Numbers a record has beside its features: target, norm, weight, mask, and one to spare."""
_WORK_BYTES: Final = 2**29
"""For blocks and sums, and what the libraries take."""


def own_device() -> torch.device:
    """Return the device of this process: a GPU only where it was pinned to one."""
    return torch.device("cuda" if os.environ.get(PIN) else "cpu")


def flush_denormals(planned: PlannedJob) -> None:
    """Have a network's process take numbers below 2^-126 for zero, once for all its threads and before they start.

    Processors compute with them a hundred times slower, and whether a record's activations and slopes are so small is
    the record's own: time would tell. What is lost of sums is within the lattice's charge for networks, whose sums over
    places in double precision meet no such number (`core.problems.neural.grams`); other sums in double precision, whose
    charge knows of no flushing, are none of such a process's.
    """
    if isinstance(planned.spec.model, NetworkModel):
        torch.set_flush_denormal(True)


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
