"""One API process for all of these tests, and a browser for each module."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.api import Service, running
from tests.support.browser import browser


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Playwright keeps an event loop running in this thread until the browser is closed: other modules want none."""
    with browser() as found:
        yield found
