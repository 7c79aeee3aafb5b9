"""Notices that are sent: they are signed, no redirect is followed, and none is lost."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import select, update
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from api import posting
from core.access import deliveries as rows
from core.base.settings import ServiceSettings
from core.db.notice_tables import Delivery, NoticeMark, Webhook
from core.jobs import jobs
from core.jobs import workers as worker_rows
from core.jobs.presence import Worker
from core.ledger.claims import freeze_ledger
from core.service import parcels
from tests.support.api import Service, job, joined, running, submit, upload
from tests.support.authority import server_context
from tests.support.listener import Listener, Request, listening
from tests.support.store import create_postgresql

OPEN = {
    "FARTHING_WEBHOOK_HTTP": "true",
    "FARTHING_WEBHOOK_NETWORKS": "127.0.0.0/8, ::1/128",
    "FARTHING_NOTICE_SECONDS": "0.2",
    "FARTHING_WEBHOOK_SECONDS": "5",
    "FARTHING_VISIBLE_GRID_SECONDS": "0",
}
SECONDS = 120.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("notices"), **OPEN) as found:
        yield found


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def make(client: httpx.Client, url: str, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"url": url, **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def view(client: httpx.Client, hook: dict[str, Any]) -> dict[str, Any]:
    found = client.get("/v1/webhooks", params={"limit": 100}).json()["data"]
    return next(one for one in found if one["id"] == hook["id"])


def log(client: httpx.Client, hook: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/v1/webhooks/{hook['id']}/deliveries?limit=100").json()["data"]
    return found


def tried(client: httpx.Client, hook: dict[str, Any], attempts: int = 1) -> dict[str, Any]:
    """Wait until the newest delivery of a webhook has had so many attempts, the last one to its end; return it."""
    deadline = time.monotonic() + SECONDS
    while True:
        newest = log(client, hook)[:1]
        now = datetime.now(UTC).isoformat()
        if newest and newest[0]["attempts"] >= attempts and (newest[0]["next_at"] or "9999") > now:
            return newest[0]
        assert time.monotonic() < deadline, newest
        time.sleep(0.05)


def test(client: httpx.Client, hook: dict[str, Any]) -> None:
    assert client.post(f"/v1/webhooks/{hook['id']}/test").status_code == 202


test.__test__ = False  # type: ignore[attr-defined]


def change(service: Service, statement: Any) -> None:
    database = service.database()
    database.transaction(lambda session: session.execute(statement))
    database.dispose()


def verify(secret: str, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = Verifier(secret).verify(request.body, request.headers)
    return found


class TestSignatures:
    def test_a_receiver_verifies_and_forgeries_fail(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, f"{listener.url}/hook?a=b")
        test(client, hook)
        (came,) = listener.wait(1)
        event = verify(hook["secret"], came)
        assert event["type"] == "webhook.test"
        assert event["data"] == {"webhook": hook["id"]}
        assert came.path == "/hook?a=b"
        assert came.headers["webhook-id"] == log(client, hook)[0]["id"]
        other = make(client, f"{listener.url}/other")
        for secret, body, headers in (
            (other["secret"], came.body, came.headers),
            (hook["secret"], came.body.replace(b"test", b"tess"), came.headers),
            (hook["secret"], came.body, came.headers | {"webhook-id": "msg_other"}),
            (hook["secret"], came.body, came.headers | {"webhook-timestamp": str(int(time.time()) - 3600)}),
            (hook["secret"], came.body, came.headers | {"webhook-signature": "v1,AAAA"}),
        ):
            with pytest.raises(WebhookVerificationError):
                Verifier(secret).verify(body, headers)

    def test_two_secrets_sign_for_a_day(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, listener.url)
        fresh = client.post(f"/v1/webhooks/{hook['id']}/rotate").json()
        test(client, hook)
        (came,) = listener.wait(1)
        assert len(came.headers["webhook-signature"].split(" ")) == 2
        assert verify(hook["secret"], came) == verify(fresh["secret"], came)
        change(service, update(Webhook).where(Webhook.id == hook["id"]).values(previous_until=1.0))
        test(client, hook)
        later = listener.wait(2)[1]
        assert len(later.headers["webhook-signature"].split(" ")) == 1
        verify(fresh["secret"], later)
        with pytest.raises(WebhookVerificationError):
            verify(hook["secret"], later)


class TestWhereItGoes:
    def test_no_redirection_is_followed(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, f"{listener.url}/first")
        listener.answer = lambda _: (307, {"location": f"{listener.url}/inside"}, b"")
        test(client, hook)
        assert tried(client, hook)["trouble"] == "redirect"
        assert {one.path for one in listener.requests} == {"/first"}

    def test_what_was_allowed_once_is_looked_at_again(self, tmp_path: Path, listener: Listener) -> None:
        """The address of a webhook that is in the database already is refused where it is not allowed any more."""
        with running(tmp_path, **OPEN) as service:
            client, _ = service.someone("analyst")
            hook = make(client, listener.url)
            inside = listener.url.replace("127.0.0.1", "localhost")
            change(service, update(Webhook).where(Webhook.id == hook["id"]).values(url=inside))
            with joined(service, **OPEN | {"FARTHING_WEBHOOK_NETWORKS": ""}) as strict:
                service.process.terminate()
                service.process.wait(timeout=30)
                there = strict.client(client.headers["Authorization"].removeprefix("Bearer "))
                test(there, hook)
                assert tried(there, hook)["trouble"] == "address"
        assert listener.requests == []

    def test_the_answer_s_body_is_not_read(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, listener.url)
        listener.answer = lambda _: (200, {"content-length": str(10**12)}, b"x" * 10**6)
        test(client, hook)
        found = tried(client, hook)
        assert (found["state"], found["status"]) == ("delivered", 200)

    def test_a_slow_answer_ends(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, listener.url)

        def drip(_: Request) -> tuple[int, dict[str, str], bytes]:
            time.sleep(20)
            return 204, {}, b""

        listener.answer = drip
        test(client, hook)
        assert tried(client, hook)["trouble"] == "timeout"
        assert view(client, hook)["state"] == "failing"

    def test_nobody_there(self, service: Service) -> None:
        client, _ = service.someone("analyst")
        with listening() as gone:
            hook = make(client, gone.url)
        test(client, hook)
        found = tried(client, hook)
        assert (found["trouble"], found["status"], found["state"]) == ("connection", None, "waiting")
        assert found["next_at"] > found["happened_at"]

    def test_a_slow_one_keeps_nobody_else_waiting(self, service: Service, listener: Listener) -> None:
        """One principal's ten webhooks hang; another's gets its event meanwhile."""
        slow, _ = service.someone("analyst")
        quick, _ = service.someone("analyst")
        with listening() as tarpit:
            tarpit.answer = lambda _: (time.sleep(15), (204, {}, b""))[1]
            for place in range(10):
                hook = make(slow, f"{tarpit.url}/{place}")
                for _ in range(3):
                    test(slow, hook)
            tarpit.wait(1)
            mine = make(quick, listener.url)
            test(quick, mine)
            listener.wait(1)
            assert len(tarpit.requests) < 10


class TestNames:
    def test_tls_is_with_the_name_and_the_connection_with_the_address(self, tmp_path: Path) -> None:
        """The certificate is of `localhost`, to which nothing connects by name."""
        tls, trusted = server_context(tmp_path, "localhost")
        options = OPEN | {"FARTHING_WEBHOOK_HTTP": "false", "SSL_CERT_FILE": str(trusted)}
        with listening("127.0.0.1", tls) as there, running(tmp_path / "home", **options) as service:
            client = service.client()
            hook = make(client, there.url.replace("127.0.0.1", "localhost"))
            test(client, hook)
            (came,) = there.wait(1)
            assert came.headers["host"].startswith("localhost:")
            verify(hook["secret"], came)
            by_number = make(client, there.url)
            test(client, by_number)
            assert tried(client, by_number)["trouble"] == "connection", "the certificate names no 127.0.0.1"
            assert len(there.requests) == 1

    def test_a_name_is_resolved_once_for_each_delivery(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """DNS rebinding: the name has an open address when it is checked, and one inside at the next question."""
        asked = []

        def rebind(host: str, port: int, *rest: Any, **more: Any) -> list[tuple[Any, ...]]:
            del rest, more
            asked.append(host)
            address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        with listening("127.0.0.1") as checked:
            port = int(checked.url.rpartition(":")[2])
            monkeypatch.setattr(socket, "getaddrinfo", rebind)
            settings = ServiceSettings(webhook_http=True, webhook_networks="127.0.0.1/32")
            post = parcels.Post("msg_1", 1, f"http://rebinding.example:{port}/x", b"{}", (b"secret",))
            assert anyio.run(posting.post, settings, post) == parcels.SendingEnd(204)
            assert anyio.run(posting.post, settings, post) == parcels.SendingEnd(trouble="address")
            assert [one.headers["host"] for one in checked.requests] == [f"rebinding.example:{port}"]
        assert asked == ["rebinding.example"] * 2

    def test_no_proxy_of_the_environment_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with listening() as proxy, listening() as there:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            settings = ServiceSettings(webhook_http=True, webhook_networks="127.0.0.1/32")
            post = parcels.Post("msg_1", 1, there.url, b"{}", (b"secret",))
            assert anyio.run(posting.post, settings, post) == parcels.SendingEnd(204)
            assert (len(proxy.requests), len(there.requests)) == (0, 1)


class TestFailures:
    def test_attempts_are_bounded_and_come_later_each_time(self, service: Service, listener: Listener) -> None:
        client, _ = service.someone("analyst")
        hook = make(client, listener.url)
        listener.answer = lambda _: (500, {}, b"")
        test(client, hook)
        came = []
        for attempt in range(1, rows.MOST_ATTEMPTS + 1):
            found = tried(client, hook, attempt)
            came.append(found)
            change(service, update(Delivery).where(Delivery.id == found["id"]).values(next_at=1.0))
        assert [one["state"] for one in came] == ["waiting"] * (rows.MOST_ATTEMPTS - 1) + ["given-up"]
        assert {one["status"] for one in came} == {500}
        time.sleep(1)
        assert len(listener.requests) == rows.MOST_ATTEMPTS
        assert len({one.headers["webhook-id"] for one in listener.requests}) == 1, "a receiver knows it again"

    @pytest.mark.parametrize(("answer", "days", "reason"), [(500, 3.1, "failing"), (410, 0, "gone")])
    def test_one_that_is_gone_is_switched_off_and_a_test_switches_it_on(
        self, service: Service, listener: Listener, answer: int, days: float, reason: str
    ) -> None:
        client, who = service.someone("owner")
        hook = make(client, listener.url)
        listener.answer = lambda _: (answer, {}, b"")
        database = service.database()
        with database.write() as session:
            row = session.get_one(Webhook, hook["id"])
            row.failing_since = row.created_at - days * 86_400 if days else None
        database.dispose()
        test(client, hook)
        tried(client, hook)
        assert (view(client, hook)["state"], view(client, hook)["off_reason"]) == ("off", reason)
        assert log(client, hook)[0]["state"] == "given-up"
        lines = service.client().get("/v1/audit", params={"limit": 100}).json()["data"]
        assert (who["principal"], f"webhook {reason}", f"webhooks/{hook['id']}") in [
            (line["principal"], line["action"], line["target"]) for line in lines
        ]
        listener.answer = lambda _: (204, {}, b"")
        test(client, hook)
        assert tried(client, hook)["state"] == "delivered"
        assert view(client, hook)["state"] == "on"

    @pytest.mark.parametrize("how", ["revoke", "rotate", "disable"])
    def test_it_ends_with_its_key(self, service: Service, listener: Listener, how: str) -> None:
        """The holder of a stolen key hears of nothing once the key is revoked."""
        client, made = service.someone("analyst")
        hook = make(client, listener.url)
        admin = service.client()
        match how:
            case "revoke":
                extra = admin.post("/v1/keys", json={"name": "x", "role": "analyst", "principal": made["principal"]})
                other = service.client(extra.json()["key"])
                assert other.post(f"/v1/keys/{made['id']}/revoke").status_code == 200
            case "rotate":
                other = service.client(client.post(f"/v1/keys/{made['id']}/rotate").json()["key"])
            case "disable":
                path = f"/v1/principals/{made['principal']}"
                admin.post(f"{path}/disable", json={"reason": "has left"})
                other = client
                change(service, update(Delivery).values(next_at=1.0))
        if how != "disable":
            test(other, hook)
            deadline = time.monotonic() + SECONDS
            while view(other, hook)["off_reason"] != "key-ended":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            test(other, hook)
            assert tried(other, hook)["trouble"] == "key-ended"
            assert listener.requests == []
            assert other.post(f"/v1/webhooks/{hook['id']}/rotate").json()["state"] == "on"
            test(other, hook)
            listener.wait(1)
        else:
            time.sleep(1)
            assert listener.requests == []


class TestNoneIsLost:
    def test_a_killed_sender_s_delivery_is_sent_by_another(self, tmp_path: Path, listener: Listener) -> None:
        with running(tmp_path, **OPEN) as service:
            client, _ = service.someone("analyst")
            hook = make(client, listener.url)
            listener.answer = lambda _: (time.sleep(8), (204, {}, b""))[1]
            test(client, hook)
            listener.wait(1)
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait(timeout=30)
            listener.answer = lambda _: (204, {}, b"")
            with joined(service, **OPEN) as second:
                there = second.client(client.headers["Authorization"].removeprefix("Bearer "))
                first, again = listener.wait(2)[:2]
                assert first.headers["webhook-id"] == again.headers["webhook-id"]
                assert tried(there, hook, 2)["state"] == "delivered"

    def test_two_senders_send_each_once(self, tmp_path: Path, listener: Listener) -> None:
        with running(tmp_path, **OPEN) as service, joined(service, **OPEN):
            client, _ = service.someone("owner")
            dataset = upload(client)["id"]
            hook = make(client, listener.url, kinds=["job.ended"])
            made = [submit(client, job(dataset, mu="0.01")).json()["id"] for _ in range(12)]
            for one in made:
                assert client.post(f"/v1/jobs/{one}/cancel").status_code in {200, 202}
            came = listener.wait(len(made))
            time.sleep(2)
            assert sorted(verify(hook["secret"], one)["data"]["job"] for one in came) == sorted(made)
            assert len(listener.requests) == len(made)

    def test_what_ended_while_no_process_ran_is_found(self, tmp_path: Path, listener: Listener) -> None:
        with running(tmp_path, **OPEN) as service:
            client, _ = service.someone("owner")
            dataset = upload(client)["id"]
            make(client, listener.url, kinds=["job.ended"])
            one = submit(client, job(dataset)).json()["id"]
            time.sleep(1)
            service.process.terminate()
            service.process.wait(timeout=30)
            with joined(service, **OPEN | {"FARTHING_NOTICE_SECONDS": "100000"}) as blind:
                there = blind.client(client.headers["Authorization"].removeprefix("Bearer "))
                assert there.post(f"/v1/jobs/{one}/cancel").status_code in {200, 202}
            assert listener.requests == []
            change(service, update(NoticeMark).where(NoticeMark.name == "read").values(at=NoticeMark.at - 5 * 86_400))
            with joined(service, **OPEN):
                (came,) = listener.wait(1)
                assert json.loads(came.body)["data"] == {"job": one}


class TestEvents:
    def test_a_job_s_end_is_for_its_submitter_and_the_owner_alone(self, service: Service) -> None:
        (owner, _), (ann, who), (other, _) = (service.someone(role) for role in ("owner", "analyst", "owner"))
        dataset = upload(owner)
        owner.put(f"/v1/datasets/{dataset['id']}/access/{who['principal']}", json={"budget_cap": "all"})
        with listening() as first, listening() as second, listening() as third, listening() as fourth:
            for client, place in ((owner, first), (ann, second), (other, third), (service.client(), fourth)):
                make(client, place.url)
            one = submit(ann, job(dataset["id"], labels={"name": "a quiet question"})).json()["id"]
            assert ann.post(f"/v1/jobs/{one}/cancel").status_code in {200, 202}
            for place in (first, second):
                (came,) = place.wait(1, "job.ended")
                event = json.loads(came.body)
                assert set(event) == {"type", "timestamp", "data"}
                assert event["data"] == {"job": one}
                assert event["timestamp"].endswith("Z")
            time.sleep(1)
            assert third.of("job.ended") == fourth.of("job.ended") == []

    def test_a_release_that_waits_is_for_the_owner_alone(self, service: Service, listener: Listener) -> None:
        (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
        dataset = upload(owner, approval=True)["id"]
        owner.put(f"/v1/datasets/{dataset}/access/{who['principal']}", json={"budget_cap": "all"})
        make(owner, listener.url, kinds=["approval.waiting"])
        with listening() as other:
            make(ann, other.url, kinds=["approval.waiting", "job.ended"])
            one = submit(ann, job(dataset)).json()["id"]
            database = service.database()
            claim = database.transaction(jobs.claim, "test", 600.0)
            assert claim is not None
            assert claim.job_id == one
            model = database.transaction(jobs.finish, claim, {}, "pending").id
            database.dispose()
            (came,) = listener.wait(1)
            assert json.loads(came.body)["data"] == {"model": model, "job": one}
            other.wait(1, "job.ended")
            time.sleep(1)
            assert other.of("approval.waiting") == []

    def test_kinds_that_were_not_chosen_stay_away(self, service: Service, listener: Listener) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)["id"]
        make(owner, listener.url, kinds=["approval.waiting"])
        with listening() as chosen:
            make(owner, chosen.url, kinds=["job.ended"])
            one = submit(owner, job(dataset)).json()["id"]
            owner.post(f"/v1/jobs/{one}/cancel")
            chosen.wait(1)
        assert listener.requests == []

    def test_a_budget_below_a_tenth_is_for_its_owner_once(self, service: Service, listener: Listener) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)
        make(owner, listener.url, kinds=["budget.low"])
        for mu in ("0.3", "0.05"):
            while submit(owner, job(dataset["id"], mu=mu)).status_code == 202:
                pass
        (came,) = listener.wait(1)
        assert json.loads(came.body)["data"] == {"scope": dataset["scope"]}
        time.sleep(1)
        assert len(listener.requests) == 1
        with listening() as later:
            make(owner, later.url, kinds=["budget.low"])
            later.wait(1)  # it holds still

    def test_a_frozen_scope_is_for_owner_admins_and_auditors(self, service: Service) -> None:
        owner, _ = service.someone("owner")
        dataset = upload(owner)
        people = [owner, service.client(), service.someone("auditor")[0], service.someone("owner")[0]]
        with listening() as a, listening() as b, listening() as c, listening() as d:
            for client, place in zip(people, (a, b, c, d), strict=True):
                make(client, place.url, kinds=["ledger.frozen"])
            owner.post(f"/v1/scopes/{dataset['scope']}/freeze", json={"reason": "to look"})
            for place in (a, b, c):
                (came,) = place.wait(1)
                assert json.loads(came.body)["data"] == {"scope": dataset["scope"]}
                assert b"to look" not in came.body
            owner.post(f"/v1/scopes/{dataset['scope']}/unfreeze", json={"reason": "looked at"})
            time.sleep(1)
            owner.post(f"/v1/scopes/{dataset['scope']}/freeze", json={"reason": "once more"})
            a.wait(2)
            owner.post(f"/v1/scopes/{dataset['scope']}/unfreeze", json={"reason": "looked at"})
            assert d.requests == []

    def test_a_worker_that_is_gone_is_for_admins(self, service: Service, listener: Listener) -> None:
        owner, _ = service.someone("owner")
        hostile = "evil\r\nX-Header: y\x1b[2J<script>:1"
        with listening() as other:
            make(service.client(), listener.url, kinds=["worker.gone"])
            make(owner, other.url, kinds=["worker.gone"])
            database = service.database()
            database.transaction(worker_rows.see, name=hostile, queues="cpu", slots=1, gpus=0, version="1")
            time.sleep(1)
            assert listener.requests == []
            database.transaction(lambda session: session.execute(update(Worker).values(seen_at=Worker.seen_at - 1e6)))
            (came,) = listener.wait(1)
            database.transaction(worker_rows.leave, hostile)
            database.dispose()
            assert json.loads(came.body)["data"] == {"worker": hostile}
            assert "x-header" not in came.headers
            assert other.requests == []

    def test_a_frozen_ledger_is_for_all_who_own_or_watch(self, tmp_path: Path) -> None:
        with running(tmp_path, **OPEN) as service, listening() as first, listening() as second:
            make(service.someone("owner")[0], first.url)
            make(service.someone("analyst")[0], second.url)
            database = service.database()
            database.transaction(freeze_ledger, "the witness is ahead")
            (came,) = first.wait(1)
            database.dispose()
            assert json.loads(came.body) | {"timestamp": ""} == {"type": "ledger.frozen", "timestamp": "", "data": {}}
            time.sleep(1)
            assert second.requests == []


def test_on_postgresql_two_processes_send_each_once(
    tmp_path: Path, postgresql_server: str, worker_id: str, listener: Listener
) -> None:
    url = create_postgresql(postgresql_server, f"farthing_notices_{worker_id}")
    with running(tmp_path, url, **OPEN) as service, joined(service, **OPEN):
        owner, made = service.someone("owner")
        dataset = upload(owner)
        hook = make(owner, listener.url)
        names = [submit(owner, job(dataset["id"], mu="0.01")).json()["id"] for _ in range(6)]
        for one in names:
            assert owner.post(f"/v1/jobs/{one}/cancel").status_code in {200, 202}
        owner.post(f"/v1/scopes/{dataset['scope']}/freeze", json={"reason": "to look"})
        came = listener.wait(len(names) + 1)
        time.sleep(2)
        told = [verify(hook["secret"], one) for one in listener.requests]
        assert sorted(one["data"]["job"] for one in told if one["type"] == "job.ended") == sorted(names)
        assert [one["data"] for one in told if one["type"] == "ledger.frozen"] == [{"scope": dataset["scope"]}]
        assert len(listener.requests) == len(came)
        assert {one["state"] for one in log(owner, hook)} == {"delivered"}
        assert service.client().post(f"/v1/keys/{made['id']}/revoke").status_code == 200
        database, deadline, reason = service.database(), time.monotonic() + SECONDS, None
        while reason is None and time.monotonic() < deadline:
            time.sleep(0.1)
            with database.read() as session:
                reason = session.get_one(Webhook, hook["id"]).off_reason
        database.dispose()
        assert reason == "key-ended"


def test_a_claim_that_has_run_out_says_nothing(service: Service) -> None:
    """The first sender wakes up after the second one has begun: its failure takes nothing from the other's success."""
    client, _ = service.someone("analyst")
    with listening() as there:
        hook = make(client, there.url)
    test(client, hook)
    found = tried(client, hook)
    stale = parcels.Post(found["id"], found["attempts"] - 1, there.url, b"", ())
    database = service.database()
    database.transaction(parcels._note, stale, parcels.SendingEnd(204))
    with database.read() as session:
        row = session.execute(select(Delivery).where(Delivery.id == found["id"])).scalar_one()
        assert row.state == "waiting"
    database.dispose()
