"""The time of a trivial job beside its arithmetic: `python -m benchmarks.overhead`.

A toy dataset of 2,000 rows, one noisy Newton job after another through the embedded service. Time runs from POST to the
first answer that says `succeeded`, on a visible grid of nothing (the default of one second rounds up). After a pause
and back to back: each job's process is forked from one that has loaded the libraries.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from core.db.tables import Attempt, Job
from core.jobs import jobs
from tests.support.embedded import Embedded, embedded

RUNS = 5
PAUSE_SECONDS = 5.0
LIMIT_SECONDS = 4.0


def measure(service: Embedded, dataset: str) -> dict[str, float]:
    """Return the seconds of one job's stages."""
    began = time.time()
    job_id = service.submit(dataset)
    accepted = time.time()
    while service.get(f"/v1/jobs/{job_id}")["state"] != "succeeded":
        time.sleep(0.02)
    ended = time.time()
    database = service.database()
    with database.read() as session:
        job = session.get_one(Job, job_id)
        attempt = session.get_one(Attempt, (job_id, 1))
        assert jobs.events(session, job_id)[-1].kind == "succeeded"
        claimed, opened, finished = attempt.started_at, attempt.opened_at, job.finished_at
    database.dispose()
    assert opened is not None
    assert finished is not None
    return {
        "submit": accepted - began,
        "until claimed": claimed - accepted,
        "fresh process": opened - claimed,
        "open, train, publish": finished - opened,
        "until seen": ended - finished,
        "all": ended - began,
    }


def describe(seconds: list[float]) -> str:
    """Return median and worst."""
    return f"{statistics.median(seconds):8.2f} ({max(seconds):5.2f})"


def main() -> None:
    """Print the break-down; the exit status says whether the limit holds."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        with embedded(Path(folder) / "home") as service:
            ready = time.time() - began
            dataset = service.upload()
            single = []
            for _ in range(RUNS):
                time.sleep(PAUSE_SECONDS)
                single.append(measure(service, dataset))
            queued = [measure(service, dataset) for _ in range(RUNS)]
    print(f"service ready after its first start: {ready:.2f} s")
    print(f"{'median (worst) s':28} {'after a pause':>16} {'back to back':>16}")
    for stage in single[0]:
        print(f"{stage:28} {describe([run[stage] for run in single])} {describe([run[stage] for run in queued])}")
    median = statistics.median(run["all"] for run in single)
    print(f"limit {LIMIT_SECONDS} s: {'held' if median < LIMIT_SECONDS else 'PASSED'}")
    sys.exit(median >= LIMIT_SECONDS)


if __name__ == "__main__":
    main()
