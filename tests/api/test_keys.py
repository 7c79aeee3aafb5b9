import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.api import Service, job, metadata, submit, upload


class TestKeys:
    def test_the_secret_is_shown_once(self, service: Service, admin: httpx.Client) -> None:
        headers = {"Idempotency-Key": uuid4().hex}
        body = {"name": "ann", "role": "analyst"}
        made = admin.post("/v1/keys", json=body, headers=headers)
        assert made.status_code == 201
        assert {"id", "key", "role"} <= made.json().keys()
        assert made.json()["role"] == "analyst"
        secret = made.json()["key"]
        again = admin.post("/v1/keys", json=body, headers=headers)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json()["key"] is None
        assert again.json()["id"] == made.json()["id"]
        assert secret not in admin.get("/v1/keys?limit=100").text
        who = service.client(secret).get("/v1/me").json()
        assert who == {
            "id": made.json()["principal"],
            "object": "principal",
            "name": "ann",
            "role": "analyst",
            "key": made.json()["id"],
        }

    def test_rotate_and_revoke(self, service: Service, admin: httpx.Client) -> None:
        client, made = service.someone("owner")
        fresh = client.post(f"/v1/keys/{made['id']}/rotate").json()
        assert client.get("/v1/me").status_code == 401
        renewed = service.client(fresh["key"])
        assert renewed.get("/v1/me").json()["id"] == made["principal"]
        assert renewed.post(f"/v1/keys/{fresh['id']}/revoke").status_code == 403
        revoked = admin.post(f"/v1/keys/{fresh['id']}/revoke")
        assert revoked.json()["revoked_at"] is not None
        assert renewed.get("/v1/me").status_code == 401
        assert admin.post(f"/v1/keys/{fresh['id']}/revoke").status_code == 404
        assert admin.post("/v1/keys/key_nowhere/rotate").status_code == 404

    def test_roles(self, service: Service) -> None:
        client, made = service.someone("analyst")
        refused = client.post("/v1/keys", json={"name": "x", "role": "admin"})
        assert refused.status_code == 403
        listed = client.get("/v1/keys").json()["data"]
        assert [key["id"] for key in listed] == [made["id"]]
        assert listed[0]["last_used_at"] is not None
        _, other = service.someone("owner")
        assert client.post(f"/v1/keys/{other['id']}/rotate").status_code == 404

    def test_one_more_key_for_a_principal(self, service: Service, admin: httpx.Client) -> None:
        _, made = service.someone("owner")
        body = {"name": "second", "role": "owner", "principal": made["principal"]}
        assert admin.post("/v1/keys", json=body).json()["principal"] == made["principal"]
        assert admin.post("/v1/keys", json={**body, "role": "admin"}).status_code == 404

    def test_an_expired_key_is_no_key(self, service: Service, admin: httpx.Client) -> None:
        made = admin.post("/v1/keys", json={"name": "brief", "role": "owner", "expires_in_seconds": 1}).json()
        assert made["expires_at"] is not None
        client = service.client(made["key"])
        for _ in range(100):
            if client.get("/v1/me").status_code == 401:
                break
        else:
            import time  # noqa: PLC0415 - only on a fast machine

            time.sleep(1)
        assert client.get("/v1/me").status_code == 401

    @pytest.mark.parametrize("body", [{"name": "x", "role": "king"}, {"role": "owner"}, {"name": "", "role": "owner"}])
    def test_wrong_bodies(self, admin: httpx.Client, body: dict[str, str]) -> None:
        assert admin.post("/v1/keys", json=body).status_code == 422


class TestAuthentication:
    @pytest.mark.parametrize(
        "header", [None, "Bearer", "Bearer x", "Basic eDp5", "Bearer \xe9", "Bearer " + "x" * 5000]
    )
    def test_no_key_no_answer(self, service: Service, header: str | None) -> None:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        answer = httpx.get(f"{service.url}/v1/datasets", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["WWW-Authenticate"] == "Bearer"

    def test_problems_have_the_promised_shape(self, service: Service) -> None:
        answer = httpx.get(f"{service.url}/v1/datasets")
        problem = answer.json()
        members = {"type", "title", "status", "detail", "code", "retryable", "actor", "errors", "request_id"}
        assert members <= problem.keys()
        assert problem["status"] == 401
        assert problem["request_id"] == answer.headers["X-Request-Id"]
        assert answer.headers["content-type"] == "application/problem+json"

    @pytest.mark.parametrize(("path", "method", "status"), [("/nowhere", "GET", 404), ("/v1/keys", "PATCH", 405)])
    def test_routing_errors_are_problems(self, admin: httpx.Client, path: str, method: str, status: int) -> None:
        answer = admin.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


def only_own(client: httpx.Client, who: dict[str, Any]) -> bool:
    """Tell whether somebody without data reads its own lines alone, and those about its keys."""
    lines = client.get("/v1/audit").json()["data"]
    return all(line["principal"] == who["principal"] or line["target"] == f"keys/{who['id']}" for line in lines)


class TestAudit:
    def test_who_asked_for_what(self, service: Service, admin: httpx.Client) -> None:
        client, made = service.someone("analyst")
        missing = client.get("/v1/datasets/ds_nowhere/budget")
        line = client.get("/v1/audit").json()["data"][0]
        assert line["principal"] == made["principal"]
        assert line["action"] == "GET /v1/datasets/{dataset_id}/budget"
        assert line["target"] == "datasets/ds_nowhere/budget"
        assert (line["status"], line["code"]) == (404, "not-found")
        assert line["request_id"] == missing.json()["request_id"]
        assert only_own(client, made)
        assert len({entry["principal"] for entry in admin.get("/v1/audit").json()["data"]}) > 1

    def test_a_line_names_what_was_made(self, service: Service, admin: httpx.Client) -> None:
        owner, made = service.someone("owner")
        data = upload(owner)
        declared = owner.post("/v1/datasets", json=metadata(name="later")).json()["id"]
        asked = submit(owner, job(data["id"])).json()["id"]
        fresh = owner.post("/v1/keys", json={"name": "x", "role": "owner", "principal": made["principal"]}).json()["id"]
        rotated = owner.post(f"/v1/keys/{fresh}/rotate").json()["id"]
        lines = admin.get("/v1/audit").json()["data"]
        named = [line["target"] for line in lines if line["principal"] == made["principal"]][:5]
        assert named == [
            f"keys/{fresh}/rotate/{rotated}",
            f"keys/{fresh}",
            f"jobs/{asked}",
            f"datasets/{declared}",
            f"datasets/{data['id']}",
        ]

    def test_an_owner_reads_who_asked_about_his_data_and_of_nobody_else(
        self, service: Service, admin: httpx.Client
    ) -> None:
        (owner, who), (other, _), (ann, analyst) = (service.someone(role) for role in ("owner", "owner", "analyst"))
        data, theirs = upload(owner), upload(other)
        owner.put(f"/v1/datasets/{data['id']}/access/{analyst['principal']}", json={"budget_cap": "all"})
        asked = submit(ann, job(data["id"])).json()["id"]
        ann.get(f"/v1/datasets/{theirs['id']}/budget")
        for path in (f"datasets/{data['id']}/budget", f"scopes/{data['scope']}", f"jobs/{asked}/report"):
            ann.get(f"/v1/{path}")
        admin.post(f"/v1/keys/{service.someone('owner')[1]['id']}/revoke")
        admin.post(f"/v1/keys/{who['id']}/rotate")
        exported = [json.loads(line) for line in owner.get("/v1/audit/export").text.splitlines()]
        listed = owner.get("/v1/audit?limit=100").json()["data"]
        for lines in (exported, listed[::-1]):
            own = [line["target"] for line in lines if line["principal"] == analyst["principal"]]
            assert own == [
                f"jobs/{asked}",
                f"datasets/{data['id']}/budget",
                f"scopes/{data['scope']}",
                f"jobs/{asked}/report",
            ]
            mine = {who["principal"], analyst["principal"]}
            rest = [line["target"] for line in lines if line["principal"] not in mine]
            assert [target.partition("_")[0] for target in rest] == ["keys/key"] * 2, "his first key, and the attempt"
            assert rest[1] == f"keys/{who['id']}/rotate"
        assert ann.get("/v1/audit/export").status_code == 403
        assert only_own(ann, analyst)

    def test_export(self, service: Service, admin: httpx.Client) -> None:
        analyst, _ = service.someone("analyst")
        auditor, _ = service.someone("auditor")
        assert analyst.get("/v1/audit/export").status_code == 403
        text = auditor.get("/v1/audit/export").text
        found = [json.loads(line) for line in text.splitlines()]
        assert found == sorted(found, key=lambda line: line["id"])
        assert any(line["action"] == "POST /v1/keys" for line in found)
        table = admin.get("/v1/audit/export?format=csv")
        assert table.headers["content-type"].startswith("text/csv")
        assert table.text.splitlines()[0].startswith("id,principal,action")
        assert service.key not in text
