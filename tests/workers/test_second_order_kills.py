"""`check_bound` and `select_model` through real processes that are killed: the next attempt ends what the first began.

The quick variants are `tests/training/test_two_batch_sizes.py` and `tests/workers/test_resume.py`: the same filters.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from core.privacy.events import Gaussian
from tests.support.bank_jobs import brier, release_of, succeed, upload
from tests.support.embedded import Embedded, embedded, readings
from tests.workers.test_kills import charged, check, check_ledger, repeated

pytestmark = pytest.mark.slow

MODEL = brier("age", "duration", "campaign", "housing", "loan", "contact")
BODY: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "0.5"}}
CHECK_BOUND = {
    "kind": "check_bound",
    "hessian_smoothness": 0.1,
    "preset": "fast",
    "escape_distance": 0.4,
    "spread": 0.2,
}
SELECT = {"kind": "select_model", "alpha": 0.02, "gamma_star": 0.05}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed={"LISTEN": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def models(service: Embedded) -> list[str]:
    """One that has hardly left zero, where the gradient is long, and one trained to the end."""
    seen = upload(service)
    runs = ({"steps": 1, "step_size": 1e-6}, {"steps": 300})
    jobs = [succeed(service, seen, **BODY, optimizer={"kind": "noisy_gd", **run}) for run in runs]
    return [str(job["result"]["model"]) for job in jobs]


@pytest.fixture(scope="module")
def held_out(service: Embedded) -> str:
    return upload(service)


def rows_read(service: Embedded, job: str) -> Counter[int]:
    """Return how often a job's processes read each record of a stream, over all attempts."""
    lines = map(json.loads, (service.home / "transcripts.jsonl").read_text().splitlines())
    return Counter(row for line in lines if line["job"] == job and "sum" in line for row in line["sum"]["rows"])


@pytest.mark.parametrize("place", ["paid 0", "paid 1", "paid 4"])
def test_a_killed_certificate_reads_no_record_twice_and_pays_once(
    service: Embedded, models: list[str], held_out: str, place: str
) -> None:
    ended = service.lose_worker(place, held_out, **BODY, optimizer=CHECK_BOUND, models=models[1:])
    job = ended["id"]
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert ended["cost"]["spent"]["mu"] == ended["cost"]["reserved"]["mu"] == "0.5", "one price, whoever was lost"
    assert repeated(service, job) == [], "a stream is paid for once"
    check(service, [job], stream=True)
    assert set(readings(service.home)[job]) == {Gaussian(sigma=2.0)}
    read = rows_read(service, job)
    assert read, "each reading was written down"
    assert set(read.values()) == {1}, "what was lost is not read again"
    claim = release_of(service, ended)["error_bound"]
    assert claim["models"] == models[1:]
    assert claim["ended_by"] in {"no_escape_observed", "data_exhausted"}


@pytest.mark.parametrize(
    ("mode", "place"),
    [
        ("sound", "paid 0"),
        ("sound", "told 1"),
        ("sound", "paid 2"),
        ("hessian_products", "told 3"),
        ("hessian_products", "paid 5"),
        ("above_threshold", "paid 0"),
        ("exponential", "told 0"),
    ],
)
def test_a_killed_selection_pays_again_for_the_lost_answer_alone(
    service: Embedded, models: list[str], held_out: str, mode: str, place: str
) -> None:
    ended = service.lose_worker(place, held_out, **BODY, optimizer={**SELECT, "mode": mode}, models=models)
    job, (moment, chunk) = ended["id"], place.split()
    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), ended
    assert repeated(service, job) == [(int(chunk), 2)]
    _, paid = charged(service, job)
    answers = sum(paid.values()) - (moment == "paid")
    read = readings(service.home)[job]
    if mode in {"sound", "hessian_products"}:
        check(service, [job])
        assert sum(read.values()) == answers, "each answer but the lost one is read once"
        assert not read - paid
    else:  # an answer is of scores, each made of a gradient and a Hessian, which are summed and written down
        check_ledger(service, [job])
        assert sum(read.values()) == 2 * len(models) * answers
    found = release_of(service, ended)["error_bound"]["selection"]
    assert found["chosen"] == 1, found
