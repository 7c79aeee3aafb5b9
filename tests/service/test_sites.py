"""Sites: each keeps its own records under its own key, is served by its own workers, and reads nobody else's."""

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from safetensors.numpy import save
from sqlalchemy import delete, select

from core.access.bootstrap import first_admin
from core.base.errors import Conflict, DuplicateDataset, Invalid, NearCopy, NotFound, NotReady
from core.base.settings import ServiceSettings
from core.data.datasets import parse_metadata
from core.db import clock
from core.db.database import Database
from core.db.tables import SEVERAL, Dataset, Job
from core.jobs.presence import SiteSlot, Worker
from core.jobs.transitions import LOST, end_failed
from core.ledger import identities
from core.ledger.claims import lock_job
from core.ledger.identities import OwnerKeys
from core.planning.job import JobSpec
from core.records import datasets as rows
from core.records.decoding.validation import open_report
from core.records.encryption import Tampered
from core.records.master_key import MasterKeys, load_master_keys
from core.records.records import StoredRecords, kept_of, open_records
from core.service import datasets, health, identity, jobs, parted_uploads, parts, uploads, weights
from core.service.context import Caller, Context
from core.service.witnessing import start
from core.training.job_repository import JobRepository
from core.training.taken import ClaimedJob
from tests.support import entry
from tests.support.api import csv, job, metadata
from tests.support.sites import site_settings
from tests.support.store import empty_postgresql
from workers import upkeep
from workers.embedded import prepare
from workers.seats import seated
from workers.wire import TrainerMessage

TAKES = ("auto", "cpu")


class Sites:
    """The service's own site and two others, and an admin who may do anything."""

    def __init__(self, home: Path, url: str) -> None:
        self.contexts = {
            name: Context(one, Database(one.url))
            for name, one in ((name, site_settings(home, name, url)) for name in ("", "north", "south"))
        }
        for context in self.contexts.values():
            start(context)
        secret = self[""].database.transaction(first_admin, None)
        assert secret is not None
        admin = entry.holder(self[""], secret)
        assert admin is not None
        self.admin: Caller = admin
        self.datasets = {name: self.upload(name, number) for number, name in enumerate(self.contexts)}

    def __getitem__(self, site: str) -> Context:
        return self.contexts[site]

    def upload(self, site: str, number: int) -> str:
        content = csv(100, number)
        declared = parse_metadata(metadata(distinct_because="each site has patients of its own"))
        view, _ = uploads.create(self[site], self.admin, declared, None, [content], None)
        return str(view["id"])

    def kept(self, site: str) -> StoredRecords:
        with self[site].database.read() as session:
            return kept_of(session.get_one(Dataset, self.datasets[site]))

    def submit(self, body: Mapping[str, Any]) -> str:
        return str(entry.submit(self[""], self.admin, JobSpec.model_validate(body), uuid4().hex).body["id"])

    def federate(self, *named: str) -> str:
        body = job("ds_none", mu="0.1", optimizer={"kind": "noisy_gd", "steps": 4}, inference={"intervals": False})
        return self.submit({**body, "dataset": None, "federation": {"datasets": [self.datasets[one] for one in named]}})

    def repository(self, site: str, **changes: Any) -> JobRepository:
        """Return the job repository of a worker of a site, which says that it lives."""
        settings = self[site].settings.model_copy(update=changes)
        made = JobRepository(self[site].database, settings, f"worker of {site or 'the service'}")
        made.check_master_keys()
        made.register("cpu", 1, 0)
        return made


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, postgresql_database: str) -> Iterator[Sites]:
    empty_postgresql(postgresql_database)
    made = Sites(tmp_path_factory.mktemp("sites"), postgresql_database)
    yield made
    for context in made.contexts.values():
        context.database.dispose()


@pytest.fixture
def sites(prepared: Sites) -> Sites:
    """The sites with nothing that waits, and nobody at work."""
    with prepared[""].database.write() as session:
        session.execute(delete(SiteSlot))
        session.execute(delete(Worker))
        for job_id in session.execute(select(Job.id).where(Job.finished_at.is_(None)).order_by(Job.id)).scalars().all():
            end_failed(session, lock_job(session, job_id), clock.read(session), LOST, charge="spent")
    return prepared


def test_a_site_needs_a_database_that_can_be_shared(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="FARTHING_SITE needs"):
        ServiceSettings(home=tmp_path, site="north")
    with pytest.raises(ValueError, match="site"):
        ServiceSettings(home=tmp_path, site="North!", cluster=True, database_url="postgresql://x/y")


def test_nobody_else_can_read_a_site_s_records(sites: Sites) -> None:
    kept = sites.kept("north")
    settings = {name: context.settings for name, context in sites.contexts.items()}
    with open_records(settings["north"], kept) as file:
        plain = file.read()
    stored = settings["north"].records_path / kept.location
    for other in ("", "south"):
        with pytest.raises(NotReady, match="encrypted under"):
            open_records(settings[other], kept)
        (settings[other].records_path / kept.location).write_bytes(stored.read_bytes())  # whoever copies it there
        theirs = sites.kept(other)
        assert theirs.wrapped_key is not None
        for key in _keys_of(load_master_keys(settings[other]), theirs):
            with pytest.raises(Tampered):
                open_records(settings[other], kept, key)
        assert plain[100:200] not in stored.read_bytes()
    assert len({load_master_keys(one).current.fingerprint for one in settings.values()}) == 3


def _keys_of(keys_here: MasterKeys, theirs: StoredRecords) -> list[bytes]:
    """Return every key that a site holds or can work out: its master keys, and those of its own records."""
    assert theirs.wrapped_key is not None
    return [*(key.secret for key in keys_here.keys), keys_here.unwrap(theirs.dataset_id, theirs.wrapped_key)]


def test_each_site_is_ready_with_its_own_key_alone(sites: Sites) -> None:
    for name, context in sites.contexts.items():
        health.start(context)
        assert health.check(context)["storage"] == "ok"
        sites.repository(name)
        assert datasets.get(context, sites.admin, sites.datasets["north"]).site == "north"


def test_an_ordinary_job_waits_for_its_own_site_s_worker_and_says_so(sites: Sites) -> None:
    waiting = sites.submit(job(sites.datasets["north"]))
    repositories = {name: sites.repository(name) for name in ("", "south")}
    assert [repository.claim(TAKES) for repository in repositories.values()] == [None, None]
    seen = jobs.get(sites[""], sites.admin, waiting)
    assert (seen.site, seen.waits_for) == ("north", "a worker that serves north")
    north = sites.repository("north")
    assert jobs.get(sites[""], sites.admin, waiting).waits_for is None
    taken = north.claim(TAKES)
    assert taken is not None
    assert taken.claim.job_id == waiting
    assert jobs.get(sites[""], sites.admin, waiting).waits_for is None


def test_a_federation_of_one_site_is_claimed_by_its_worker_as_ever(sites: Sites) -> None:
    second = sites.upload("north", 9)
    body = job("ds_none", mu="0.1", optimizer={"kind": "noisy_gd", "steps": 4}, inference={"intervals": False})
    named = {"datasets": [sites.datasets["north"], second]}
    waiting = sites.submit({**body, "dataset": None, "federation": named})
    assert sites.repository("south").claim(TAKES) is None
    taken = sites.repository("north").claim(TAKES)
    assert taken is not None
    assert (taken.claim.job_id, len(taken.clients), taken.meeting_key) == (waiting, 2, None)


def test_each_site_of_a_federation_gets_its_own_clients_key_and_no_other(sites: Sites) -> None:
    waiting = sites.federate("north", "south")
    with sites[""].database.read() as session:
        assert session.get_one(Job, waiting).site == SEVERAL
    north = sites.repository("north")
    assert north.offer(TAKES, ()) is None, "nobody serves the south yet"
    seen = jobs.get(sites[""], sites.admin, waiting)
    assert (seen.site, seen.waits_for) == (None, "a worker that serves south")
    assert seen.federation is not None
    assert [client.site for client in seen.federation.sites or ()] == ["north", "south"]
    south = sites.repository("south")
    repositories = {"north": north, "south": south}
    offers = {name: repository.offer(TAKES, ()) for name, repository in repositories.items()}
    orders = {}
    for name, offer in offers.items():
        assert offer is not None
        assert offer.job_id == waiting
        taken = repositories[name].seated(offer)
        assert taken is not None
        (orders[name],) = _orders(sites, name, taken)
    assert [orders[name].seat.number for name in ("north", "south")] == [0, 1]  # type: ignore[union-attr] # a client's
    texts = {name: order.model_dump_json() for name, order in orders.items()}
    for name, other in (("north", "south"), ("south", "north")):
        settings, kept = sites[other].settings, sites.kept(other)
        assert kept.wrapped_key is not None
        key = load_master_keys(settings).unwrap(kept.dataset_id, kept.wrapped_key).hex()
        assert key in texts[other]
        assert key not in texts[name]
        for master in (load_master_keys(sites[one].settings).current.secret for one in sites.contexts):
            assert master.hex() not in texts[name]
        assert os.devnull in texts[name], "no key file is named either"
    assert orders["north"].seat.key == orders["south"].seat.key  # type: ignore[union-attr] # as above


def _orders(sites: Sites, site: str, taken: ClaimedJob) -> list[TrainerMessage]:
    order = TrainerMessage(claim=taken.claim, settings=sites[site].settings, memory_bytes=2**30)
    return seated(order, taken, None)


def test_whom_nobody_can_reach_offers_nothing(sites: Sites) -> None:
    waiting = sites.federate("north", "south")
    unreachable = sites.repository("south", meeting_host=None)
    assert unreachable.offer(TAKES, ()) is None
    assert sites.repository("north").offer(TAKES, ()) is None
    assert jobs.get(sites[""], sites.admin, waiting).waits_for == "a worker that serves south"


def test_records_are_erased_by_the_site_that_keeps_them_and_through_its_own_service(sites: Sites) -> None:
    own = sites.upload("north", 20)
    with sites[""].database.read() as session:
        stored = sites["north"].settings.records_path / kept_of(session.get_one(Dataset, own)).location
    for other in ("south", ""):
        with pytest.raises(Conflict, match="kept by the site north: erase them through its own API"):
            datasets.erase(sites[other], sites.admin, own)
    with pytest.raises(Conflict, match="the service itself"):
        datasets.erase(sites["north"], sites.admin, sites.datasets[""])
    with sites[""].database.write() as session:
        rows.lock(session, own).state = "erasing"
    assert datasets.finish_erasures(sites[""]) == datasets.finish_erasures(sites["south"]) == []
    assert stored.exists()
    datasets.erase(sites["north"], sites.admin, own)
    assert not stored.exists()
    assert datasets.get(sites["south"], sites.admin, own).state == "erased"


def test_how_cells_were_read_is_told_by_their_own_site_alone(sites: Sites) -> None:
    own = sites.datasets["south"]
    told = datasets.validation(sites["south"], sites.admin, own)
    assert (told.dataset, told.rows) == (own, 100)
    for other in ("", "north"):
        with pytest.raises(Conflict, match="site south"):
            datasets.validation(sites[other], sites.admin, own)
    with sites[""].database.read() as session:
        stored = session.get_one(Dataset, own).validation
    assert stored is not None
    assert set(stored) == {"sealed"}, "whoever reads the database reads no count"
    with pytest.raises(Tampered):
        open_report(stored, bytes(32), own)


def test_keys_and_copies_are_each_site_s_own_machine_s(sites: Sites, tmp_path: Path) -> None:
    kept = {name: sites.kept(name) for name in ("north", "south")}
    upkeep.rewrap(sites["south"].settings, fresh=True)
    assert sites.kept("north") == kept["north"]
    assert sites.kept("south").wrapped_key != kept["south"].wrapped_key
    with pytest.raises(DuplicateDataset):  # the owner's key came along
        uploads.create(sites["south"], sites.admin, parse_metadata(metadata()), None, [csv(100, 2)], None)
    with pytest.raises(Conflict, match="PostgreSQL"):
        upkeep.backup(sites["south"].settings, tmp_path / "copy")
    embedded = ServiceSettings(home=tmp_path / "embedded")
    prepare(embedded)
    upkeep.backup(embedded, tmp_path / "copy")
    with pytest.raises(Conflict, match="into SQLite"):
        upkeep.restore(sites["south"].settings, tmp_path / "copy")


def test_a_dataset_declared_at_one_site_is_kept_by_the_one_that_its_records_are_sent_to(sites: Sites) -> None:
    stated = parse_metadata(metadata(distinct_because="patients of this site alone"))
    declared, _ = uploads.declare(sites["north"], sites.admin, stated, None)
    view = uploads.fill(sites["south"], sites.admin, declared["id"], "text/csv", [csv(100, 77)])
    assert (view.id, view.site) == (declared["id"], "south")
    with sites[""].database.read() as session:
        location = session.get_one(Dataset, view.id).location
    assert location is not None
    assert (sites["south"].settings.records_path / location).exists()
    assert not (sites["north"].settings.records_path / location).exists()


def test_what_another_site_keeps_cannot_be_compared_and_is_answered_for(sites: Sites) -> None:
    """Each site has a key of its own for each owner: none can try guesses at another's records."""
    again = parse_metadata(metadata())
    with pytest.raises(NearCopy, match="another site keeps it") as refusal:
        uploads.create(sites["south"], sites.admin, again, None, [csv(100, 555)], None)
    assert {one.pointer for one in refusal.value.fields} == {"/scope", "/distinct_because"}
    with sites[""].database.read() as session:
        wrapped = [rows.wrapped_keys(session, site) for site in ("north", "south")]
    name = rows.owner_name(sites.admin.id)
    north, south = (one[name] for one in wrapped)
    key = load_master_keys(sites["north"].settings).unwrap(name, north)
    with pytest.raises(NotReady):
        load_master_keys(sites["north"].settings).unwrap(name, south)
    with sites[""].database.read() as session:
        assert identities.read(session, OwnerKeys(key), sites.datasets["north"]) is not None
        with pytest.raises(Tampered):
            identities.read(session, OwnerKeys(key), sites.datasets["south"])
    shown = identity.identity(sites["south"], sites.admin, sites.datasets["south"])
    assert shown.distinct_because == "each site has patients of its own"
    with pytest.raises(Conflict, match="kept by the site south"):
        identity.identity(sites["north"], sites.admin, sites.datasets["south"])


def test_public_weights_are_a_site_s_own(sites: Sites) -> None:
    content = save({"0.weight": np.ones((2, 1), np.float32), "0.bias": np.zeros(2, np.float32)})
    here, _ = weights.create(sites["north"], sites.admin, "", iter([content]))
    there, replayed = weights.create(sites["south"], sites.admin, "", iter([content]))
    assert (replayed, here.id == there.id) == (False, False)
    with pytest.raises(Conflict, match="another site"):
        weights.delete(sites["south"], sites.admin, here.id)
    network = {"kind": "network", "target": "y", "features": ["age"], "layers": [{"kind": "linear", "units": 2}]}
    optimizer = {"kind": "clipped_sgd", "steps": 5}
    body = job(sites.datasets["south"], mu="0.5", inference={"intervals": False}, optimizer=optimizer)
    with pytest.raises(Invalid, match="kept by another site"):
        sites.submit({**body, "model": {**network, "pretrained": here.id}})
    assert sites.submit({**body, "model": {**network, "pretrained": there.id}})


def sent_in_parts(sites: Sites, site: str, content: bytes) -> tuple[str, str]:
    """Declare a dataset and send its file in one part through a site's service; return the dataset and the upload."""
    stated = parse_metadata(metadata(distinct_because="patients of this site alone"))
    declared, _ = uploads.declare(sites[site], sites.admin, stated, None)
    opened, _ = parted_uploads.begin(
        sites[site], sites.admin, declared["id"], len(content), "text/csv", parted_uploads.LEAST_PART_BYTES, None
    )
    parts.put(sites[site], sites.admin, declared["id"], opened["id"], 1, sha256(content).digest(), [content])
    return str(declared["id"]), str(opened["id"])


def test_parts_are_kept_by_the_site_that_they_were_sent_to(sites: Sites) -> None:
    content = csv(100, 78)
    dataset, upload = sent_in_parts(sites, "north", content)
    for other in ("south", ""):
        for deed in (parted_uploads.get, parts.complete, parted_uploads.end):
            with pytest.raises(Conflict, match="kept by the site north"):
                deed(sites[other], sites.admin, dataset, upload)
        with pytest.raises(Conflict, match="kept by the site north"):
            parts.put(sites[other], sites.admin, dataset, upload, 1, sha256(content).digest(), [content])
        assert datasets.erase_late_uploads(sites[other]) == 0
    upkeep.rewrap(sites["north"].settings, fresh=True)  # the key of the parts comes along
    view = parts.complete(sites["north"], sites.admin, dataset, upload)
    assert (view.state, view.site, view.rows) == ("ready", "north", 100)


def test_an_erasure_waits_for_the_site_that_keeps_parts(sites: Sites) -> None:
    dataset, upload = sent_in_parts(sites, "north", csv(100, 79))
    assert datasets.erase(sites["south"], sites.admin, dataset).state == "erasing"
    assert datasets.finish_erasures(sites["south"]) == []
    with pytest.raises(Conflict):
        parts.complete(sites["north"], sites.admin, dataset, upload)
    assert datasets.erase_late_uploads(sites["north"]) == 1
    assert datasets.finish_erasures(sites["south"]) == [dataset]
    with pytest.raises(NotFound):
        parted_uploads.get(sites["north"], sites.admin, dataset, upload)
