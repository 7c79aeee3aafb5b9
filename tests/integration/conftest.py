"""Every test here runs against each target, over HTTP alone."""

from collections.abc import Iterator

import pytest

from farthing import Client
from tests.support.targets import TARGETS, Target

SLOW = {"cluster"}
"""The stack, on which these tests run too before a change lands, is such a cluster."""


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in TARGETS]
)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with TARGETS[request.param](tmp_path_factory.mktemp("home") / "service") as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Target) -> Iterator[Client]:
    with service.client() as client:
        yield client
