"""One API process and one browser for all of these tests."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.api import Service, running
from tests.support.browser import browser


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found
