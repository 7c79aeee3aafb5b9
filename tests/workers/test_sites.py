"""Federated jobs of several sites by real processes: a supervisor each, with its own key, storage and settings."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.db.tables import Account, Dataset, Job
from core.ledger.accounts import balance_of
from core.privacy.events import EVENT, Event, compose
from core.records.master_key import load_master_keys
from tests.support.embedded import readings
from tests.support.federated import STEPS, Federation, check, states
from tests.support.sites import Ground, sites

NAMES = ("north", "south", "west")
SLOW = {"SLOW": "0.1"}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with sites(tmp_path / "home", NAMES) as made:
        yield made


def schedule(row: Job) -> Counter[Event]:
    """Return the events that a client reserved."""
    return Counter(EVENT.validate_python(event) for event in row.schedule)


def held(ground: Ground, job: Federation) -> list[tuple[list[int], list[int]]]:
    """Return the spent and the reserved budget of each site's scope."""
    database = ground.database()
    with database.read() as session:
        accounts = [session.get_one(Account, session.get_one(Job, name).scope_id) for name in job.clients]
        found = [(list(balance_of(one).spent), list(balance_of(one).reserved)) for one in accounts]
    database.dispose()
    return found


def nothing_else_is_known(ground: Ground, job: Federation, site: str) -> None:
    """Assert that a site's processes have no other site's key in environment and arguments, nor another's open file."""
    keys = {name: load_master_keys(ground.contexts[name].settings) for name in NAMES}
    database = ground.database()
    with database.read() as session:
        wrapped = {}
        for client in job.clients:
            dataset = session.get_one(Dataset, session.get_one(Job, client).dataset_id)
            assert dataset.wrapped_key is not None
            wrapped[dataset.site] = keys[dataset.site].unwrap(dataset.id, dataset.wrapped_key).hex()
    database.dispose()
    others = [name for name in NAMES if name != site]
    secrets = [text for name in others for text in (wrapped[name], (ground.home / name / "master.key").read_text())]
    supervisor = ground.processes[site]
    for process in [supervisor, *supervisor.children(recursive=True)]:
        told = str(process.environ()) + str(process.cmdline())
        assert not [one for one in secrets if one.strip() in told]
        if process != supervisor:
            assert "FARTHING" not in told
        opened = [file.path for file in process.open_files()]
        assert not [path for path in opened for name in others if f"/{name}/" in path]


@pytest.mark.slow
def test_three_sites_end_with_one_model_whoever_comes_late_or_is_lost(ground: Ground) -> None:
    job = ground.submit(NAMES)
    before = held(ground, job)
    ground.start("north", **SLOW)
    ground.start("south", **SLOW)
    waiting = ground.wait_until(job.id, lambda view: view["waits_for"] == "a worker that serves west", 60)
    assert (waiting["state"], waiting["attempt"]) == ("queued", 0)
    assert held(ground, job) == before, "reserved once, and nobody has paid"

    ground.start("west", **SLOW)
    ground.wait_until(job.id, lambda view: view["progress"]["step"] >= 5)
    for site in NAMES:
        nothing_else_is_known(ground, job, site)
    ground.kill("south")
    again = ground.wait_until(job.id, lambda view: view["state"] == "queued")
    assert [client["state"] for client in again["federation"]["sites"]] == ["queued"] * 3
    spent = held(ground, job)
    gone = ground.wait_until(job.id, lambda view: view["waits_for"] == "a worker that serves south", 60)
    assert gone["attempt"] == 1
    assert held(ground, job) == spent, "while it waits nothing is reserved again, or paid"

    ground.start("south", **SLOW)
    ended = ground.wait(job.id)
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    assert ended["attempt"] == 2
    check(job)
    read = readings(ground.home)
    for name in job.clients:
        assert STEPS <= sum(read[name].values()) <= STEPS + 2, "it goes on where it was"


@pytest.mark.slow
def test_federations_that_share_their_workers_all_end_and_each_ledger_pays_for_its_own(ground: Ground) -> None:
    """One slot a site; two jobs of three sites and one of two: no order of claims may lock them up."""
    submitted = [ground.submit(NAMES), ground.submit(NAMES[::-1]), ground.submit(NAMES[1:])]
    for site in NAMES:
        ground.start(site)
    for job in submitted:
        ended = ground.wait(job.id, 240)
        assert ended["state"] == "succeeded", (ended, ground.logs())
        check(job)
        read = readings(ground.home)
        if ended["attempt"] == 1:
            for name in job.clients:
                assert compose(read[name]) == compose(schedule(job.row(name))), "what is drawn is what is priced"


@pytest.mark.slow
def test_a_site_that_is_killed_and_stays_away_is_lost_and_its_job_s_quorum_decides(tmp_path: Path) -> None:
    with sites(tmp_path / "home", NAMES, absent_seconds=15.0) as ground:
        for site in NAMES:
            ground.start(site, **SLOW)
        job = ground.submit(NAMES, quorum=2)
        ground.wait_until(job.id, lambda view: view["progress"]["step"] >= 5)
        ground.kill("south")
        ended = ground.wait(job.id, 240)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2), (ended, ground.logs())
        assert states(ended) == [("succeeded", None), ("failed", "worker-lost"), ("succeeded", None)]
        check(job)
        spent, reserved = (
            float(ended["federation"]["sites"][1]["cost"][name]["budget_share"]) for name in ("spent", "reserved")
        )
        assert 0 < spent < reserved, "charged what it had paid for, and given back the rest"
        read = readings(ground.home)
        for name in (job.clients[0], job.clients[2]):
            assert STEPS <= sum(read[name].values()) <= STEPS + 2, "the others go on where they were"

        ground.start("south", **SLOW)
        needed = ground.submit(NAMES, quorum=3)
        ground.wait_until(needed.id, lambda view: view["progress"]["step"] >= 5)
        ground.kill("south")
        ended = ground.wait(needed.id, 240)
        assert (ended["state"], ended["error"]) == ("failed", {"code": "site-lost"}), ground.logs()
        assert states(ended) == [("failed", "site-lost"), ("failed", "worker-lost"), ("failed", "site-lost")]
        check(needed)


@pytest.mark.slow
def test_a_killed_trainer_is_its_own_site_s_loss_and_the_others_go_on(ground: Ground) -> None:
    for site in NAMES:
        ground.start(site, **SLOW)
    named = ground.submit(NAMES)
    waiting = ground.view(named.id)
    datasets = [client["dataset"] for client in waiting["federation"]["sites"]]
    assert len(set(datasets)) == len(NAMES)
    named.until_step(3)
    named.process(1).kill()
    ended = ground.wait(named.id)
    assert (ended["state"], ended["error"]) == ("failed", {"code": "site-lost"}), ground.logs()
    assert states(ended) == [("failed", "site-lost"), ("failed", "trainer-failed"), ("failed", "site-lost")]
    check(named)
