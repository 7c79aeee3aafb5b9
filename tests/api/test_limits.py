"""Limits: nothing is read, computed or kept open without a right to it, and nothing without a bound."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from api.app import create_app
from api.body import MAX_DEPTH, StrictRoute, parse_json
from api.cost import Work, cost_of
from api.limits import Places, Presence, Shares
from core.base.errors import Invalid, ServiceBusy, TooLarge, TooManyAtOnce
from core.base.settings import ServiceSettings
from tests.support.api import Service, job, metadata, running, submit, upload
from tests.support.load import head, is_open, many_values, opened, status_of, wrong_cells

BODY_SECONDS = 2.0


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with short deadlines."""
    with running(tmp_path_factory.mktemp("hurried"), FARTHING_BODY_SECONDS=str(BODY_SECONDS)) as found:
        yield found


def routes(app: Any) -> list[APIRoute]:
    """Return every route of an application, those of included routers too."""
    found: list[APIRoute] = []

    def walk(routes: Any) -> None:
        for route in routes:
            if isinstance(route, APIRoute):
                found.append(route)
            elif hasattr(route, "original_router"):
                walk(route.original_router.routes)
            else:
                raise AssertionError(f"{route} is not behind the gate")

    walk(app.routes)
    return found


class TestCosts:
    def test_every_endpoint_declares_what_it_costs(self, tmp_path: Path) -> None:
        app = create_app(ServiceSettings(home=tmp_path))
        found = routes(app)
        assert len(found) >= len(app.openapi()["paths"]) > 40
        for route in found:
            assert isinstance(route, StrictRoute), f"{route.path} is not behind the gate"
            cost = cost_of(route.endpoint)
            assert 1 <= cost.errors <= 20, route.path
            takes_json = route.body_field is not None
            assert (cost.values > 0) >= takes_json, f"{route.path} takes a body and says not of how many values"
            assert (cost.body_bytes is None or cost.body_bytes > 0) >= takes_json, route.path
            if cost.work is Work.UPLOAD:
                assert cost.roles, f"{route.path} would take files from anybody"
            by_token = route.path.startswith("/sign-in") or route.path in {"/v1/join", "/join"}
            if route.methods and route.methods - {"GET"} and not by_token:
                assert cost.roles, f"{route.path} changes something for anybody"

    def test_an_endpoint_that_declares_none_cannot_be_made(self) -> None:
        router = APIRouter(route_class=StrictRoute)
        with pytest.raises(AssertionError, match="declares no cost"):

            @router.get("/new")
            def new() -> None: ...


class TestJson:
    @pytest.mark.parametrize(
        ("raw", "values"),
        [(b"1", 1), (b"[1,2,3]", 4), (b'{"a":1,"b":[2]}', 6), (b'["a,b","[[[","\\"]"]', 4), (b'{"a\\\\":{}}', 3)],
    )
    def test_values_are_counted_as_they_stand(self, raw: bytes, values: int) -> None:
        assert parse_json(raw, values) == json.loads(raw)
        with pytest.raises(TooLarge):
            parse_json(raw, values - 1)

    def test_no_more_is_let_through_than_is_said(self) -> None:
        for raw in (many_values(20_000, 100), wrong_cells(20_000)):
            with pytest.raises(TooLarge):
                parse_json(raw, _count(json.loads(raw)) - 1)

    @pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 400_000])
    def test_depth_has_a_bound(self, levels: int) -> None:
        parse_json(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, 1000)
        with pytest.raises(Invalid):
            parse_json(b"[" * levels + b"]" * levels, 10**6)

    def test_a_wrong_text_is_named_and_nothing_else_is_written_out(self) -> None:
        body = json.dumps({"k" * 30_000: [0] * 3000 + ["\0"]}).encode()
        started = time.perf_counter()
        with pytest.raises(Invalid) as refused:
            parse_json(body, 10**6)
        assert refused.value.fields[0].pointer.startswith("/kkk")
        assert time.perf_counter() - started < 5


def _count(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    if isinstance(value, dict):
        return 1 + sum(1 + _count(item) for item in value.values())
    return 1


class TestPlaces:
    async def _hold(self, places: Places, *principals: str) -> list[Any]:
        held = [places.held(one) for one in principals]
        for one in held:
            await one.__aenter__()
        return held

    @pytest.mark.anyio
    async def test_one_principal_has_so_many_and_leaves_room_for_others(self) -> None:
        places = Places("things", 3, 2)
        held = await self._hold(places, "a", "a", "b")
        with pytest.raises(TooManyAtOnce):
            await self._hold(places, "a")
        with pytest.raises(ServiceBusy) as refused:
            await self._hold(places, "c")
        assert refused.value.retry_after_seconds
        await held[0].__aexit__(None, None, None)
        await self._hold(places, "a")

    @pytest.mark.anyio
    async def test_no_queue_of_one_delays_another(self) -> None:
        places = Places("things", 3, 2, wait_seconds=5, queued=20)
        held = await self._hold(places, "a", "a")
        queue = [asyncio.create_task(places.held("a").__aenter__()) for _ in range(20)]
        await asyncio.sleep(0.05)
        with pytest.raises(TooManyAtOnce):
            await self._hold(places, "a")
        await self._hold(places, "b")
        assert not any(one.done() for one in queue)
        await held[0].__aexit__(None, None, None)
        await asyncio.wait(queue, timeout=1, return_when=asyncio.FIRST_COMPLETED)
        assert sum(one.done() for one in queue) == 1
        for one in queue:
            one.cancel()

    @pytest.mark.anyio
    async def test_a_wait_that_ends_leaves_nothing_behind(self) -> None:
        places = Places("things", 1, 1, wait_seconds=0.05, queued=1)
        held = await self._hold(places, "a")
        with pytest.raises(ServiceBusy):
            await self._hold(places, "b")
        waiting = asyncio.create_task(places.held("b").__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        await held[0].__aexit__(None, None, None)
        assert not places._own
        await self._hold(places, "b")

    @pytest.mark.anyio
    async def test_a_place_rests_after_work_beyond_a_share_while_others_ask(self) -> None:
        here = Presence()
        shares = Shares(here.is_alone, share=0.5, free_seconds=0.01)
        places = Places("things", 2, 1, shares)
        here.note("a")
        for seconds, others in ((0.05, ()), (0.05, ("b",))):
            for one in others:
                here.note(one)
            async with places.held("a"):
                await asyncio.sleep(seconds)
        with pytest.raises(TooManyAtOnce):
            await self._hold(places, "a")
        await self._hold(places, "b")
        assert shares.rest("c", 0.005) == 0
        assert shares.rest("c", 100) <= 10

    def test_of_two_that_ask_neither_is_alone(self) -> None:
        here = Presence()
        for name in "aba":
            here.note(name)
        assert not here.is_alone("a")
        assert not here.is_alone("b")
        assert not here.is_alone("c")
        lone = Presence()
        lone.note("a")
        assert lone.is_alone("a")
        assert not lone.is_alone("b")

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"


class TestBodies:
    def test_none_is_read_of_who_has_no_key(self, service: Service) -> None:
        with opened(service, head("/v1/keys", None, 1000)) as connection:
            assert status_of(connection, 5) == 401, "the answer waits for no byte of the body"
        with opened(service, head("/v1/datasets", None, 10**9, kind="multipart/form-data; boundary=x")) as connection:
            assert status_of(connection, 5) == 401

    def test_none_is_read_of_whose_role_may_not(self, service: Service) -> None:
        _, made = service.someone("analyst")
        shut_out = "/v1/principals/pr_1/disable"
        for path, method in (("/v1/datasets", "POST"), ("/v1/datasets/ds_1/content", "PUT"), (shut_out, "POST")):
            with opened(service, head(path, made["key"], 1000, method=method)) as connection:
                assert status_of(connection, 5) == 403, path

    def test_none_is_read_that_says_to_be_too_large(self, service: Service) -> None:
        with opened(service, head("/v1/keys", service.key, 2**20 + 1)) as connection:
            assert status_of(connection, 5) == 413

    def test_one_that_stops_is_answered_408(self, hurried: Service) -> None:
        with opened(hurried, head("/v1/keys", hurried.key, 1000) + b'{"name"') as connection:
            assert status_of(connection, BODY_SECONDS + 10) == 408

    def test_two_ends_of_one_body_are_refused(self, service: Service) -> None:
        both = b"POST /v1/keys HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        with opened(service, both) as connection:
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 400")
            assert b"connection: close" in answer.lower()
            time.sleep(0.2)
            assert not is_open(connection), "what follows could be another's request"

    def test_uploads_of_who_may_not_take_no_place(self, service: Service) -> None:
        """At 9f63d67 eight of them blocked every upload for as long as they liked."""
        _, made = service.someone("analyst")
        owner, _ = service.someone("owner")
        sent = head("/v1/datasets", made["key"], 10**6, kind="multipart/form-data; boundary=x") + b"--x\r\n"
        held = [opened(service, sent) for _ in range(8)]
        try:
            assert upload(owner, shift=4711)["rows"] == 400
            assert {status_of(connection, 5) for connection in held} == {403}
        finally:
            for connection in held:
                connection.close()

    def test_unfinished_uploads_of_one_owner_leave_places_for_others(self, service: Service) -> None:
        _, greedy = service.someone("owner")
        owner, _ = service.someone("owner")
        sent = head("/v1/datasets", greedy["key"], 10**6, kind="multipart/form-data; boundary=x") + b"--x\r\n"
        held = [opened(service, sent) for _ in range(8)]
        try:
            assert upload(owner, shift=4712)["rows"] == 400
            statuses = [status_of(connection, 0.5) for connection in held]
            assert statuses.count(429) == 6, "two are being received"
        finally:
            for connection in held:
                connection.close()


class TestParsing:
    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/optimizers", "/nowhere"])
    def test_a_query_has_so_many_parameters(self, service: Service, path: str) -> None:
        refused = service.client().get(f"{path}?" + "&".join(["a"] * 2000))
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid-request")

    def test_who_hangs_up_in_the_middle_is_no_fault_of_ours(self, service: Service) -> None:
        before = (service.home / "api.log").read_text().count('"unhandled"')
        with opened(service, head("/v1/keys", service.key, 1000) + b'{"name"'):
            time.sleep(0.5)
        time.sleep(1)
        assert (service.home / "api.log").read_text().count('"unhandled"') == before


class TestErrors:
    def test_half_a_megabyte_of_wrong_cells_makes_no_heap_of_errors(self, service: Service) -> None:
        """At 9f63d67 the process grew by 505 MB, and the answer took 3.4 s."""
        analyst, _ = service.someone("analyst")
        body = wrong_cells()
        json_header = {"Content-Type": "application/json"}
        path = f"/v1/models/mdl_{'0' * 26}/predict"
        assert analyst.post(path, content=wrong_cells(5_000), headers=json_header).status_code == 422
        process = psutil.Process(service.process.pid)
        before, most, done = process.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.is_set():
                most = max(most, process.memory_info().rss)
                time.sleep(0.002)

        watching = threading.Thread(target=watch)
        watching.start()
        answer = analyst.post(path, content=body, headers=json_header)
        done.set()
        watching.join()
        assert answer.status_code in {413, 422}
        assert len(answer.json()["errors"]) <= 20
        assert most - before < 60e6, f"{(most - before) / 1e6:.0f} MB"

    def test_a_wrong_cell_is_still_named(self, service: Service) -> None:
        rows = [{"age": 1}, {"age": 2, "job": {}}]
        answer = service.client().post(f"/v1/models/mdl_{'0' * 26}/predict", json={"rows": rows})
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/rows/1/job"]


class TestAnswers:
    def test_mock_rows_have_so_many_cells(self, service: Service) -> None:
        """At 9f63d67 20 million cells were made: 2,000 rows of 2,000 columns took 7 s and 66 MB."""
        owner, _ = service.someone("owner")
        columns = [{"name": f"c{place}", "type": "number", "lower": 0, "upper": 1} for place in range(2000)]
        made = owner.post("/v1/datasets", json={**metadata(), "columns": columns}).json()
        answer = owner.get(f"/v1/datasets/{made['id']}/mock?rows=10000")
        assert answer.status_code == 422
        assert answer.json()["errors"] == [{"pointer": "#query/rows", "detail": "ask for 25 at most"}]
        assert len(owner.get(f"/v1/datasets/{made['id']}/mock?rows=25").json()["data"]) == 25

    def test_unknown_parameters_are_refused_everywhere(self, service: Service) -> None:
        """At 9f63d67 such a filter was ignored, and everything was returned."""
        client = service.client()
        refused = client.get("/v1/jobs?approved=yes&state=queued")
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["pointer"] == "#query/approved"
        assert "state" in error["detail"]
        twice = client.get("/v1/jobs?state=queued&state=failed")
        assert [error["pointer"] for error in twice.json()["errors"]] == ["#query/state"]
        assert client.get(f"/v1/models/mdl_{'0' * 26}/intervals?level=0.9&level=0.8").status_code == 404, "a list"
        paths = httpx.get(f"{service.url}/openapi.json", timeout=60).json()["paths"]
        for path, operations in paths.items():
            for method in operations:
                answer = client.request(method, path.replace("{", "").replace("}", ""), params={"no-such": "1"})
                assert answer.status_code == 422, (method, path)
                assert answer.json()["errors"][0]["pointer"] == "#query/no-such"

    def test_every_answer_is_sealed(self, service: Service) -> None:
        client = service.client()
        for path in ("/healthz", "/v1/losses", "/v1/me", "/nowhere", "/v1/datasets/ds_nowhere"):
            headers = client.get(path).headers
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"

    def test_figures_of_the_service_are_for_those_who_run_it(self, service: Service) -> None:
        assert httpx.get(f"{service.url}/metrics").status_code == 401
        assert service.someone("analyst")[0].get("/metrics").status_code == 403
        assert service.someone("auditor")[0].get("/metrics").status_code == 200


class TestStreams:
    def test_one_principal_has_so_many_and_others_have_room(self, service: Service) -> None:
        owner, made = service.someone("owner")
        other, _ = service.someone("owner")
        job_id = submit(owner, job(upload(owner, shift=4713)["id"], mu="0.01")).json()["id"]
        theirs = submit(other, job(upload(other, shift=4714)["id"], mu="0.01")).json()["id"]
        asked = (
            f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {made['key']}\r\n\r\n"
        ).encode()
        held = [opened(service, asked) for _ in range(100)]
        try:
            statuses = [status_of(connection, 20) for connection in held]
            assert (statuses.count(200), statuses.count(429)) == (64, 36)
            waited = other.get(f"/v1/jobs/{theirs}", headers={"Prefer": "wait=1"})
            assert waited.status_code == 200
            assert owner.get("/v1/me").status_code == 200, "short requests have places of their own"
        finally:
            for connection in held:
                connection.close()
        deadline = time.monotonic() + 30
        while owner.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=1"}).status_code != 200:
            assert time.monotonic() < deadline, "places come back when clients go"
            time.sleep(0.5)
