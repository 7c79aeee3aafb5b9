"""The one reader for all waiting requests: the times at which it looks, and the number of its statements."""

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from api import watch
from core.service import jobs

PAGES = 50


class Looks:
    """Stands for the database: each look is noted with the jobs that it is about."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, _: object, wanted: Mapping[str, int | None]) -> dict[str, Any]:
        self.seen.append(len(wanted))
        return {job: SimpleNamespace(head=("queued", 0), lines=[]) for job in wanted}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(jobs, "look", found)
    return found


def _looks_in(looks: Looks, seconds: float, *, clients: int) -> int:
    async def main() -> None:
        watcher = watch.Watcher(None)  # type: ignore[arg-type] # nothing is read of it
        async with watcher.running(), anyio.create_task_group() as tasks:
            for place in range(PAGES):
                tasks.start_soon(_stay, watcher, f"job_{place}", seconds, True)
            for place in range(clients):
                tasks.start_soon(_stay, watcher, f"job_{place}", seconds, False)
            await anyio.sleep(0.5)
            looks.seen.clear()

    started = time.monotonic()
    anyio.run(main)
    assert time.monotonic() - started >= seconds
    return len(looks.seen)


async def _stay(watcher: watch.Watcher, job: str, seconds: float, page: bool) -> None:
    async with watcher.following(job, page=page):
        await anyio.sleep(seconds)


def test_fifty_pages_cost_one_look_a_second(looks: Looks) -> None:
    found = _looks_in(looks, 5.5, clients=0)
    assert 1 <= found <= 6, looks.seen
    assert max(looks.seen) == PAGES


def test_a_client_of_the_api_is_served_sooner(looks: Looks) -> None:
    assert _looks_in(looks, 5.5, clients=1) > 10
