"""A site's login to the shared database allows all that its own processes need, and nothing that is another's."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest
from sqlalchemy import insert, text, update
from sqlalchemy.engine import make_url

from core.access import principals
from core.base.errors import Conflict, Forbidden
from core.base.identifiers import new_id
from core.db import clock
from core.db.database import Database
from core.db.tables import Dataset
from core.db.upload_tables import PartedUpload, UploadPart
from core.jobs import jobs, workers
from core.jobs.presence import SiteSlot
from core.ledger import ledger
from core.ledger.claims import freeze_ledger, put_secret
from core.operations.roles import make_role
from core.records import datasets, parts
from tests.support.store import Place, make_place, queue_federated, submit
from workers import upkeep

Captured = pytest.CaptureFixture[str]


@dataclass
class Ground:
    """The database by its owner's login, and by that of a site."""

    owner: Database
    login: Database
    site: str
    place: Place
    """The site's own."""
    other: Place
    """Another site's."""


@pytest.fixture
def ground(postgresql_database: str, database_url: str, worker_id: str) -> Iterator[Ground]:
    assert database_url == postgresql_database, "it was emptied"
    owner, site = Database(postgresql_database), f"north-{worker_id}"
    role = make_role(owner, site)
    assert make_role(owner, site) == role, "once more is no harm"
    login = Database(make_url(postgresql_database).set(username=role))
    own, other = make_place(owner), make_place(owner)
    with owner.write() as session:
        for place, name in ((own, site), (other, "south")):
            found = session.get_one(Dataset, place.dataset_id)
            found.site, found.location, found.location_digest = name, f"{place.dataset_id}.sealed", "sha256:x"
    yield Ground(owner, login, site, own, other)
    owner.dispose()
    login.dispose()


pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def test_what_its_processes_need_is_allowed(ground: Ground) -> None:
    with ground.login.write() as session:
        job = submit(session, ground.place)
        assert datasets.lock(session, ground.other.dataset_id).site == "south", "to be locked is no change"
        datasets.lock(session, ground.place.dataset_id).state = "erasing"
        datasets.add(session, new_id("ds"), ground.place.principal_id, "declared", {"columns": []})
        workers.see(session, name="w", queues="cpu", slots=1, gpus=0, version="1", site=ground.site, meets=True)
        assert workers.last_seen(session, ground.site) > 0
        ledger.settle(session, job, reason="cancelled")
        freeze_ledger(session, "the witness is ahead")


def test_what_it_charges_and_gives_back_changes_the_sums_too(ground: Ground) -> None:
    with ground.login.write() as session:
        submit(session, ground.place)
    claim = ground.login.transaction(jobs.claim, "w", 60.0, site=ground.site)
    assert claim is None, "this job was made for no site"
    claim = ground.login.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    ground.login.transaction(jobs.fail, claim, "gpu-unavailable", charge="all")
    told = (ground.place.scope_id, claim.job_id, Fraction(1), "no driver", ground.place.principal_id)
    ground.login.transaction(ledger.compensate, *told)
    with ground.login.read() as session:
        assert ledger.verify(session, ground.place.scope_id).ok
        assert not ledger.executed(session, ground.place.scope_id)


REFUSED = {
    "another site's records": "UPDATE datasets SET state = 'erasing' WHERE site = 'south'",
    "to take another site's records over": "UPDATE datasets SET site = '{site}' WHERE site = 'south'",
    "to give its own away": "UPDATE datasets SET site = 'south' WHERE site = '{site}'",
    "to forget a dataset": "DELETE FROM datasets",
    "to make a principal": "INSERT INTO principals SELECT 'pr_0', name, 'admin', created_at FROM principals LIMIT 1",
    "to begin a session": "INSERT INTO console_sessions SELECT 'd', id, 0, 0 FROM api_keys LIMIT 1",
    "to make a sign-in link": "INSERT INTO sign_in_links SELECT 'd', id, 1e12 FROM api_keys LIMIT 1",
    "another's session": "UPDATE console_sessions SET key_id = 'x'",
    "a webhook's secret": "SELECT wrapped FROM webhooks",
    "how many webhooks there are": "SELECT count(*) FROM webhooks",
    "to make a webhook": "INSERT INTO webhooks SELECT 'w', id, 'k', 'u', '[]', 'x' FROM principals LIMIT 1",
    "to send a webhook elsewhere": "UPDATE webhooks SET url = 'https://evil.example'",
    "people's addresses": "SELECT address FROM mail_addresses",
    "to be mailed itself": "UPDATE mail_addresses SET address = 'x@evil.example', confirmed_at = 1",
    "what people are written": "SELECT data FROM deliveries",
    "to keep a notice back": "UPDATE deliveries SET state = 'delivered'",
    "to skip events": "UPDATE notice_marks SET at = 1e12",
    "another role": "UPDATE principals SET role = 'admin'",
    "another key": "UPDATE api_keys SET digest = 'x'",
    "to change the ledger": "UPDATE entries SET body = ''",
    "to cut the ledger": "DELETE FROM entries",
    "to empty the ledger": "TRUNCATE entries",
    "to do without triggers": "ALTER TABLE entries DISABLE TRIGGER USER",
    "to do without triggers now": "SET session_replication_role = replica",
    "to do without the guard": "DROP FUNCTION farthing_own_site CASCADE",
    "to be another site": "SET ROLE postgres",
    "to lift a freeze": "DELETE FROM secrets",
    "another epoch": "UPDATE secrets SET value = 'x' WHERE name NOT LIKE 'sweeper%'",
    "to cut the audit": "DELETE FROM audit",
    "another revision": "UPDATE schema_revision SET version_num = '9'",
}


def test_parts_of_its_own_uploads_are_its_own_and_anothers_are_not(ground: Ground) -> None:
    def upload(place: Place, site: str) -> PartedUpload:
        facts = {"bytes": 1, "part_bytes": 1, "media_type": "text/csv", "wrapped_key": "v1.a.b"}
        times = {"created_at": 0.0, "seen_at": 0.0}
        return PartedUpload(
            id=new_id("upl"), dataset_id=place.dataset_id, owner_id=place.principal_id, site=site, **facts, **times
        )

    def part(made: PartedUpload, number: int) -> UploadPart:
        name = f"{made.id}-{number}"
        return UploadPart(upload_id=made.id, number=number, site=made.site, location=name, sealed_digest=b"")

    for login, place, site in ((ground.login, ground.place, ground.site), (ground.owner, ground.other, "south")):
        with login.write() as session:
            made = upload(place, site)
            session.add(made)
            session.flush()
            session.add(part(made, 1))
    with pytest.raises(Forbidden), ground.login.write() as session:
        session.add(upload(ground.other, "south"))
    for statement in (
        "UPDATE parted_uploads SET wrapped_key = NULL WHERE site = 'south'",
        "UPDATE upload_parts SET location = 'mine' WHERE site = 'south'",
        "DELETE FROM upload_parts WHERE site = 'south'",
        f"UPDATE upload_parts SET site = 'south' WHERE site = '{ground.site}'",
    ):
        with pytest.raises(Forbidden), ground.login.write() as session:
            session.execute(text(statement))
    assert ground.login.transaction(parts.drop_late, ground.site), "its own go when they are late"


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_its_own_is_refused_as_it_is_told(ground: Ground, statement: str) -> None:
    with ground.owner.write() as session:
        put_secret(session, "a secret", "x")
    with pytest.raises(Forbidden, match="login of this site's service"), ground.login.write() as session:
        session.execute(text(statement.format(site=ground.site)))


def test_it_sits_in_its_own_seat_alone_and_begins_for_all(ground: Ground) -> None:
    with ground.owner.write() as session:
        job_id = queue_federated(session, [ground.place, ground.other], None, sites=[ground.site, "south"])
        until = clock.read(session) + 60

    def seat(site: str, worker: str) -> dict[str, object]:
        return {"job_id": job_id, "site": site, "worker": worker, "attempt": 0, "until": until, "public_key": "k"}

    with ground.login.write() as session:
        session.execute(insert(SiteSlot).values(seat(ground.site, "w")))
    with pytest.raises(Forbidden), ground.login.write() as session:
        session.execute(insert(SiteSlot).values(seat("south", "mallory")))
    with ground.owner.write() as session:
        session.execute(insert(SiteSlot).values(seat("south", "v")))
    south = SiteSlot.site == "south"
    for change in ({"worker": "mallory"}, {"public_key": "mine"}, {"address": "here:1"}, {"outcome": "done"}):
        with pytest.raises(Forbidden), ground.login.write() as session:
            session.execute(update(SiteSlot).where(south).values(**change))
    with ground.login.write() as session:
        session.execute(update(SiteSlot).where(south).values(attempt=1, sealed_key="sealed for v"))
    with pytest.raises(Forbidden), ground.login.write() as session:
        session.execute(text("DELETE FROM seats"))


def test_others_workers_are_there_as_long_as_they_say_so(ground: Ground) -> None:
    with ground.owner.write() as session:
        workers.see(session, name="v", queues="cpu", slots=1, gpus=0, version="1", site="south", meets=True)
        principals.create(session, "Olga", "owner")
    for statement in (
        "UPDATE workers SET seen_at = 0",
        "DELETE FROM workers",
        "UPDATE secrets SET value = '0.0' WHERE name LIKE 'seen-%'",
    ):
        with pytest.raises(Forbidden), ground.login.write() as session:
            session.execute(text(statement))
    with ground.owner.write() as session:
        session.execute(text("UPDATE workers SET seen_at = 0"))
    with ground.login.write() as session:
        workers.remove_silent(session, 86400.0)
        assert workers.known(session, 9) == []


def test_an_operator_makes_it_by_name(
    postgresql_database: str, database_url: str, worker_id: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("FARTHING_DATABASE_URL", database_url)
    assert database_url == postgresql_database
    upkeep.main(["site", f"west-{worker_id}"])
    assert f'ALTER ROLE "farthing_site_west-{worker_id}" PASSWORD' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        upkeep.main(["site", 'west"; DROP TABLE jobs'])
    assert "is no site's name" in capsys.readouterr().err


def test_a_login_is_made_while_everybody_writes(ground: Ground, postgresql_database: str, worker_id: str) -> None:
    """Sites that run hold and ask for locks on the guarded tables in any order: nothing waits for them."""
    second = Database(postgresql_database)
    with ground.owner.write() as session:
        for table in ("datasets", "public_weights", "secrets", "seats", "workers"):
            session.execute(text(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE"))  # as whoever writes there has
        assert make_role(second, f"east-{worker_id}") == f"farthing_site_east-{worker_id}"
    second.dispose()


def test_sqlite_has_no_roles(database_url: str, tmp_path: object) -> None:
    del database_url
    made = Database(f"sqlite+pysqlite:///{tmp_path}/farthing.sqlite")
    with pytest.raises(Conflict, match="SQLite"):
        make_role(made, "north")
    made.dispose()
