"""Prior work end to end through HTTP: planned, killed and resumed at one price; iterates shown, and one selected."""

from typing import Any

import pytest

from core.privacy.events import Gaussian
from farthing import Client
from tests.support.bank_jobs import brier, release_of, succeed, succeed_together, summary_of, upload
from tests.support.embedded import KEY, Embedded, readings

pytestmark = pytest.mark.slow
"""The quick one: `tests/methods/test_perturbed_spider.py`: the same oracle and method, lost and gone on with."""

MODEL = brier("age", "duration", "campaign", "housing")
BODY: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "0.5"}}
PRIOR = {"kind": "perturbed_spider", "keep_iterates": 12}


@pytest.fixture(scope="module")
def data(service: Embedded) -> str:
    return upload(service)


@pytest.fixture(scope="module")
def done(service: Embedded, data: str) -> dict[str, Any]:
    """A job whose first worker is lost on its way."""
    return service.lose_worker("paid 6", data, **BODY, optimizer=PRIOR)


def test_a_killed_job_pays_once_and_its_model_has_the_iterates(service: Embedded, done: dict[str, Any]) -> None:
    assert (done["state"], done["attempt"]) == ("succeeded", 2), done
    assert done["cost"]["spent"]["mu"] == done["cost"]["reserved"]["mu"] == "0.5", "one price, whoever was lost"
    assert set(readings(service.home)[done["id"]]) == {Gaussian(sigma=2.0)}
    model = done["result"]["model"]
    release = release_of(service, done)
    iterates = release["iterates"]
    assert 6 <= len(iterates) <= 12
    assert iterates[-1] == release["theta"], "the last one is returned"
    assert {len(one) for one in iterates} == {len(release["theta"])}
    assert len({tuple(one) for one in iterates}) == len(iterates)
    assert release["error_bound"]["variant"] == "our reconstruction from prose"
    assert release["error_bound"]["value"] is None
    with Client(service.url, KEY) as client:
        assert client.model(model).iterates() == iterates
    assert "our reconstruction from prose" in summary_of(service, done)


def test_a_selection_takes_one_of_the_iterates_of_a_model(service: Embedded, done: dict[str, Any]) -> None:
    iterates = release_of(service, done)["iterates"]
    asked: dict[str, Any] = {"kind": "select_model", "mode": "exponential", "alpha": 0.02, "gamma_star": 0.05}
    asked |= {"candidates": len(iterates)}
    selected = succeed(service, upload(service), **BODY, models=[done["result"]["model"]], optimizer=asked)
    release = release_of(service, selected)
    found = release["error_bound"]["selection"]
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
    ended = succeed_together(service, [data, upload(service)], **BODY, optimizer=PRIOR)
    assert len(release_of(service, ended)["iterates"]) > 1
