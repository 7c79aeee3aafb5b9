"""One API process for all of these tests, and its first dataset."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.api import Service, running, upload


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="session")
def admin(service: Service) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="session")
def dataset(admin: httpx.Client) -> str:
    return str(upload(admin)["id"])
