"""The memory that a trainer needs, from public facts: the numbers of records, features and processes."""

import os
from math import ceil
from typing import Final

from core.base.errors import FieldError, Invalid
from core.base.settings import ServiceSettings
from core.models.kinds import NetworkModel
from core.planning.planner import PlannedJob
from core.queries.sampling import PoissonSampling, StreamSampling

LIBRARIES_BYTES: Final = 1_100_000_000
"""Address space of a trainer with hardly any records: measured between 1,000 and 1,100 MB, with torch for CPUs.

With CUDA it is larger. A trainer looks at what it has left itself before it opens records.
"""
_WORK_BYTES: Final = 250_000_000
_RECORDS_SHARE: Final = 1.5
"""Of records, with blocks that sums make of them: at 52 numbers of 8 bytes a record, 500,000 records needed 1,500 to
1,700 MB in all, and 1,000,000 needed 1,800 to 1,900 MB."""
_SAMPLED_SHARE: Final = 2.25
"""The same of clipped gradients on Poisson samples: 1,000,000 such records needed 2,100 to 2,200 MB in all."""
POINTER: Final = "/resources/memory_bytes"


def records_bytes(planned: PlannedJob) -> int:
    """Return what encoded records take in one process; of networks and streams each process holds all of them."""
    sampling = planned.spec.optimizer.sampling(planned.facts)
    whole = isinstance(planned.spec.model, NetworkModel) or isinstance(sampling, StreamSampling)
    rows = planned.facts.units if whole else ceil(planned.facts.units / planned.spec.resources.processes)
    return rows * planned.design.record_bytes


def working_bytes(planned: PlannedJob) -> int:
    """Return what one process takes for records and for work on them, beside its libraries."""
    sampled = isinstance(planned.spec.optimizer.sampling(planned.facts), PoissonSampling)
    return _WORK_BYTES + ceil((_SAMPLED_SHARE if sampled else _RECORDS_SHARE) * records_bytes(planned))


def needed_bytes(planned: PlannedJob) -> int:
    """Return the least limit of memory with which a trainer is started."""
    return LIBRARIES_BYTES + working_bytes(planned)


def most_bytes(settings: ServiceSettings) -> int:
    """Return the memory that a trainer gets: as the settings say, of a service on one machine no more than that has."""
    # A cluster's trainers run on other machines than this one.
    if settings.cluster:
        return settings.max_memory_bytes
    return min(settings.max_memory_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def refuse_small_memory(planned: PlannedJob, settings: ServiceSettings) -> None:
    """Refuse a job whose records do not fit the memory that it asks for, or that a trainer gets here at most.

    Args:
        planned: the job.
        settings: of the service.

    Raises:
        Invalid: with the figure that it needs.
    """
    asked, needed = planned.spec.resources.memory_bytes, needed_bytes(planned)
    most = most_bytes(settings)
    if needed > most:
        raise Invalid(
            f"A process of this job needs {needed:,} bytes of memory, and gets {most:,} here at most.",
            FieldError(POINTER, f"{needed:,} are needed: take fewer columns, or more processes (/resources/processes)"),
        )
    if asked is not None and asked < needed:
        raise Invalid(
            f"A process of this job needs {needed:,} bytes of memory: its records take {records_bytes(planned):,}.",
            FieldError(POINTER, f"give at least {needed}, or leave it out"),
        )
