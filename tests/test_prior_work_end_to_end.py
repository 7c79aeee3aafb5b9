"""Prior work end to end through HTTP: planned, killed and resumed at one price; iterates shown, and one selected."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from core.privacy.events import Gaussian
from examples import bank
from farthing import Client
from tests.support.embedded import KEY, SEEDS, Embedded, embedded, readings

pytestmark = pytest.mark.slow
"""The quick variant is `tests/optimizers/test_perturbed_spider.py`: the same door and method, lost and gone on with."""

MODEL = {
    "kind": "logistic",
    "target": "y",
    "features": ["age", "duration", "campaign", "housing"],
    "loss": {"kind": "brier"},
    "weights": {"kind": "clip"},
}
BODY: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "0.5"}}
PRIOR = {"kind": "perturbed_spider", "keep_iterates": 12}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), observed={}) as running:
        yield running


def upload(service: Embedded) -> str:
    return service.upload(bank.records().rstrip() + b"\n" * next(SEEDS), **bank.metadata(epsilon="20"))


@pytest.fixture(scope="module")
def data(service: Embedded) -> str:
    return upload(service)


@pytest.fixture(scope="module")
def done(service: Embedded, data: str) -> dict[str, Any]:
    """A job whose first worker is lost on its way."""
    (service.home / "halt").write_text("paid 6")
    halted = service.home / "halted"
    job = service.submit(data, **BODY, optimizer=PRIOR)
    deadline = time.monotonic() + 120
    while not halted.exists():
        assert time.monotonic() < deadline, service.get(f"/v1/jobs/{job}")
        time.sleep(0.05)
    (service.home / "halt").unlink()
    assert service.kill("supervisor"), "as a machine is lost"
    return service.wait(job)


def test_a_killed_job_pays_once_and_its_model_has_the_iterates(service: Embedded, done: dict[str, Any]) -> None:
    assert (done["state"], done["attempt"]) == ("succeeded", 2), done
    assert done["cost"]["spent"]["mu"] == done["cost"]["reserved"]["mu"] == "0.5", "one price, whoever was lost"
    assert set(readings(service.home)[done["id"]]) == {Gaussian(sigma=2.0)}
    model = done["result"]["model"]
    release = service.get(f"/v1/models/{model}")["release"]
    iterates = release["iterates"]
    assert 6 <= len(iterates) <= 12
    assert iterates[-1] == release["theta"], "the last one is returned"
    assert {len(one) for one in iterates} == {len(release["theta"])}
    assert len({tuple(one) for one in iterates}) == len(iterates)
    assert release["certificate"]["variant"] == "our reconstruction from prose"
    assert release["certificate"]["value"] is None
    with Client(service.url, KEY) as client:
        assert client.model(model).iterates() == iterates
    summary = service.http.get(f"/v1/models/{model}/summary", headers={"Accept": "text/plain"}).text
    assert "our reconstruction from prose" in " ".join(summary.split())


def test_a_selection_takes_one_of_the_iterates_of_a_model(service: Embedded, done: dict[str, Any]) -> None:
    held_out, model = upload(service), done["result"]["model"]
    iterates = service.get(f"/v1/models/{model}")["release"]["iterates"]
    asked: dict[str, Any] = {"kind": "select_model", "mode": "exponential", "alpha": 0.02, "gamma_star": 0.05}
    asked |= {"candidates": len(iterates)}
    selected = service.wait(service.submit(held_out, **BODY, models=[model], optimizer=asked))
    assert selected["state"] == "succeeded", selected
    release = service.get(f"/v1/models/{selected['result']['model']}")["release"]
    found = release["certificate"]["selection"]
    assert found["candidates"] == len(iterates)
    assert release["theta"] == iterates[found["chosen"]]


@pytest.mark.parametrize(
    ("optimizer", "pointer"),
    [
        ({"keep_iterates": 1001}, "/optimizer/keep_iterates"),
        ({"error_radius": 5.0}, "/optimizer/error_radius"),
        ({"clip": 100.0}, "/optimizer/clip"),
        ({"batch": 50_000}, "/optimizer/batch"),
        ({"extra_noise": -1.0}, "/optimizer/extra_noise"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_bad_figures_are_refused(service: Embedded, data: str, optimizer: dict[str, Any], pointer: str) -> None:
    answer = service.http.post("/v1/estimates", json={"dataset": data, **BODY, "optimizer": PRIOR | optimizer})
    assert answer.status_code == 422, answer.text
    assert pointer in [one["pointer"] for one in answer.json()["errors"]], answer.text


def test_the_catalogue_calls_it_a_reconstruction(service: Embedded) -> None:
    cards = {card["kind"]: card for card in service.get("/v1/optimizers")["data"]}
    assert "our reconstruction" in cards["perturbed_spider"]["title"]


def test_two_clients_follow_it_together(service: Embedded, data: str) -> None:
    other = upload(service)
    answer = service.http.post(
        "/v1/jobs",
        json={**BODY, "federation": {"datasets": [data, other]}, "optimizer": PRIOR},
        headers={"Idempotency-Key": "prior-work-of-two"},
    )
    assert answer.status_code == 202, answer.text
    ended = service.wait(answer.json()["id"])
    assert ended["state"] == "succeeded", ended
    release = service.get(f"/v1/models/{ended['result']['model']}")["release"]
    assert len(release["iterates"]) > 1
