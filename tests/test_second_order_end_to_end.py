"""Gauss-PSGD end to end through HTTP on the bank data: planned, charged once, killed and resumed, its claim shown."""

from typing import Any

import pytest

from core.privacy.events import Gaussian
from tests.support.bank_jobs import brier, release_of, summary_of, upload
from tests.support.embedded import Embedded, readings

pytestmark = pytest.mark.slow
"""The quick variant is `tests/training/test_two_batch_sizes.py`: the same ledger, privacy filter, oracle and method."""

MODEL = brier("age", "duration", "campaign", "housing", "loan", "contact")
BODY: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "0.5"}}
FAST = {"kind": "gauss_psgd", "hessian_smoothness": 0.1, "preset": "fast", "escape_distance": 0.4, "spread": 0.2}


@pytest.fixture(scope="module")
def data(service: Embedded) -> str:
    return upload(service)


def quote(service: Embedded, dataset: str, **optimizer: Any) -> Any:
    """Ask what a job costs."""
    return service.http.post("/v1/estimates", json={"dataset": dataset, **BODY, "optimizer": FAST | optimizer})


def test_an_estimate_shows_what_may_be_claimed_and_what_it_takes(service: Embedded, data: str) -> None:
    answer = quote(service, data)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    plan = found["plan"]
    figures = plan["figures"]
    assert plan["sampling"] == {"kind": "stream", "batches": [plan["batch"], plan["difference_batch"]]}
    assert plan["sigma"] == {"gradient": pytest.approx(2.0), "gradient_difference": pytest.approx(2.0)}
    assert found["cost"]["mu"] == "0.5", "all answers cost what one does"
    assert figures["alpha"] == pytest.approx(4 * plan["error_radius"])
    assert figures["alpha"] < figures["alpha_trivial"]
    assert figures["gamma_star"] == pytest.approx((0.1 * figures["alpha"]) ** 0.5)
    assert 0.5 <= figures["chance_of_escape_per_round"] <= 1
    assert 2 * figures["units_of_a_certificate"] <= figures["units_at_most"]
    assert figures["units_at_most"] == service.get(f"/v1/datasets/{data}")["rows"]
    assert found["bound"]["vacuous"] is False


@pytest.mark.parametrize(
    ("optimizer", "pointer", "said"),
    [
        ({"preset": "strict", "escape_distance": None, "spread": None}, "/privacy", "2 Q (b1 + Gamma b2)"),
        ({"mode": "theory"}, "/optimizer/mode", "is above M"),
        ({"escape_distance": None}, "/optimizer/escape_distance", "needs"),
        ({"mode": "given"}, "/optimizer/batch", "needs"),
        ({"batch": 40_000}, "/optimizer/batch", "2 Q (b1 + Gamma b2)"),
        ({"clip": 100.0}, "/optimizer/clip", "needs"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_allows_no_claim_is_refused_with_its_figures(
    service: Embedded, data: str, optimizer: dict[str, Any], pointer: str, said: str
) -> None:
    answer = quote(service, data, **optimizer)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert pointer in [one["pointer"] for one in problem["errors"]]
    assert said in problem["detail"]


def test_how_fast_curvatures_change_is_known_of_this_loss_but_not_of_one_that_never_bends_down(
    service: Embedded, data: str
) -> None:
    found = quote(service, data, hessian_smoothness=None).json()["plan"]
    figures = found["figures"]
    assert found["hessian_smoothness"] > found["smoothness"], "rho of a unit's loss, for rows beyond norm 1"
    assert figures["gamma_star"] == pytest.approx((found["hessian_smoothness"] * figures["alpha"]) ** 0.5)
    convex = BODY | {"dataset": data, "model": MODEL | {"loss": {"kind": "logistic"}}}
    answer = service.http.post("/v1/estimates", json=convex | {"optimizer": FAST | {"hessian_smoothness": None}})
    assert answer.status_code == 422, answer.text
    (said,) = answer.json()["errors"]
    assert said["pointer"] == "/optimizer/hessian_smoothness"
    assert "convex losses" in said["detail"]


def test_a_killed_job_reads_nothing_twice_pays_once_and_shows_its_claim(service: Embedded, data: str) -> None:
    done = service.lose_worker("paid 6", data, **BODY, optimizer=FAST)
    assert (done["state"], done["attempt"]) == ("succeeded", 2), done
    assert done["cost"]["spent"]["mu"] == done["cost"]["reserved"]["mu"] == "0.5", "one price, whoever was lost"
    release = release_of(service, done)
    ended = release["error_bound"]["second_order"]
    asked = sum(readings(service.home)[done["id"]].values())
    assert ended["restarts"] + ended["differences"] <= asked, "some answers were lost with the worker"
    assert set(readings(service.home)[done["id"]]) == {Gaussian(sigma=2.0)}
    sizes = done["optimizer"]["batch"], done["optimizer"]["difference_batch"]
    assert ended["restarts"] * sizes[0] + ended["differences"] * sizes[1] <= 45211, "each unit once at most"
    assert ended["outcome"] in {"no_escape_observed", "data_exhausted"}
    assert ended["phases"] >= 1
    assert release["error_bound"]["confidence"] is None, "no theorem covers calibrated figures"
    assert "of escape" in summary_of(service, done)


def test_the_catalogue_has_its_card(service: Embedded) -> None:
    cards = {card["kind"]: card for card in service.get("/v1/optimizers")["data"]}
    assert cards["gauss_psgd"]["adjacency"] == ["zero_out", "replace_one"]
    assert {one["checked"] for one in cards["gauss_psgd"]["assumptions"]} == {"static", "runtime", "declared"}
