"""Federated jobs by real processes: three owners, three ledgers; sites killed, starved and sent messages twice.

Sites write their readings to a file by themselves, just before each reading (see `tests.workers.test_kills`).
"""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from core.db.tables import Job
from core.privacy.events import EVENT, Event, compose
from examples import bank
from tests.support.embedded import LINEAR, Embedded, embedded, readings
from tests.support.federated import SIZES, STEPS, Federation, check, states, submit, unpaid
from tests.support.transcripts import check_transcripts

BANK_FEATURES = ["age", "duration", "campaign", "housing", "loan", "contact"]
SLOW = {"SLOW": "0.1", "PATIENCE": "6", "LISTEN": "1"}
QUIET: dict[str, Any] = {"lease_seconds": 8.0}
"""Long enough for a loaded machine to start three trainers."""


SEARCH: dict[str, Any] = {
    "optimizer": {
        "kind": "gauss_psgd",
        "mode": "given",
        "batch": 60,
        "difference_batch": 10,
        "restart_drift": 1e6,
        "error_radius": 1e-6,
        "escape_distance": 0.4,
        "round_steps": 2,
        "rounds": 2,
        "step_size": 0.1,
        "hessian_smoothness": 1.0,
        "steps": 40,
    },
    "model": {**LINEAR, "loss": {"kind": "squared"}, "weights": {"kind": "clip", "bound": 1.0}},
}
"""One fresh gradient, and changes from there on."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed=SLOW, **QUIET) as running:
        yield running


def asked_by_attempts(home: Path, job: str) -> list[list[str]]:
    """Return the kinds of questions that each process of a client was asked, in their order."""
    told = [json.loads(line) for line in (home / "transcripts.jsonl").read_text().splitlines()]
    sums = [line for line in told if line["job"] == job and "sum" in line]
    by = list(dict.fromkeys(line["by"] for line in sums))
    return [[line["sum"]["question"]["kind"] for line in sums if line["by"] == process] for process in by]


def schedule(row: Job) -> Counter[Event]:
    """Return the events that a client reserved."""
    return Counter(EVENT.validate_python(event) for event in row.schedule)


@pytest.mark.statistical
def test_three_owners_are_charged_each_for_its_own_answers(service: Embedded) -> None:
    job = submit(service, None)
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    check(job)
    read = readings(service.home)
    for name in job.clients:
        assert sum(read[name].values()) >= STEPS, "everybody answers every question"
        if ended["attempt"] == 1:
            assert compose(read[name]) == compose(schedule(job.row(name))), "what is drawn is what is priced"
    if ended["attempt"] == 1:
        check_transcripts(job)
    model = service.get(f"/v1/models/{ended['result']['model']}")
    assert model["release"]["units"] == sum(SIZES)


@pytest.mark.slow
def test_a_killed_client_is_lost_and_the_others_go_on(service: Embedded) -> None:
    job = submit(service, 2)
    job.until_step(5)
    job.process(1).kill()
    ended = job.wait()
    assert ended["state"] == "succeeded", ended
    assert states(ended) == [("succeeded", None), ("failed", "trainer-failed"), ("succeeded", None)]
    assert ended["attempt"] == 2
    check(job)
    lost = ended["federation"]["sites"][1]["cost"]
    whole = sum(float(lost[name]["budget_share"]) for name in ("reserved", "retry_allowance"))
    assert float(lost["spent"]["budget_share"]) == pytest.approx(whole, rel=1e-3)


@pytest.mark.slow
def test_without_a_quorum_one_loss_ends_the_job(service: Embedded) -> None:
    job = submit(service, None)
    job.until_step(5)
    job.process(0).kill()
    ended = job.wait()
    assert (ended["state"], ended["error"]) == ("failed", {"code": "site-lost"})
    assert states(ended) == [("failed", "trainer-failed"), ("failed", "site-lost"), ("failed", "site-lost")]
    check(job)
    for client in ended["federation"]["sites"][1:]:
        assert 0 < float(client["cost"]["spent"]["budget_share"]) < float(client["cost"]["reserved"]["budget_share"])


@pytest.mark.slow
def test_a_starved_client_stops_everybody_and_costs_a_chunk_at_most(service: Embedded) -> None:
    """It stands still past the lease and past the others' patience: nobody knows of what, so nobody is lost for it."""
    job = submit(service, 2)
    job.until_step(5)
    job.process(2).send_signal(signal.SIGSTOP)
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    assert ended["attempt"] == 2
    check(job)


@pytest.mark.slow
def test_a_killed_supervisor_costs_each_client_a_chunk_at_most(service: Embedded) -> None:
    job = submit(service, 2)
    job.until_step(5)
    assert service.kill("supervisor")
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    check(job)
    read = readings(service.home)
    for name in job.clients:
        assert sum(read[name].values()) <= STEPS + 2, "it goes on where it was"


@pytest.mark.slow
def test_a_drained_supervisor_loses_nothing(service: Embedded) -> None:
    job = submit(service, None)
    job.until_step(5)
    assert service.kill("supervisor", signal.SIGTERM)
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    check(job)
    read = readings(service.home)
    assert [sum(read[name].values()) for name in job.clients] == [STEPS] * 3, "nothing was asked twice"


@pytest.mark.slow
def test_a_client_that_claims_too_much_ends_the_job_at_what_was_spent(service: Embedded) -> None:
    """After a drain nothing was lost, so nobody can know more than another."""
    job = submit(service, 2)
    job.until_step(5)
    (service.home / "liar").write_text(job.clients[2])
    assert service.kill("supervisor", signal.SIGTERM)
    ended = job.wait()
    (service.home / "liar").unlink()
    assert (ended["state"], ended["error"], ended["attempt"]) == ("failed", {"code": "site-lost"}, 2), ended
    assert states(ended) == [("failed", "site-lost")] * 3
    line = service.get(f"/v1/jobs/{job.id}/events")["data"][-1]
    assert line["kind"] == "failed"
    assert line["data"]["by"] == 2
    assert line["data"]["misled"] in (0, 1)
    check(job)
    for client in ended["federation"]["sites"]:
        spent = float(client["cost"]["spent"]["budget_share"])
        assert 0 < spent < float(client["cost"]["reserved"]["budget_share"]), "nobody pays for what was only claimed"
    read = readings(service.home)
    assert all(sum(read[name].values()) < STEPS for name in job.clients)


@pytest.mark.slow
def test_a_cancelled_job_is_cancelled_for_all(service: Embedded) -> None:
    job = submit(service, None)
    job.until_step(3)
    assert service.http.post(f"/v1/jobs/{job.id}/cancel").is_success
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("cancelled", [("cancelled", None)] * 3)
    check(job)


@pytest.mark.slow
def test_one_cancelled_client_is_lost_and_the_others_go_on(service: Embedded) -> None:
    job = submit(service, 2)
    job.until_step(3)
    assert service.http.post(f"/v1/jobs/{job.clients[0]}/cancel").is_success
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("cancelled", None), *[("succeeded", None)] * 2])
    check(job)


@pytest.mark.slow
def test_a_stream_goes_on_without_reading_twice(service: Embedded) -> None:
    optimizer = {"kind": "one_pass_clipped_sgd", "steps": STEPS, "batch": 20}
    model = {**LINEAR, "loss": {"kind": "squared"}, "weights": {"kind": "clip", "bound": 1.0}}
    job = submit(service, 2, optimizer=optimizer, model=model)
    job.until_step(5)
    job.process(1).kill()
    ended = job.wait()
    assert ended["state"] == "succeeded", ended
    assert states(ended) == [("succeeded", None), ("failed", "trainer-failed"), ("succeeded", None)]
    read = readings(service.home)
    assert all(sum(read[name].values()) <= STEPS for name in job.clients), "no batch is read twice"
    model = service.get(f"/v1/models/{ended['result']['model']}")
    assert model["release"].get("error_bound") is None, "nothing is claimed of a mean that has lost a client"


@pytest.mark.slow
def test_a_search_for_a_second_order_point_is_federated(service: Embedded) -> None:
    """Batches of two sizes, drift restarts and rounds, all decided from means: clients agree to the last bit."""
    head, *lines = bank.records().rstrip().split(b"\n")
    halves = [b"\n".join([head, *lines[first::2], b""]) for first in (0, 1)]
    datasets = [service.upload(half, **bank.metadata(epsilon="20")) for half in halves]
    model = {"kind": "logistic", "target": "y", "features": BANK_FEATURES, "loss": {"kind": "brier"}}
    body = {
        "federation": {"datasets": datasets, "quorum": None},
        "model": {**model, "weights": {"kind": "clip"}},
        "optimizer": {
            "kind": "gauss_psgd",
            "hessian_smoothness": 0.1,
            "preset": "fast",
            "escape_distance": 0.4,
            "spread": 0.2,
        },
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
    }
    answer = service.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": uuid4().hex})
    assert answer.status_code == 202, answer.text
    told = answer.json()
    job = Federation(service, told["id"], [client["job"] for client in told["federation"]["sites"]])
    ended = job.wait(240)
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 2), ended
    counted = [sum(readings(service.home)[name].values()) for name in job.clients]
    assert counted[0] == counted[1] > 0, "both answer every question"
    model = service.get(f"/v1/models/{ended['result']['model']}")
    assert model["release"]["error_bound"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("how", ["TWICE", "STALE"])
def test_what_was_said_before_is_not_heard(tmp_path: Path, how: str) -> None:
    """Everything twice; and the first thing of all again after everything."""
    with embedded(tmp_path / "home", observed={how: "1"}, **QUIET) as service:
        job = submit(service, None)
        ended = job.wait()
        assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
        check(job)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "step"), [(0, 0), (2, 0), (0, STEPS // 2), (2, STEPS - 2)])
def test_whichever_client_dies_whenever(service: Embedded, place: int, step: int) -> None:
    """At its first reading, in the middle, and before the last steps: no invariant hangs on who or when."""
    job = submit(service, 2)
    job.until_read(place, step + 1)
    job.process(place).kill()
    ended = job.wait()
    assert ended["state"] == "succeeded", ended
    expected = [("succeeded", None)] * 3
    expected[place] = ("failed", "trainer-failed")
    assert states(ended) == expected
    check(job)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, STEPS - 2])
def test_a_supervisor_may_die_at_the_first_reading_and_before_the_last(service: Embedded, step: int) -> None:
    job = submit(service, 2)
    job.until_read(1, step + 1)
    assert service.kill("supervisor")
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    check(job)


@pytest.mark.slow
def test_a_client_without_memory_is_lost_and_the_others_go_on(service: Embedded) -> None:
    """It asks for more than there is, at its next reading."""
    job = submit(service, 2)
    job.until_read(1, 3)
    (service.home / "starve").write_text(job.clients[1])
    ended = job.wait()
    assert ended["state"] == "succeeded", ended
    assert states(ended) == [("succeeded", None), ("failed", "limit-exceeded"), ("succeeded", None)]
    check(job)


@pytest.mark.slow
def test_a_search_that_loses_a_client_begins_its_estimate_anew(tmp_path: Path) -> None:
    """The running estimate of those that are left has the lost client in it: they ask for a fresh gradient first."""
    observed = {**SLOW, "SLOW": "0.3", "LISTEN": "1"}
    with embedded(tmp_path / "home", observed=observed, **QUIET) as service:
        job = submit(service, 2, **SEARCH)
        job.until_read(1, 12)
        job.process(1).kill()
        ended = job.wait(240)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
        model = service.get(f"/v1/models/{ended['result']['model']}")
        assert model["release"].get("error_bound") is None
        for place in (0, 2):
            before, after = asked_by_attempts(service.home, job.clients[place])
            assert before[0] == after[0] == "gradient"
            assert before[-1] == "gradient_difference", "it was far from asking for a fresh one"


@pytest.mark.slow
def test_answering_before_paying_would_be_seen(tmp_path: Path) -> None:
    """Planted bug: a chunk is paid when the next one is, so that answers leave before their payment."""
    with embedded(tmp_path / "home", observed={**SLOW, "NAIVE": "1"}, **QUIET) as service:
        job = submit(service, None)
        job.until_step(5)
        assert service.kill("supervisor")
        job.wait()
        assert unpaid(job)
