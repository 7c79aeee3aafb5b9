"""The orders of each site of a federated job: its own claim and its own key, and nothing that opens more."""

import os
from pathlib import Path

import pytest

from core.base.settings import ServiceSettings
from core.ledger.claims import Claim
from core.planning.job import Resources
from core.training.taken import ClaimedJob, ClaimedSite
from workers.seats import seated
from workers.wire import TrainerMessage

MASTER = "ab" * 32
MEETING = bytes(range(32))
PARENT = Claim("job_all", 1, "epoch", 1)


def client(number: int) -> ClaimedSite:
    key = bytes([number + 1] * 32).hex()
    return ClaimedSite(Claim(f"job_{number}", 1, "epoch", number), number, key, f"rec_{number}.sealed")


def orders(tmp_path: Path, meeting_key: bytes | None) -> list[TrainerMessage]:
    """Return the orders of two clients of three, by a supervisor that has a master key."""
    settings = ServiceSettings(home=tmp_path, master_key=MASTER, master_key_file=tmp_path / "master.key")
    whole = TrainerMessage(claim=PARENT, settings=settings, memory_bytes=2**30)
    taken = ClaimedJob(PARENT, Resources(), (client(0), client(2)), 3, 3, meeting_key)
    return seated(whole, taken, None if meeting_key else tmp_path)


@pytest.mark.parametrize("meeting_key", [None, MEETING], ids=["one machine", "several"])
def test_a_client_has_its_own_key_and_no_other(tmp_path: Path, meeting_key: bytes | None) -> None:
    made = orders(tmp_path, meeting_key)
    for order, own, other in zip(made, (client(0), client(2)), (client(2), client(0)), strict=True):
        assert order.claim == own.claim
        assert order.seat is not None
        seat = order.seat
        assert (seat.number, seat.dataset_key, seat.location) == (own.number, own.dataset_key, own.location)
        assert order.settings.master_key is None
        assert order.settings.master_key_path == Path(os.devnull)
        told = order.model_dump_json()
        assert other.dataset_key is not None
        assert MASTER not in told
        assert other.dataset_key not in told
        assert other.claim.job_id not in told
    keys = {order.seat.key for order in made if order.seat is not None}
    assert len(keys) == 1, "by which they know one another"
    assert meeting_key is None or keys == {meeting_key.hex()}


def test_two_attempts_meet_by_other_keys(tmp_path: Path) -> None:
    one, other = (orders(tmp_path, None)[0].seat for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.key != other.key
