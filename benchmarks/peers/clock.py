"""One method's time and memory in this process: one processor, process CPU time, the peak counted from the first step.

Needs nothing but Python, so that it runs in every peer's environment.
"""

import ctypes
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

WARM, WINDOWS, SECONDS = 3, 6, 4.0


def pin() -> None:
    """Keep this process and its threads on one processor, before any library starts its own."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def _resident(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(step: Callable[[], object], steps: int) -> None:
    """Print, as JSON, the least and median milliseconds a step and the extra peak bytes of the very first steps.

    There are six windows of so many steps, and as many more as begin within four seconds. A host that is shared has
    quiet moments, and a fast method shall not find fewer of them than a slow one does.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before is not counted for anybody, kept or not
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is counted anew from here
    idle = _resident("VmRSS:")
    for _ in range(WARM):
        step()
    seconds, started = list[float](), time.process_time()
    while len(seconds) < WINDOWS or time.process_time() - started < SECONDS:
        began = time.process_time()
        for _ in range(steps):
            step()
        seconds.append((time.process_time() - began) / steps)
    peak = _resident("VmHWM:") - idle
    print(json.dumps({"least": 1e3 * min(seconds), "median": 1e3 * median(seconds), "peak": peak}))
