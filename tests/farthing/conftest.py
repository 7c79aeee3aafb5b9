"""The embedded service for tests of the SDK and the command line: real API, real trainer, a real port."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from farthing import Client
from farthing.schemas.jobs import JobView
from tests.support.embedded import KEY, LOGISTIC, Embedded


@dataclass(frozen=True)
class Released:
    """A dataset of the administrator's, and a job on it that has ended."""

    dataset: str
    scope: str
    job: JobView
    model: str


@pytest.fixture(scope="session")
def client(service: Embedded) -> Iterator[Client]:
    with Client(service.url, KEY) as opened:
        yield opened


@pytest.fixture(scope="session")
def released(service: Embedded, client: Client) -> Released:
    dataset = service.upload(budget={"epsilon": "20", "delta": "1e-6"})  # every test of the session may add jobs
    job = client.wait(client.submit(body(dataset)).id)
    scope = client.dataset(dataset).scope
    assert job.released is not None
    assert scope is not None
    return Released(dataset, scope, job, job.released)


def body(dataset: str, mu: str = "1") -> dict[str, object]:
    """Return a small job."""
    return {
        "dataset": dataset,
        "model": LOGISTIC,
        "optimizer": {"kind": "noisy_newton"},
        "inference": {"accept_unchecked": True},
        "privacy": {"mu": mu},
        "labels": {"study": "sdk"},
    }


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A small file for the columns of the embedded service's tests; other bytes each time."""
    from tests.support.embedded import SEEDS, toy_csv  # noqa: PLC0415 - only here

    path = tmp_path / "toy.csv"
    path.write_bytes(toy_csv(300, seed=next(SEEDS)))
    return path


def shown(content: RenderableType, width: int = 160) -> list[str]:
    """Return what the command line prints, by line."""
    console = Console(width=width)
    with console.capture() as captured:
        console.print(content)
    return captured.get().splitlines()
