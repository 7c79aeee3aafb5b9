"""Invitations: the rights to invite, a token that works once, and a principal whose key nobody else has seen."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner

from core.access import invitations as rows
from core.db.service_tables import Invitation
from farthing import Client
from farthing.cli import app
from tests.support.api import Service, metadata, upload


def invite(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/invitations", json={"role": "analyst", "note": "Ann", **body})


def made(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = invite(client, **body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def accept(service: Service, token: str, name: str = "Ann Lyst") -> httpx.Response:
    return httpx.post(f"{service.url}/v1/join", json={"token": token, "name": name})


def state(client: httpx.Client, invitation: str) -> str:
    listed = client.get("/v1/invitations", params={"limit": 100}).json()["data"]
    return str(next(one["state"] for one in listed if one["id"] == invitation))


class TestWhoInvitesWhom:
    @pytest.mark.parametrize("role", ["owner", "analyst", "auditor", "admin"])
    def test_an_admin_invites_any_role(self, service: Service, admin: httpx.Client, role: str) -> None:
        told = accept(service, made(admin, role=role)["token"]).json()
        client = service.client(told["key"])
        assert client.get("/v1/me").json() == {
            "id": told["principal"],
            "object": "principal",
            "name": "Ann Lyst",
            "role": role,
            "key": told["key_id"],
        }

    def test_an_owner_invites_analysts_alone(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        made(owner)
        for role in ("owner", "auditor", "admin"):
            assert invite(owner, role=role).status_code == 403

    def test_others_invite_nobody(self, service: Service) -> None:
        for role in ("analyst", "auditor"):
            assert invite(service.someone(role)[0]).status_code == 403
        assert httpx.post(f"{service.url}/v1/invitations", json={"role": "analyst", "note": "x"}).status_code == 401

    def test_lists_and_withdrawal(self, service: Service, admin: httpx.Client) -> None:
        owner, _ = service.someone("owner")
        other, _ = service.someone("owner")
        auditor, _ = service.someone("auditor")
        one = made(owner, note="for the records")
        place = f"/v1/invitations/{one['id']}"
        assert [entry["id"] for entry in owner.get("/v1/invitations").json()["data"]] == [one["id"]]
        assert other.get("/v1/invitations").json()["data"] == []
        assert state(auditor, one["id"]) == state(admin, one["id"]) == "waiting"
        assert service.someone("analyst")[0].get("/v1/invitations").status_code == 403
        assert one["token"] not in admin.get("/v1/invitations?limit=100").text
        assert other.delete(place).status_code == 404
        assert auditor.delete(place).status_code == 403
        for _ in range(2):
            assert owner.delete(place).json()["state"] == "withdrawn"
        assert accept(service, one["token"]).status_code == 404
        assert admin.delete(f"/v1/invitations/{made(owner)['id']}").json()["state"] == "withdrawn"


class TestAcceptance:
    def test_a_token_works_once(self, service: Service, admin: httpx.Client) -> None:
        one = made(admin)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: accept(service, one["token"]).status_code, range(4)))
        assert sorted(answers) == [201, 404, 404, 404]
        assert state(admin, one["id"]) == "accepted"
        assert admin.delete(f"/v1/invitations/{one['id']}").status_code == 409

    def test_a_week_later_it_opens_nothing(self, service: Service, admin: httpx.Client) -> None:
        one = made(admin)
        database = service.database()
        with database.write() as session:
            row = session.get_one(Invitation, one["id"])
            assert row.expires_at - row.created_at == 7 * 86_400
            session.execute(update(Invitation).where(Invitation.id == one["id"]).values(expires_at=1.0))
        database.dispose()
        refused = accept(service, one["token"])
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (404, "/token")
        assert state(admin, one["id"]) == "expired"

    def test_the_token_is_stored_hashed(self, service: Service, admin: httpx.Client) -> None:
        one = made(admin)
        database = service.database()
        with database.read() as session:
            row = session.execute(select(Invitation).where(Invitation.id == one["id"])).scalar_one()
            assert one["token"] not in str(vars(row))
        database.dispose()

    def test_of_a_disabled_maker_it_opens_nothing(self, service: Service, admin: httpx.Client) -> None:
        owner, who = service.someone("owner")
        one = made(owner)
        admin.post(f"/v1/principals/{who['principal']}/disable", json={"reason": "has left"})
        assert accept(service, one["token"]).status_code == 404
        admin.post(f"/v1/principals/{who['principal']}/enable")
        assert accept(service, one["token"]).status_code == 201

    def test_the_new_owner_s_key_uploads_at_once(self, service: Service, admin: httpx.Client) -> None:
        """Nobody else has seen it, so it need not be rotated first."""
        told = accept(service, made(admin, role="owner")["token"]).json()
        upload(service.client(told["key"]))

    def test_it_leaves_a_line_that_its_maker_reads(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        one = made(owner)
        told = accept(service, one["token"]).json()
        lines = owner.get("/v1/audit").json()["data"]
        (line,) = [line for line in lines if line["action"] == "POST /v1/join"]
        assert (line["principal"], line["target"]) == (told["principal"], f"invitations/{one['id']}")
        assert one["token"] not in str(lines)

    @pytest.mark.parametrize(
        "body", [{"token": "x"}, {"name": "x"}, {"token": "", "name": "x"}, {"token": "x", "name": ""}, {}]
    )
    def test_wrong_bodies(self, service: Service, body: dict[str, str]) -> None:
        assert httpx.post(f"{service.url}/v1/join", json=body).status_code == 422

    @pytest.mark.parametrize("token", ["x", "é" * 43, "a" * 200])
    def test_invented_tokens(self, service: Service, token: str) -> None:
        assert accept(service, token).status_code == 404


class TestAccess:
    def test_an_analyst_gets_the_dataset_under_the_cap(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)["id"]
        one = made(owner, dataset=dataset, budget_cap={"budget_share": "0.1"})
        assert one["budget_cap"] == {"budget_share": "0.1"}
        told = accept(service, one["token"]).json()
        assert told["dataset"] == dataset
        seen = owner.get(f"/v1/datasets/{dataset}/access/{told['principal']}").json()
        assert (seen["budget_cap"], seen["name"]) == ({"budget_share": "0.1"}, "Ann Lyst")
        assert service.client(told["key"]).get(f"/v1/datasets/{dataset}").status_code == 200

    def test_only_to_the_own_data(self, service: Service, admin: httpx.Client) -> None:
        owner, _ = service.someone("owner")
        other, _ = service.someone("owner")
        dataset = upload(owner)["id"]
        assert invite(other, dataset=dataset, budget_cap="all").status_code == 404
        assert invite(admin, dataset=dataset, budget_cap="all").status_code == 403
        pending = owner.post("/v1/datasets", json=metadata(name="empty")).json()["id"]
        assert invite(owner, dataset=pending, budget_cap="all").status_code == 409
        for body, pointer in (
            ({"dataset": dataset}, "/budget_cap"),
            ({"budget_cap": "all"}, "/dataset"),
            ({"dataset": dataset, "budget_cap": {"budget_share": "2"}}, "/budget_cap"),
        ):
            refused = invite(owner, **body)
            assert refused.status_code == 422, refused.text
            assert refused.json()["errors"][0]["pointer"].startswith(pointer)
        assert invite(admin, role="auditor", dataset=dataset, budget_cap="all").status_code == 422

    def test_a_cap_that_cannot_be_kept_makes_nothing(self, service: Service, admin: httpx.Client) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)["id"]
        one = made(owner, dataset=dataset, budget_cap={"epsilon": "1e-9"})
        before = len(admin.get("/v1/principals?limit=100").json()["data"])
        assert accept(service, one["token"]).status_code == 422
        assert len(admin.get("/v1/principals?limit=100").json()["data"]) == before
        assert state(owner, one["id"]) == "waiting"


def test_too_many_that_wait_are_refused(service: Service) -> None:
    owner, _ = service.someone("owner")
    for _ in range(rows.MOST_WAITING):
        made(owner)
    refused = invite(owner)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


def test_a_restored_backup_revives_none(service: Service, admin: httpx.Client) -> None:
    one = made(admin)
    database = service.database()
    database.transaction(rows.forget)
    database.dispose()
    assert state(admin, one["id"]) == "withdrawn"


def test_the_client_and_the_commands(service: Service) -> None:
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": service.key}
    runner = CliRunner()
    said = runner.invoke(app, ["invite", "Bob", "--role", "auditor"], env=environment)
    assert said.exit_code == 0, said.output
    token = said.output.splitlines()[-1]
    joined = runner.invoke(app, ["join", "Bob", "--token", token], env={"FARTHING_URL": service.url})
    assert joined.exit_code == 0, joined.output
    key = joined.output.splitlines()[-1]
    with Client(service.url, key) as client:
        assert client.me().role == "auditor"
    with Client(service.url, service.key) as client:
        waiting = client.invite("analyst", "Cleo")
        assert {one.state for one in client.invitations() if one.id == waiting.id} == {"waiting"}
    done = runner.invoke(app, ["withdraw", waiting.id], env=environment)
    assert done.output == f"{waiting.id}: withdrawn\n"
    assert runner.invoke(app, ["invitations"], env=environment).exit_code == 0
    assert runner.invoke(app, ["invite", "Dan", "--dataset", "ds_1"], env=environment).exit_code == 2
