"""Faults that a cluster survives while clients submit, and their cost: kills, flushes, a restart, repeated requests.

`python -m benchmarks.reliability [--jobs 100] [--kill-seconds 20]`. PostgreSQL, Redis, API and Celery workers, all real
and on this machine; see `docs/explanation/reliability.md`. Ends with status 1 where a promise was broken.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.support.chaos import Found, Plan, run_chaos

GOAL = 0.9
"""Of the jobs, that must succeed."""
PROMISES = ("unended", "unpaid", "double_runs", "overspent", "unbalanced")


def table(found: Found) -> list[tuple[str, str]]:
    """Return the figures in words, those that must be 0 last."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(found.states.items()))
    return [
        ("jobs", f"{found.states.total()}: {states}"),
        ("why jobs failed", ", ".join(f"{count} {code}" for code, count in sorted(found.codes.items())) or "none did"),
        ("seconds, from the first submission to the last end", f"{found.seconds:.0f}"),
        ("workers killed, all their processes with them", str(found.kills)),
        ("attempts lost with them", str(found.attempts_lost)),
        ("chunks paid a second time", str(found.repeats_paid)),
        ("times that Redis forgot everything", str(found.flushes)),
        ("restarts of PostgreSQL", str(found.restarts)),
        ("notifications delivered beyond the first of a job", str(found.duplicate_notifications)),
        ("requests delivered twice", str(found.duplicate_requests)),
        ("submissions refused for the budget", str(found.refused)),
        ("times that all balances were looked at meanwhile", str(found.looks)),
        ("jobs that did not end (0)", str(found.unended)),
        ("jobs of which more was read than paid (0)", str(found.unpaid)),
        ("jobs that ran twice at a time (0)", str(found.double_runs)),
        ("accounts beyond their cap, or below zero (0)", str(found.overspent)),
        ("ledgers that do not recompute to the same sums (0)", str(found.unbalanced)),
    ]


def main() -> int:
    """Run, print, and judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--kill-seconds", type=float, default=20.0)
    given = parser.parse_args()
    load, cores = os.getloadavg()[0], os.cpu_count()
    with tempfile.TemporaryDirectory(prefix="farthing-reliability-") as folder:
        plan = replace(Plan(jobs=given.jobs), kill_seconds=given.kill_seconds)
        found = run_chaos(Path(folder) / "home", plan)
    print(f"{cores} cores; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    for name, figure in table(found):
        print(f"{name:<52} {figure}")
    broken = [name for name in PROMISES if getattr(found, name)]
    print(f"succeeded {found.succeeded:.0%}, goal {GOAL:.0%}; promises broken: {', '.join(broken) or 'none'}")
    return int(bool(broken) or found.succeeded < GOAL)


if __name__ == "__main__":
    sys.exit(main())
