"""The route of the check; `tests/service/test_checks.py` tests its verdicts."""

import httpx

from farthing import Client
from tests.support.api import Service, job, submit, upload


def test_everybody_checks_and_bad_bodies_are_named(service: Service) -> None:
    owner, made = service.someone("owner")
    dataset = upload(owner)
    made_job = submit(owner, job(dataset["id"])).json()["id"]
    owner.post(f"/v1/jobs/{made_job}/cancel")
    for _ in range(50):
        answer = owner.get(f"/v1/jobs/{made_job}/certificate")
        if answer.status_code == 200:
            break
    signed = answer.text
    for role in ("analyst", "auditor", "owner"):
        client, _ = service.someone(role)
        answer = client.post("/v1/certificates/check", json={"certificate": signed})
        assert answer.status_code == 200, answer.text
        assert answer.json()["ledger"] == ("agrees" if role == "auditor" else "not-compared")
    for body in ({}, {"certificate": ""}, {"certificate": 5}, {"certificate": signed, "more": 1}):
        assert owner.post("/v1/certificates/check", json=body).status_code == 422
    assert httpx.post(f"{service.url}/v1/certificates/check", json={"certificate": signed}).status_code == 401
    with Client(service.url, made["key"]) as client:
        found = client.check_certificate(signed)
        assert (found.valid, found.job) == (True, made_job)
        assert client.check_certificate("no certificate").valid is False
