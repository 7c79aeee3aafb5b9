"""The way of a job over HTTP, and a race for a budget, on each database that the service runs on."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import pytest

from tests.api.test_models import THETA, finish
from tests.support.api import Service, job, running, submit, upload
from tests.support.store import create_postgresql
from tests.support.verified import verified

CLIENTS = 8


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Service]:
    """A service on an empty database of its own."""
    url = None
    if request.param == "postgresql":
        url = create_postgresql(request.getfixturevalue("postgresql_server"), f"farthing_http_{worker_id}")
    with running(tmp_path_factory.mktemp("home"), url) as found:
        assert found.settings.url.startswith(request.param)
        yield found


@pytest.fixture(scope="module")
def admin(service: Service) -> httpx.Client:
    return service.client()


def test_from_an_upload_to_what_is_left_of_the_budget(service: Service, admin: httpx.Client) -> None:
    made = upload(admin)
    assert (made["rows"], made["state"]) == (400, "ready")
    body, key = job(made["id"]), uuid4().hex
    quoted = admin.post("/v1/estimates", json=body).json()
    assert quoted["fits"] is True
    asked = submit(admin, body, key)
    assert asked.status_code == 202, asked.text
    queued = asked.json()
    assert queued["cost"]["reserved"]["mu"] == quoted["cost"]["mu"] == "0.1"
    again, other = submit(admin, body, key), submit(admin, job(made["id"], mu="0.2"), key)
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (queued, "true")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    reserved = admin.get(f"/v1/datasets/{made['id']}/budget").json()["budget_share"]
    assert float(reserved["reserved"]) > 0 == float(reserved["spent"])

    model = finish(service, queued["id"])
    done = admin.get(f"/v1/jobs/{queued['id']}").json()
    assert (done["state"], done["result"]["model"]) == ("succeeded", model)
    summary = admin.get(f"/v1/models/{model}/summary").json()
    assert len(summary["coefficients"]) == len(THETA)
    assert all(line["interval"][0] < line["estimate"] < line["interval"][1] for line in summary["coefficients"])
    left = admin.get(f"/v1/datasets/{made['id']}/budget").json()
    assert float(left["budget_share"]["reserved"]) == 0
    entries = admin.get(f"/v1/scopes/{made['scope']}/entries", params={"limit": 100}).json()["data"]
    assert left["entries"] == len(entries)
    assert verified(admin, made["scope"])["ok"] is True
    refused = submit(admin, job(made["id"], mu="50"))
    assert (refused.status_code, refused.json()["code"]) == (403, "privacy-budget-exhausted")


def test_clients_that_race_reserve_exactly_what_fits(service: Service, admin: httpx.Client) -> None:
    made = upload(admin, shift=1)
    body = job(made["id"], mu="0.1")
    fits = admin.post("/v1/estimates", json=body).json()["jobs_that_still_fit"]
    assert fits > CLIENTS

    def ask(client: httpx.Client) -> int:
        while (answer := submit(client, body)).status_code == 503:
            assert answer.json()["code"] == "ledger-busy"  # as a busy machine may have it; nothing was written
        return answer.status_code

    def race(tries: int) -> Counter[int]:
        with service.client() as client:
            return Counter(ask(client) for _ in range(tries))

    with ThreadPoolExecutor(CLIENTS) as pool:
        seen = sum(pool.map(race, [2 * fits // CLIENTS + 1] * CLIENTS), Counter())
    assert seen[202] == fits, seen
    assert set(seen) == {202, 409}, "what does not fit is refused, and nothing else happens"
    assert admin.post("/v1/estimates", json=body).json()["jobs_that_still_fit"] == 0
    assert verified(admin, made["scope"])["ok"] is True
