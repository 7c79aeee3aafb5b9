"""A health check that tells a supervisor which beats from one that is gone, on this machine and no other."""

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.jobs import workers
from workers.alive import LEASES, alive


def see(database: Database, name: str) -> None:
    with database.write() as session:
        workers.see(session, name=name, queues="cpu", slots=1, gpus=0, version="0")


def test_a_supervisor_that_was_seen_is_alive_on_its_own_machine_alone(database: Database, database_url: str) -> None:
    settings = ServiceSettings(database_url=database_url)
    assert not alive(settings, "here")
    see(database, "here:1")
    assert alive(settings, "here")
    assert not alive(settings, "her_")
    assert not alive(settings, "there")


def test_one_that_was_not_seen_for_a_few_leases_is_not(database: Database, database_url: str) -> None:
    see(database, "here:1")
    settings = ServiceSettings(database_url=database_url, lease_seconds=1e-9 / LEASES)
    assert not alive(settings, "here")
