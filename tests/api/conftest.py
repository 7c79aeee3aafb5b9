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
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that takes little: a megabyte, two waiting jobs of anybody's, and a request a second."""
    limits = {"MAX_UPLOAD_BYTES": "1000000", "MAX_QUEUED_PER_PRINCIPAL": "2", "REQUESTS_PER_MINUTE": "60"}
    limits |= {"MAX_PREDICT_BYTES": "100000", "MAX_PREDICT_ROWS": "1000"}
    limits = {f"FARTHING_{name}": value for name, value in limits.items()}
    with running(tmp_path_factory.mktemp("narrow"), **limits) as found:
        yield found


@pytest.fixture(scope="session")
def admin(service: Service) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="session")
def dataset(admin: httpx.Client) -> str:
    return str(upload(admin)["id"])
