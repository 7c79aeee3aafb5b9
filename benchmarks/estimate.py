"""Time of an estimate over HTTP on a real server: `python -m benchmarks.estimate`. Target: median under 20 ms."""

import tempfile
import time
from pathlib import Path
from statistics import quantiles

from tests.support.api import job, running, upload

REQUESTS = 300
TARGET_MILLISECONDS = 20.0


def main() -> None:
    """Ask for the same estimate again and again, and print the quantiles."""
    with tempfile.TemporaryDirectory() as home, running(Path(home)) as service:
        client = service.client()
        body = job(upload(client)["id"])
        taken: list[float] = []
        for _ in range(REQUESTS):
            started = time.perf_counter()
            client.post("/v1/estimates", json=body).raise_for_status()
            taken.append(1000 * (time.perf_counter() - started))
    cuts = quantiles(taken, n=100)
    print(f"{'estimates':<12}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}{'target p50':>12}{'ratio':>8}")
    ratio = cuts[49] / TARGET_MILLISECONDS
    print(f"{REQUESTS:<12}{cuts[49]:>10.2f}{cuts[94]:>10.2f}{cuts[98]:>10.2f}{TARGET_MILLISECONDS:>12.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
