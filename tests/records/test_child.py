"""Children that read files: one is started ahead, each reads one file, and none has a secret of the service's."""

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from core.base.errors import Invalid
from core.records.answering import read_answer
from core.records.decoding.child import Spare, refuse

MODULE = "core.records.predicting"
SECONDS = 60.0


@pytest.fixture
def spare() -> Iterator[Spare]:
    made = Spare(MODULE)
    yield made
    made.close()


def children() -> list[psutil.Process]:
    """Return the children of this process that run the module, alive."""
    found = psutil.Process().children()
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE and MODULE in one.cmdline()]


def test_each_file_has_a_child_of_its_own_and_one_is_ahead(spare: Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_MASTER_KEY", "a secret of the service")
    assert not children(), "none before the first request"
    assert spare.ask("no request", SECONDS) == b"", "a child that fails says nothing"
    (first,) = children()
    assert "FARTHING_MASTER_KEY" not in first.environ()
    spare.ask("no request", SECONDS)
    (second,) = children()
    assert second.pid != first.pid
    spare.close()
    assert not children()


def test_a_spare_child_that_died_is_replaced(spare: Spare) -> None:
    spare.ask("no request", SECONDS)
    (waiting,) = children()
    os.kill(waiting.pid, signal.SIGKILL)
    waiting.wait(SECONDS)
    assert spare.ask("no request", SECONDS) == b""
    assert len(children()) == 1


def test_a_child_that_takes_too_long_is_killed(spare: Spare) -> None:
    spare.ask("no request", SECONDS)
    (waiting,) = children()
    os.kill(waiting.pid, signal.SIGSTOP)
    began = time.monotonic()
    assert spare.ask("no request", 0.2) == b""
    assert time.monotonic() - began < SECONDS
    assert waiting.pid not in [one.pid for one in children()]
    assert read_answer(b"") is None
    with pytest.raises(Invalid, match="within its limits"):
        refuse(None)


def test_a_child_ends_with_its_parent(spare: Spare) -> None:
    """Its standard input ends then."""
    spare.ask("no request", SECONDS)
    child = spare._child
    assert child is not None
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert child._process.wait(SECONDS) == 0
