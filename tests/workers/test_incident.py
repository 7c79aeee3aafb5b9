"""A supervisor's report of a trainer's failure: class and places, never text, and nothing of another form."""

import json
import os
import time
from pathlib import Path

import pytest

from core.base.errors import Diverged, PeerLost
from core.training.attempt import in_phase
from core.training.order import Drained, Failed, Phase
from tests.support.embedded import START_SECONDS, embedded
from workers.incident import Incident, hear, tell
from workers.outcome import Outcome
from workers.trainer import fail

SECRET = "row 17 holds 42.7"


def fails_in_a_phase() -> None:
    with in_phase(Phase.TRAINING):
        raise ValueError(SECRET)


def reset() -> None:
    raise ConnectionResetError(SECRET)


def cannot_meet() -> None:
    try:
        reset()
    except ConnectionResetError as error:
        raise PeerLost from error


def heard_of(ending: BaseException) -> tuple[Outcome, str, Incident | None]:
    """Return how a trainer ends with an exception, what it writes, and what its supervisor makes of that."""
    raw, told = os.pipe()
    outcome = fail(ending, told)
    os.close(told)
    content = os.read(raw, 100_000)
    os.close(raw)
    pipe, again = os.pipe()
    os.write(again, content)
    os.close(again)
    return outcome, content.decode(), hear(pipe)


@pytest.mark.parametrize(
    ("act", "outcome", "error"),
    [
        (fails_in_a_phase, Outcome.FAILED_TRAINING, "ValueError"),
        (cannot_meet, Outcome.PEER_LOST, "ConnectionResetError"),
    ],
)
def test_the_class_and_the_places_of_what_was_wrong_are_told(act: object, outcome: Outcome, error: str) -> None:
    assert callable(act)
    with pytest.raises((Failed, PeerLost)) as caught:
        act()
    ended, written, heard = heard_of(caught.value)
    assert ended is outcome
    assert heard is not None
    assert heard.error == error
    assert heard.at[-1].startswith(f"{__name__}:")
    assert "42.7" not in written.replace(heard.at[-1], "")
    assert "row" not in written


@pytest.mark.parametrize("kind", [Drained, Diverged])
def test_who_ends_as_one_may_tells_nothing(kind: type[Exception]) -> None:
    _, written, heard = heard_of(kind("at 42.7"))
    assert (written, heard) == ("", None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        SECRET.encode(),
        b'{"error": "ValueError: row 17 holds 42.7", "at": []}',
        b'{"error": "ValueError", "at": ["core.oracle:1", "row 17 holds 42.7"]}',
        b'{"error": "ValueError", "at": [], "text": "row 17 holds 42.7"}',
        b'{"error": "ValueError", "at": [' + b",".join([b'"core.oracle:1"'] * 100) + b"]}",
        b"x" * 60_000,
    ],
    ids=["nothing", "text", "text as a class", "text as a place", "more", "too long", "too much"],
)
def test_nothing_else_is_heard(content: bytes) -> None:
    pipe, told = os.pipe()
    os.write(told, content)
    os.close(told)
    assert hear(pipe) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(pipe)


def test_of_several_processes_the_first_to_fail_is_heard() -> None:
    pipe, told = os.pipe()
    tell(ValueError(SECRET), told, rank=1)
    tell(RuntimeError("the connection was closed"), told)
    os.close(told)
    heard = hear(pipe)
    assert heard is not None
    assert (heard.error, heard.rank) == ("ValueError", 1)


@pytest.mark.parametrize(
    ("status", "rank", "explains"),
    [
        (Outcome.FAILED_TRAINING, 1, True),
        (Outcome.OUT_OF_MEMORY, 1, True),
        (Outcome.DRAINED, 1, False),
        (-9, 1, False),
        (Outcome.DRAINED, 0, True),
        (Outcome.PEER_LOST, 0, True),
    ],
)
def test_a_follower_that_fails_because_its_leader_is_gone_explains_nothing(
    status: int, rank: int, explains: bool
) -> None:
    assert Incident(error="RuntimeError", at=(), rank=rank).explains(status) is explains


def test_a_pipe_that_somebody_holds_is_not_waited_for() -> None:
    pipe, told = os.pipe()
    assert hear(pipe) is None
    os.close(told)


@pytest.mark.parametrize("closed", [True, False], ids=["nobody reads", "a name that no code has"])
def test_what_cannot_be_told_changes_no_ending(closed: bool) -> None:
    pipe, told = os.pipe()
    odd = type("row 17", (Exception,), {})
    if closed:
        os.close(told)
    assert fail(odd(), told) is Outcome.FAILED_OPENING
    if not closed:
        os.close(told)
    assert hear(pipe) is None


@pytest.mark.slow
def test_an_operator_finds_what_failed_beside_the_job(tmp_path: Path) -> None:
    """Records changed in storage fail the trainer that opens them; the log says where, and nothing of them."""
    with embedded(tmp_path / "home") as service:
        dataset = service.upload()
        (stored,) = (service.home / "records").iterdir()
        content = stored.read_bytes()
        stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        ended = service.wait(service.submit(dataset))
        assert ended["error"] == {"code": "trainer-failed"}
        log, deadline = service.home / "stderr.txt", time.monotonic() + START_SECONDS
        while b'"incident"' not in log.read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        lines = [json.loads(line) for line in log.read_text().splitlines() if '"incident"' in line]
    (line,) = lines
    assert (line["job"], line["attempt"], line["level"]) == (ended["id"], 1, "error")
    assert (line["status"], line["error"]) == ("failed-opening", "Tampered")
    assert line["at"][-1].startswith("core.records.encryption:")
