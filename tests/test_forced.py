"""Draws of test processes repeat from run to run, but for tests that judge fresh ones."""

import os
from collections.abc import Callable

import pytest

from core.mechanisms.generator import SystemGenerator
from tests.support.forced import keys_of

WORDS = 8


def drawn() -> bytes:
    return SystemGenerator().bits(WORDS).tobytes()


def in_a_fork(draw: Callable[[], bytes]) -> bytes:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, draw())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return found


@pytest.fixture(scope="module")
def fixtures_own() -> bytes:
    return drawn()


def test_a_name_repeats_its_draws_and_no_other_ones() -> None:
    with keys_of("one"):
        first = drawn(), drawn()
        with keys_of("other"):
            other = drawn()
        third = drawn()
    with keys_of("one"):
        again = drawn(), drawn(), drawn()
    assert (*first, third) == again
    assert len({*again, other}) == 4


def test_draws_are_those_of_the_test_and_its_fixtures_those_of_the_fixture(
    request: pytest.FixtureRequest, fixtures_own: bytes
) -> None:
    with keys_of(request.node.nodeid):
        expected = drawn()
    assert drawn() == expected
    with keys_of("tests/test_forced.py::fixtures_own[0]"):
        assert drawn() == fixtures_own


@pytest.mark.statistical
def test_a_statistical_test_draws_what_no_name_gives(request: pytest.FixtureRequest) -> None:
    """Equal by chance: 2^-512."""
    with keys_of(request.node.nodeid):
        forced = drawn()
    assert drawn() != forced


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_children_draw_the_systems_noise() -> None:
    with keys_of("one"):
        assert in_a_fork(drawn) != in_a_fork(drawn)
