"""Times of the console's pages with 1,000 jobs and 10,000 entries, and the weight of the first one.

`python -m benchmarks.console [--jobs 1000]`. One embedded service with one dataset and one model; a page's time is a
client's on the same machine, so no less than the server's.
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.history import fill
from core.db.tables import Job
from farthing import Client
from tests.support.browser import browser, look
from tests.support.embedded import COLUMNS, KEY, LOGISTIC, Embedded, embedded, toy_csv
from tests.support.windows import window_of

ROUNDS = 25
GOAL_SECONDS = 0.050
GOAL_BYTES = 150_000
_WEIGHT = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
.reduce((sum, one) => sum + one.encodedBodySize, 0)"""


def first_page(url: str) -> int:
    """Return the bytes that a browser gets for the sign-in page and everything that it loads."""
    with browser() as chromium, look(chromium, url) as seen:
        seen.go("/sign-in")
        seen.page.wait_for_load_state("networkidle")
        return int(seen.page.evaluate(_WEIGHT))


def took(window: httpx.Client, path: str) -> float:
    """Return the median time of a page, warm."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        window.get(path).raise_for_status()
        times.append(time.perf_counter() - began)
    return median(times)


def paths(service: Embedded, key: str, count: int) -> list[str]:
    """Train one model, repeat its job as often as rows, ended and paid; return the pages to look at."""
    declared = {"name": "toy", "columns": COLUMNS, "budget": {"epsilon": "8", "delta": "1e-6"}}
    with Client(service.url, key) as client:
        dataset = client.upload(io.BytesIO(toy_csv(seed=1)), declared).id
        asked: dict[str, Any] = {"dataset": dataset, "model": LOGISTIC, "privacy": {"mu": "0.2"}}
        done = client.wait(client.submit(asked).id)
    database = service.database()
    with database.read() as session:
        spec = dict(session.get_one(Job, done.id).spec)
    print(f"{fill(database, [dataset], count, spec)} entries, {count} jobs", flush=True)
    database.dispose()
    base, model = f"/datasets/{dataset}", f"/models/{done.released}"
    of_dataset = [base + tab for tab in ("", "/budget", "/access", "/validation", "/mock", "/ledger", "/activity")]
    of_model = [model + tab for tab in ("", "/questions", "/predictions", "/compare", "/certificate")]
    others = [
        "/",
        "/datasets",
        "/datasets/new",
        "/jobs",
        f"/jobs?dataset={dataset}",
        "/jobs/new",
        "/models",
        "/approvals",
    ]
    return [*others, *of_dataset, f"/jobs/{done.id}", *of_model, f"{base}/report", "/methods", "/audit", "/you"]


def main() -> int:
    """Print a line a page; return how many goals are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, embedded(Path(home)) as service:
        with Client(service.url, KEY) as admin:
            made = admin.create_key("office", "owner")
        with Client(service.url, made.key or "") as owner:
            key = owner.rotate_key(made.id).key or ""
        shown = paths(service, key, options.jobs)
        window = window_of(service.url, key)
        times = {path: took(window, path) for path in shown}
        window.close()
        bytes_ = first_page(service.url)
    for path, seconds in sorted(times.items(), key=lambda one: -one[1]):
        print(f"{1e3 * seconds:7.1f} ms  {path}")
    print(f"{bytes_ / 1e3:.0f} kB for the first page with font and scripts")
    missed = [path for path, seconds in times.items() if seconds > GOAL_SECONDS]
    return len(missed) + (bytes_ > GOAL_BYTES)


if __name__ == "__main__":
    sys.exit(main())
