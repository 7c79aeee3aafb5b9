"""Room for jobs: a number on the CPU, and one on each GPU that this supervisor holds."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import structlog

from core.base.settings import ServiceSettings
from workers.gpus import Gpu, NoAnswer, find_gpus, hold

QUEUES: Final = frozenset({"cpu", "gpu"})


@dataclass(frozen=True)
class Slot:
    """Room for one job at a time.

    Attributes:
        number: tells it from others of its kind.
        gpu: the one that its job is pinned to; None for the CPU.
    """

    number: int
    gpu: Gpu | None = None

    @property
    def takes(self) -> tuple[str, ...]:
        """The devices, as jobs name them, that it serves."""
        return ("auto", "cpu") if self.gpu is None else ("auto", "cuda")


def read_queues(text: str) -> tuple[str, ...]:
    """Return the queues that a setting such as ``cpu,gpu`` names, sorted.

    Raises:
        SystemExit: it names none, or another one.
    """
    named = sorted({name.strip() for name in text.split(",") if name.strip()})
    if not named or not QUEUES.issuperset(named):
        raise SystemExit(f"FARTHING_QUEUES is {text!r}; it must be cpu, gpu, or cpu,gpu.")
    return tuple(named)


def make_slots(
    settings: ServiceSettings, locks: ExitStack, log: structlog.typing.FilteringBoundLogger
) -> tuple[Slot, ...]:
    """Return a supervisor's slots: `settings.workers` for the queue cpu, one a GPU for the queue gpu.

    Args:
        settings: queues, workers, and where GPUs are locked.
        locks: keeps the GPUs held.
        log: for the operator.

    Raises:
        SystemExit: there is nothing that it could serve with, or no folder for the locks.
    """
    queues = read_queues(settings.queues)
    slots = [Slot(number) for number in range(settings.workers)] if "cpu" in queues else []
    if "gpu" in queues:
        try:
            found = find_gpus()
        except NoAnswer as error:
            log.error("no-gpu", error=str(error))  # noqa: TRY400 - the reason is in the line
            found = []
        held = hold(found, locks, settings.gpu_locks)
        log.info("gpus", found=len(found), held=[gpu.uuid for gpu in held])
        slots += [Slot(number, gpu) for number, gpu in enumerate(held)]
    if not slots:
        raise SystemExit(
            f"Nothing to serve the queues {', '.join(queues)} with: nvidia-smi names no GPU that is free of other "
            "supervisors."
            if "gpu" in queues
            else "FARTHING_WORKERS is 0: nothing to serve the queue cpu with."
        )
    return tuple(slots)
