"""A federated job of three sites in containers of their own, which share a network, a database and nothing else.

They show things that processes on one machine cannot: sites without a common disk or loopback interface. The sites find
each other by name, talk over the network, and are lost with all that is in their container.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farthing import Client, FarthingError
from farthing.schemas.jobs import JobView
from tests.integration.test_service import until, upload
from tests.stack.containers import ask_database, container, docker, inspected, run_python
from tests.stack.sites import Site, sites
from tests.stack.stack import PROJECT
from tests.support.embedded import LOGISTIC
from tests.support.targets import TARGETS, Target
from tests.workers.test_federation import SEARCH

pytestmark = pytest.mark.timeout(1800)
ROWS = {"north": 1500, "south": 750, "west": 900}
STEPS = 500
"""Steps enough that a site can be lost in the middle of them."""
PATIENCE_SECONDS = 900.0
"""Many times what it takes on an idle machine."""
MU = "0.5"
PRICE = 0.125
"""Of a target of MU, as rho."""

MAY = """
import psycopg
from core.base.settings import ServiceSettings
where = ServiceSettings().url.replace("+psycopg", "")
with psycopg.connect(where, autocommit=True) as link:
    print(link.execute("SELECT current_user").fetchone()[0])
    try:
        link.execute("UPDATE entries SET body = body")
    except psycopg.errors.InsufficientPrivilege:
        print("refused")
"""
"""Says as whom a site is logged in, and whether it may change the ledger's past."""
OPEN = """
import sys
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.records.master_key import load_master_keys
from core.records.storage import open_storage
from core.db.tables import Dataset

settings = ServiceSettings()
with Database(settings.url).read() as session:
    kept = [session.get_one(Dataset, name) for name in sys.argv[1:]]
    for one in kept:
        said = []
        for work in (
            lambda: open_storage(settings).open(one.location).close(),
            lambda: load_master_keys(settings).unwrap(one.id, one.wrapped_key),
        ):
            try:
                work()
                said.append("opened")
            except Exception as error:
                said.append(type(error).__name__)
        print(*said)
"""
"""Tries the file and the key of each dataset, with all that is in the container and in the database."""
CONNECTED = """
from pathlib import Path
for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
    _, _, remote, state, *_ = line.split()
    if state == "01":
        print(".".join(str(int(remote[place : place + 2], 16)) for place in (6, 4, 2, 0)))
"""
"""Tells the addresses that a container has connections to."""


@pytest.fixture(scope="module")
def service() -> Iterator[Target]:
    with TARGETS["stack"](Path()) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Target) -> Iterator[Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="module")
def three(admin: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    with sites(admin, ROWS, tmp_path_factory.mktemp("sites")) as found:
        yield found


@pytest.fixture(scope="module")
def secret(admin: Client) -> str:
    """The analyst's key."""
    made = admin.create_key("ana", "analyst").key
    assert made is not None
    return made


@pytest.fixture(scope="module")
def analyst(service: Target, secret: str, three: dict[str, Site]) -> Iterator[Client]:
    """Of the service's own API; the owners have shared their datasets with it, each at its own."""
    with service.client(secret) as client:
        for site in three.values():
            site.owner.share(site.dataset.id, client.me().id, "all")
        yield client


def submit(analyst: Client, three: dict[str, Site], quorum: int | None = None, **changes: Any) -> JobView:
    asked = {
        "model": LOGISTIC,
        "optimizer": {"kind": "noisy_gd", "steps": STEPS},
        "privacy": {"mu": MU},
        "inference": {"intervals": False},
        "retry_allowance": 2,  # a busy machine may lose an attempt more
        **changes,
    }
    return analyst.submit(asked, datasets=[site.dataset.id for site in three.values()], quorum=quorum)


def end(client: Client, job: str) -> JobView:
    return until(lambda: seen if (seen := client.job(job, wait_seconds=10)).ended else None, PATIENCE_SECONDS)  # type: ignore[no-any-return] # of what it is given


def clients(admin: Client, job: str) -> list[tuple[str, str | None, str | None]]:
    """Return the name, the state and the failure of each site."""
    federation = admin.job(job).federation
    assert federation is not None
    assert federation.sites is not None
    return [(one.site or "", one.state, one.error.code if one.error else None) for one in federation.sites]


def jobs_of(admin: Client, job: str) -> list[str]:
    """Return the sites' own jobs, by place."""
    federation = admin.job(job).federation
    assert federation is not None
    assert federation.sites is not None
    return [one.job for one in federation.sites if one.job is not None]


def transactions(jobs: list[str]) -> dict[str, tuple[int, int]]:
    """Return, by kind of entry, how many scopes have it of these jobs, and in how many transactions they wrote it."""
    named = ", ".join(f"'{job}'" for job in jobs)
    counted = "count(*) AS lines, count(DISTINCT scope_id) AS scopes, count(DISTINCT xmin::text) AS written"
    lines = ask_database(f"SELECT kind, {counted} FROM entries WHERE job_id IN ({named}) GROUP BY kind")
    assert all(line["lines"] == len(jobs) for line in lines if line["kind"] in ("reserve", "settle")), "once for each"
    return {line["kind"]: (line["scopes"], line["written"]) for line in lines}


def paid(job: str) -> Counter[int]:
    """Return how often a client has paid for each chunk."""
    lines = ask_database(f"SELECT chunk FROM entries WHERE job_id = '{job}' AND kind = 'spend'")
    return Counter(line["chunk"] for line in lines)


def repeats(chunks: Counter[int]) -> int:
    """Return how many payments were for a chunk that had been paid for."""
    return chunks.total() - len(chunks)


def spent(admin: Client, site: Site) -> float:
    """Return what a site's scope has spent, as rho; nothing of it is reserved, and its chain adds up to it."""
    budget = admin.budget(site.dataset.id)
    assert budget.budget_share.reserved == "0"
    assert admin.verify(budget.scope).ok
    assert budget.rho is not None
    return float(budget.rho.spent or 0)


def test_a_site_has_a_login_a_key_and_a_disk_of_its_own(three: dict[str, Site]) -> None:
    secrets = [site.secret(file) for site in three.values() for file in ("database_password", "master_key")]
    assert len(set(secrets)) == 2 * len(three)
    assert len({site.address for site in three.values()}) == len(three)
    for name, site in three.items():
        assert run_python(MAY, service="worker", project=site.project).split() == [f"farthing_site_{name}", "refused"]
        for part in ("api", "worker"):
            found = inspected(part, site.project)
            assert found["HostConfig"]["ReadonlyRootfs"]
            assert found["HostConfig"]["CapDrop"] == ["ALL"]
            assert found["Config"]["User"].split(":")[0] == "10001"
            mounted = {mount["Name"] for mount in found["Mounts"] if mount["Type"] == "volume"}
            assert mounted == {f"{site.project}_records", f"{PROJECT}_witness"}
            assert not [secret for secret in secrets if secret in json.dumps(found)]
            held = docker("exec", container(part, site.project), "cat", "/run/secrets/master_key").stdout.strip()
            assert held == site.secret("master_key")


def test_nobody_opens_the_records_of_another(admin: Client, three: dict[str, Site]) -> None:
    """The service's own containers and each site's try the file and the key of all four datasets."""
    datasets = [upload(admin).id, *(site.dataset.id for site in three.values())]
    projects = [PROJECT, *(site.project for site in three.values())]
    for place, project in enumerate(projects):
        for part in ("api", "worker"):
            tried = run_python(OPEN, *datasets, service=part, project=project).splitlines()
            expected = ["FileNotFoundError NotReady"] * len(datasets)
            expected[place] = "opened opened"
            assert tried == expected, (project, part)
    with Client(three["south"].url, three["north"].key) as elsewhere:
        for refused in (elsewhere.validation, elsewhere.erase):
            with pytest.raises(FarthingError, match="north") as told:
                refused(three["north"].dataset.id)
            assert (told.value.status, told.value.code) == (409, "conflict")


def test_three_sites_search_together_and_each_ledger_is_charged_once(
    admin: Client, analyst: Client, secret: str, three: dict[str, Site]
) -> None:
    before = {name: spent(admin, site) for name, site in three.items()}
    job = submit(analyst, three, **SEARCH)
    own = jobs_of(admin, job.id)
    assert transactions(own) == {"reserve": (3, 1)}, "all are reserved for in one transaction"
    ended = end(analyst, job.id)
    assert ended.state == "succeeded", ended
    assert clients(admin, job.id) == [(name, "succeeded", None) for name in ROWS]
    found = transactions(own)
    assert found["reserve"] == (3, 1)
    assert found["settle"][0] == len(own), "each once, when it has handed its release in"
    for one in own:
        assert repeats(paid(one)) < ended.attempt, "and pays a lost attempt's chunk again, no other"
    for name, site in three.items():
        assert 0 < spent(admin, site) - before[name] <= PRICE * (1 + 0.1 * (ended.attempt - 1))
    assert ended.released is not None
    models = []
    for site in three.values():
        with Client(site.url, secret) as there:
            models.append(there.export(ended.released))
    assert len(set(models)) == 1, "every API tells the same model"


def test_a_site_that_is_lost_leaves_the_rest_to_the_quorum(
    admin: Client, analyst: Client, three: dict[str, Site]
) -> None:
    """Killed with its container, in the middle, and not back in time: charged what it spent, and the others go on."""
    before = {name: spent(admin, site) for name, site in three.items()}
    job = submit(analyst, three, quorum=2)
    own = dict(zip(ROWS, jobs_of(admin, job.id), strict=True))
    seen = until(lambda: analyst.job(job.id).progress.step)
    addresses = {name: site.address for name, site in three.items()}
    for name, site in three.items():
        connected = set(run_python(CONNECTED, service="worker", project=site.project).split())
        assert connected >= set(addresses.values()) - {addresses[name]}, "trainers of different containers talk"

    docker("kill", three["south"].worker)
    waiting = until(lambda: found if (found := analyst.job(job.id)).state == "queued" else None)
    assert clients(admin, job.id) == [(name, "queued", None) for name in ROWS], "nobody is lost at once"
    assert waiting.progress.step < STEPS, "it was killed in the middle"
    ended = end(analyst, job.id)
    assert ended.state == "succeeded", ended
    assert ended.attempt >= 2, "the others began again"
    assert clients(admin, job.id) == [
        ("north", "succeeded", None),
        ("south", "failed", "worker-lost"),
        ("west", "succeeded", None),
    ]
    chunks = {name: paid(one) for name, one in own.items()}
    every = set(chunks["north"])
    assert every == set(chunks["west"]) == set(range(len(every))), "who stays pays for every chunk"
    assert set(chunks["south"]) == set(range(len(chunks["south"]))) < every, "who is lost for those it answered"
    assert len(chunks["south"]) * STEPS >= seen * len(every), "and for all that were seen"
    for name, site in three.items():
        assert repeats(chunks[name]) < ended.attempt, "a lost attempt's chunk again, no other"
        share = chunks[name].total() / len(every)
        assert spent(admin, site) - before[name] == pytest.approx(PRICE * share, rel=0.05)
    assert transactions(list(own.values()))["reserve"] == (3, 1)

    docker("start", three["south"].worker)
    again = submit(analyst, three, optimizer={"kind": "noisy_gd", "steps": 10})
    assert end(analyst, again.id).state == "succeeded", "it is there again, with its records"
