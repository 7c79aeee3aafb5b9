"""The service in one view, for admins and auditors alone."""

from typing import Any

import httpx
from sqlalchemy import update
from typer.testing import CliRunner

from core.db import clock
from core.db.tables import Job
from core.jobs import jobs, workers
from farthing import Client
from farthing.cli import app
from tests.support.api import Service, job, submit, upload
from tests.support.cluster import until


def view(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/v1/service")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_parts_limits_and_versions(service: Service, admin: httpx.Client) -> None:
    found = view(admin)
    assert (found["status"], found["trouble"]) == ("ready", None)
    assert {one["name"] for one in found["parts"]} == {"database", "broker", "storage", "ledger", "signing"}
    # Entries of jobs that run beside this test reach the witness after the database.
    until(lambda: view(admin)["witness_behind"] == 0, "the witness")
    assert found["free_disk_bytes"] > 0
    assert found["limits"]["requests_per_minute"] == service.settings.requests_per_minute
    assert found["versions"]["database_revision"] == admin.get("/version").json()["database_revision"]
    assert [one["device"] for one in found["queues"]] == ["auto", "cpu", "cuda"]


def test_a_job_from_queue_to_failure(service: Service, admin: httpx.Client) -> None:
    owner, made = service.someone("owner", "Olive")
    dataset = upload(owner)
    named = job(dataset["id"], resources={"device": "cpu", "priority": 5}, labels={"name": "first look"})
    database = service.database()
    while database.transaction(jobs.claim, "elsewhere:1", 600.0) is not None:
        pass  # jobs of other tests wait too, and the view has twenty
    answer = submit(owner, named)
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["id"]
    waiting = next(one for one in view(admin)["waiting"] if one["job"] == job_id)
    assert (waiting["name"], waiting["principal_name"], waiting["device"]) == ("first look", "Olive", "cpu")
    assert waiting["principal"] == made["principal"]
    assert waiting["waits_for"] == "any worker"
    with database.write() as session:
        workers.see(session, name="cellar:1", queues="cpu", slots=2, gpus=0, version="1")
    claim = None
    while claim is None or claim.job_id != job_id:  # other tests' jobs may wait too
        claim = database.transaction(jobs.claim, "cellar:1", 600.0)
        assert claim is not None
    found = view(admin)
    lease = next(one for one in found["leases"] if one["job"] == job_id)
    assert (lease["worker"], lease["attempt"], lease["step"], lease["steps"]) == ("cellar:1", 1, 0, 8)
    worker = next(one for one in found["workers"] if one["name"] == "cellar:1")
    assert (worker["slots"], worker["alive"]) == (2, True)
    assert worker["busy"] == sum(one["worker"] == "cellar:1" for one in found["leases"])
    with database.write() as session:
        jobs.fail(session, claim, "diverged", charge="spent")
        session.execute(update(Job).where(Job.id == job_id).values(finished_at=clock.read(session) - 5))
        workers.leave(session, "cellar:1")
    database.dispose()
    assert job_id not in {one["job"] for one in view(admin)["leases"]}
    failed = next(one for one in view(admin)["failures"] if one["code"] == "diverged")
    assert (failed["times"], failed["last_job"], failed["last_name"]) == (1, job_id, "first look")


def test_roles(service: Service, admin: httpx.Client) -> None:
    assert admin.get("/v1/service").status_code == 200
    assert service.someone("auditor")[0].get("/v1/service").status_code == 200
    assert service.someone("owner")[0].get("/v1/service").status_code == 403
    assert service.someone("analyst")[0].get("/v1/service").status_code == 403
    assert httpx.get(f"{service.url}/v1/service").status_code == 401


def test_the_client_and_the_command_show_the_same(service: Service) -> None:
    with Client(service.url, service.key) as client:
        assert client.service().status == "ready"
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": service.key}
    said = CliRunner().invoke(app, ["service"], env=environment)
    assert said.exit_code == 0, said.output
    assert "database" in said.output
