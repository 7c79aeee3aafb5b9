"""A cluster whose servers forget, restart and die while clients submit: every job ends, and the ledger adds up.

Payments are compared with what the trainers wrote down before they read it, not with what the service says it did.
"""

from pathlib import Path

import pytest

from tests.support.chaos import Found, Plan, run_chaos


def broken(found: Found) -> dict[str, int]:
    """Return which promises were broken, and how often."""
    names = ("unended", "unpaid", "double_runs", "overspent", "unbalanced")
    return {name: count for name in names if (count := getattr(found, name))}


@pytest.mark.slow
def test_a_few_jobs_survive_a_flush_a_restart_and_a_kill(tmp_path: Path) -> None:
    plan = Plan(jobs=8, kill_seconds=None, kills=(0.2,), flushes=(0.1,), restarts=(0.4,))
    found = run_chaos(tmp_path / "home", plan)
    assert broken(found) == {}, found
    assert (found.kills, found.flushes, found.restarts) == (1, 1, 1)
    assert found.states["succeeded"] >= 7, found
    assert found.looks > 0
    assert found.duplicate_notifications > 0


@pytest.mark.slow
@pytest.mark.timeout(4000)
@pytest.mark.parametrize("jobs", [100, 500])
def test_many_jobs_survive_flushes_a_restart_and_a_kill_every_20_seconds(tmp_path: Path, jobs: int) -> None:
    found = run_chaos(tmp_path / "home", Plan(jobs=jobs))
    assert broken(found) == {}, found
    assert (found.flushes, found.restarts) == (2, 1)
    assert found.kills >= found.seconds / 60
    assert found.succeeded >= 0.9, found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_paying_after_reading_would_be_seen(tmp_path: Path) -> None:
    """The planted bug: a chunk is paid when the next one is."""
    plan = Plan(jobs=4, kill_seconds=None, flushes=(), restarts=(), observed={"NAIVE": "1"})
    assert run_chaos(tmp_path / "home", plan).unpaid > 0
