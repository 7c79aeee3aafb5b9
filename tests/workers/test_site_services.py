"""Three sites as custodians run them: each with its API, its supervisor, its key and its storage, on one PostgreSQL.

The quick variant of what each API says of another site's records is `tests/service/test_sites.py`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.embedded import LINEAR, PATIENCE_SECONDS, ROOT, START_SECONDS, Running
from tests.support.federated import STEPS, Federation, check, shard, states
from tests.support.sites import SIZES, Ground, sites

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NAMES = ("north", "south", "west")


@dataclass
class Three:
    """The APIs of three sites, with an owner at each who uploaded there, and an analyst with whom all share."""

    ground: Ground
    admins: dict[str, Running]
    owners: dict[str, Running]
    datasets: dict[str, str]
    analyst: str
    """The secret of its key."""

    def as_analyst(self, site: str) -> httpx.Client:
        """Return the analyst's client of a site's API."""
        return self.ground.client(self.admins[site].url, self.analyst)

    def as_owner(self, of: str, at: str) -> httpx.Client:
        """Return one site's owner's client of another site's API."""
        secret = self.owners[of].http.headers["Authorization"].removeprefix("Bearer ")
        return self.ground.client(self.admins[at].url, secret)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    with sites(tmp_path_factory.mktemp("three") / "home", NAMES) as ground:
        admins = {site: ground.serve(site) for site in NAMES}
        analyst = ground.secret("analyst")
        principal = ground.client(admins["west"].url, analyst).get("/v1/me").json()["id"]
        owners, datasets = {}, {}
        for place, (site, admin) in enumerate(admins.items()):
            owners[site] = replace(admin, http=ground.client(admin.url, ground.secret("owner")))
            datasets[site] = owners[site].upload(shard(SIZES[place], place), approval=site != "west")
            shared = owners[site].http.put(
                f"/v1/datasets/{datasets[site]}/access/{principal}", json={"budget_cap": "all"}
            )
            assert shared.is_success, shared.text
        yield Three(ground, admins, owners, datasets, analyst)


def refused(answer: httpx.Response) -> str:
    """Return why a request was refused as a conflict."""
    assert answer.status_code == 409, answer.text
    told = answer.json()
    assert told["code"] == "conflict"
    return str(told["detail"])


def test_an_upload_is_kept_where_it_came_and_another_site_s_api_says_so(three: Three) -> None:
    for site in NAMES:
        kept = three.ground.contexts[site].settings.home / "records"
        assert len(list(kept.iterdir())) == 1, "its own, and nobody else's"
        assert three.admins[site].http.get("/readyz").status_code == 200
        told = [three.as_owner(site, at).get(f"/v1/datasets/{three.datasets[site]}").json() for at in NAMES]
        assert [one["site"] for one in told] == [site] * 3
    name = three.datasets["north"]
    report = three.owners["north"].get(f"/v1/datasets/{name}/validation")
    assert report["rows"] == SIZES[0]
    for at in ("south", "west"):
        there = three.as_owner("north", at)
        assert "kept by the site north" in refused(there.get(f"/v1/datasets/{name}/validation"))
        assert "erase them through its own API" in refused(there.delete(f"/v1/datasets/{name}"))
        assert "erase them through its own API" in refused(three.admins[at].http.delete(f"/v1/datasets/{name}"))
        assert there.get(f"/v1/datasets/{name}/budget").is_success, "the ledger is everybody's"
    assert three.owners["north"].get(f"/v1/datasets/{name}")["state"] == "ready"
    made = three.admins["north"].http.post("/v1/keys", json={"name": "mallory", "role": "admin"})
    assert (made.status_code, made.json()["code"]) == (403, "forbidden"), "keys are made where the service is"
    assert "ask the service's own API" in made.json()["detail"]


def nothing_of_the_others(three: Three, site: str) -> None:
    """Assert that a site's API was given no other site's key, and opened no file of another's."""
    process = three.ground.processes[f"api-{site}"]
    told = str(process.environ()) + str(process.cmdline())
    for other in set(NAMES) - {site}:
        assert (three.ground.home / other / "master.key").read_text().strip() not in told
        assert f"/{other}/" not in told
        assert not [file.path for file in process.open_files() if f"/{other}/" in file.path]


def cli(three: Three, site: str, *arguments: str) -> str:
    """Run `farthing` against a site's API as the analyst, and return what it prints."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("FARTHING_")}
    environment = clean | {"FARTHING_URL": three.admins[site].url, "FARTHING_KEY": three.analyst, "COLUMNS": "200"}
    command = [sys.executable, "-m", "farthing.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_job_posted_at_one_is_approved_and_read_at_each(three: Three) -> None:
    body: dict[str, Any] = {
        "federation": {"datasets": list(three.datasets.values()), "quorum": None},
        "model": LINEAR,
        "optimizer": {"kind": "noisy_gd", "steps": STEPS},
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
    }
    analysts = {site: three.as_analyst(site) for site in NAMES}
    answer = analysts["west"].post("/v1/jobs", json=body, headers={"Idempotency-Key": uuid4().hex})
    assert answer.status_code == 202, answer.text
    made = answer.json()
    assert [client["site"] for client in made["federation"]["sites"]] == list(NAMES)
    three.ground.start("north")
    three.ground.start("south")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "a worker that serves west" not in (said := cli(three, "south", "job", made["id"])):
        assert time.monotonic() < deadline, said
    assert "(service)" not in said
    three.ground.start("west")

    south = three.admins["south"]
    ended = south.wait(made["id"])
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), (ended, three.ground.logs())
    clients = [client["job"] for client in made["federation"]["sites"]]
    check(Federation(south, made["id"], clients))
    seen = three.as_owner("north", "west").get(f"/v1/jobs/{made['id']}").json()["federation"]["sites"]
    assert [client["site"] for client in seen] == ["north", None, None], "of others' clients an owner is told no site"

    model = ended["result"]["model"]
    for judge in ("north", "south"):
        for site in NAMES:
            assert analysts[site].get(f"/v1/models/{model}").status_code == 404, "it waits for both"
        assert three.owners[judge].http.post(f"/v1/models/{model}/approve").is_success
    told = [analysts[site].get(f"/v1/models/{model}") for site in NAMES]
    assert [answer.status_code for answer in told] == [200] * 3
    assert len({json.dumps(answer.json(), sort_keys=True) for answer in told}) == 1
    assert told[0].json()["release"]["units"] == sum(SIZES)
    assert len({cli(three, site, "summary", model) for site in NAMES}) == 1
    for site in NAMES:
        nothing_of_the_others(three, site)


def test_a_site_s_own_api_erases_and_the_others_see_it(three: Three) -> None:
    name = three.datasets["west"]
    assert three.owners["west"].http.delete(f"/v1/datasets/{name}").status_code == 202
    deadline = time.monotonic() + START_SECONDS
    while three.owners["west"].get(f"/v1/datasets/{name}")["state"] != "erased":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert list((three.ground.home / "west" / "records").iterdir()) == []
    assert three.as_owner("west", "north").get(f"/v1/datasets/{name}").json()["state"] == "erased"
    answer = three.as_owner("west", "north").delete(f"/v1/datasets/{name}")
    assert (answer.status_code, answer.json()["state"]) == (202, "erased"), "nothing is left to refuse"
