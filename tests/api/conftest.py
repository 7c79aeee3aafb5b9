"""One API process for each module of tests."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.api import Service, running, upload


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(service: Service) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def dataset(admin: httpx.Client) -> str:
    return str(upload(admin)["id"])
