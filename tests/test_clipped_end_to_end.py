"""Clipped descent end to end through HTTP on the bank data: planned, charged as planned, killed and resumed, honest."""

import csv
import io
from typing import Any

import pytest

from core.privacy.events import Gaussian
from examples import bank
from examples.kl_bank import log_loss
from tests.support.bank_jobs import upload
from tests.support.embedded import LINEAR, Embedded, readings
from tests.support.verified import verified

NONE: dict[str, Any] = {"intervals": False}
FEATURES = ["age", "duration", "campaign", "housing", "loan", "contact"]
LOGISTIC = {"kind": "logistic", "target": "y", "features": FEATURES, "weights": {"kind": "clip"}}
PRACTICAL: dict[str, Any] = {"kind": "clipped_sgd", "steps": 200, "batch": 1000}
CERTIFIED: dict[str, Any] = {"kind": "one_pass_clipped_sgd", "batch": 200}
DECLARED = {"smoothness": 1.0, "distance": 1.0, "moment": {"order": 1.5, "size": 0.1}}
UNTRAINED = 0.3610
"""Mean log loss of the base rate alone."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(bank.records().decode())))


@pytest.fixture(scope="module")
def data(service: Embedded) -> str:
    return upload(service, epsilon="8")


def run(service: Embedded, dataset: str, **body: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Ask what a job costs, submit it, wait for it, and return the estimate, the job, and its release."""
    asked = {"model": LOGISTIC, "inference": NONE, "privacy": {"budget_share": "0.05"}, **body}
    answer = service.http.post("/v1/estimates", json={"dataset": dataset, **asked})
    assert answer.status_code == 200, answer.text
    job = service.wait(service.submit(dataset, **asked))
    assert job["state"] == "succeeded", job
    return answer.json(), job, service.get(f"/v1/models/{job['result']['model']}")["release"]


def loss_of(service: Embedded, job: dict[str, Any], rows: list[dict[str, str]]) -> float:
    """Return a model's mean log loss over the public file."""
    table = service.get(f"/v1/models/{job['result']['model']}/summary")
    return log_loss({line["name"]: line["estimate"] for line in table["coefficients"]}, rows)


def kill_where(service: Embedded, place: str, dataset: str, **body: Any) -> dict[str, Any]:
    """Kill the trainer of a job where its first attempt stands still, and return the job once another ended it."""
    asked = {"model": LOGISTIC, "inference": NONE, "privacy": {"budget_share": "0.05"}, **body}
    done = service.lose_worker(place, dataset, **asked)
    assert done["state"] == "succeeded", done
    assert done["attempt"] == 2
    return done


class TestPractical:
    @pytest.mark.statistical
    @pytest.mark.parametrize(
        "optimizer",
        [
            PRACTICAL,
            pytest.param(
                {
                    **PRACTICAL,
                    "rule": {"kind": "adam"},
                    "learning_rate_schedule": "cosine",
                    "average": {"kind": "ema", "decay": 0.95},
                },
                marks=pytest.mark.slow,
            ),
        ],
        ids=["sgd", "adam"],
    )
    def test_costs_what_was_said_and_learns(
        self, service: Embedded, data: str, rows: list[dict[str, str]], optimizer: dict[str, Any]
    ) -> None:
        quoted, job, release = run(service, data, optimizer=optimizer)
        plan, units = quoted["plan"], service.get(f"/v1/datasets/{data}")["rows"]
        assert plan["sampling"] == {"kind": "poisson", "rate": pytest.approx(1000 / units)}
        assert plan["sigma"]["gradient"] > 0.3
        assert (plan["clip"], plan["steps"]) == (pytest.approx(release_clip(job)), 200)
        assert 0.049 < float(quoted["cost"]["budget_share"]) <= 0.05
        spent, reserved = job["cost"]["spent"], job["cost"]["reserved"]
        assert spent == reserved, "every step was taken"
        assert reserved["budget_share"] == quoted["cost"]["budget_share"]
        assert (spent["mu"], quoted["cost"]["mu"]) == (None, None), "samples have no mu"
        assert quoted["bound"]["value"] is None
        assert release["error_bound"] is None, "nothing is claimed"
        assert release["covariance"] is None
        assert loss_of(service, job, rows) < 0.92 * UNTRAINED

    @pytest.mark.slow
    def test_goes_on_after_a_kill_and_pays_the_lost_chunk_again(self, service: Embedded, data: str) -> None:
        whole = {**PRACTICAL, "steps": 97}
        job = kill_where(service, "paid 40", data, optimizer=whole)
        assert sum(readings(service.home)[job["id"]].values()) == 97, "what was lost was not read"
        spent, reserved = (float(job["cost"][name]["budget_share"]) for name in ("spent", "reserved"))
        assert spent == pytest.approx(reserved * 98 / 97, rel=0.01), "one chunk of 97 was paid twice"

    def test_is_refused_where_a_unit_may_change_into_any_other(self, service: Embedded) -> None:
        dataset = service.upload(adjacency="replace_one")
        body = {"dataset": dataset, "model": LINEAR, "inference": NONE, "privacy": {"mu": "1"}}
        answer = service.http.post("/v1/estimates", json={**body, "optimizer": {"kind": "clipped_sgd"}})
        problem = answer.json()
        assert answer.status_code == 422, answer.text
        assert problem["code"] == "adjacency-mismatch"
        assert [one["pointer"] for one in problem["errors"]] == ["/optimizer"]


def release_clip(job: dict[str, Any]) -> float:
    """Return the bound that a job's model has on gradients."""
    return float(job["model"]["weights"]["bound"])


@pytest.mark.parametrize(
    ("target", "figure"),
    [({"budget_share": "0.1"}, "budget_share"), ({"epsilon": "1"}, "epsilon_alone"), ({"rho": "0.05"}, None)],
)
def test_noise_follows_from_any_target(
    service: Embedded, data: str, target: dict[str, str], figure: str | None
) -> None:
    """The target is met and not undercut by more than rounding; a rho is one at the budget's orders alone."""
    body = {"dataset": data, "model": LOGISTIC, "inference": NONE, "privacy": target, "optimizer": PRACTICAL}
    answer = service.http.post("/v1/estimates", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    if figure == "budget_share":
        assert 0.0999 < float(found["cost"][figure]) <= 0.1
    elif figure is not None:
        assert 0.8 < float(found["cost"][figure]) <= 1, "shown by a tighter accountant than the one that calibrates"
    louder = {**body, "optimizer": {**PRACTICAL, "sigma": found["plan"]["sigma"]["gradient"]}}
    again = service.http.post("/v1/estimates", json=louder).json()
    assert again["cost"] == found["cost"]
    louder["optimizer"]["sigma"] *= 0.99
    refused = service.http.post("/v1/estimates", json=louder)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/optimizer/sigma"


class TestCertified:
    @pytest.mark.statistical
    def test_costs_one_answer_and_learns(self, service: Embedded, data: str, rows: list[dict[str, str]]) -> None:
        asked = {"optimizer": CERTIFIED, "privacy": {"mu": "0.5"}}
        quoted, job, release = run(service, data, **asked)
        assert (quoted["plan"]["steps"], quoted["plan"]["returns"]) == (226, "average")
        assert quoted["plan"]["sampling"] == {"kind": "stream", "batch": 200}
        assert quoted["plan"]["sigma"] == {"gradient": pytest.approx(2.0)}
        spent, reserved = job["cost"]["spent"], job["cost"]["reserved"]
        assert (spent["mu"], reserved["mu"], quoted["cost"]["mu"]) == ("0.5", "0.5", "0.5")
        assert job["cost"]["retry_allowance"] is None or job["cost"]["retry_allowance"]["budget_share"] == "0"
        assert release["steps"] == 226
        assert "not declared" in quoted["bound"]["source"]
        assert release["error_bound"]["value"] is None
        assert readings(service.home)[job["id"]] == {Gaussian(sigma=2.0): 226}, "each unit is read once at most"
        assert loss_of(service, job, rows) < 0.97 * UNTRAINED

    @pytest.mark.slow
    def test_with_declared_constants_it_claims_what_the_plan_did(self, service: Embedded, data: str) -> None:
        optimizer = {"kind": "one_pass_clipped_sgd", **DECLARED}
        quoted, job, release = run(service, data, optimizer=optimizer, privacy={"mu": "0.5"})
        bound, claim = quoted["bound"], release["error_bound"]
        assert bound["trivial"] == 0.5
        assert bound["vacuous"] == (bound["value"] >= 0.5)
        assert "refined certificate of Farthing" in bound["source"]
        assert claim["value"] == pytest.approx(bound["value"], rel=1e-6)
        assert (claim["quantity"], claim["confidence"], claim["ended_by"]) == ("excess_risk", 0.95, "steps")
        assert len(claim["conditions"]) == 3
        table = service.get(f"/v1/models/{job['result']['model']}/summary")
        assert {line["std_error"] for line in table["coefficients"]} == {None}

    @pytest.mark.slow
    def test_after_a_kill_lost_batches_are_skipped_for_nothing(self, service: Embedded, data: str) -> None:
        """3 steps a chunk: the fifth is paid, so its batches may have been read; no other attempt reads them."""
        job = kill_where(service, "paid 4", data, optimizer=CERTIFIED, privacy={"mu": "0.5"})
        release = service.get(f"/v1/models/{job['result']['model']}")["release"]
        assert release["steps"] == 223
        assert release["error_bound"]["ended_by"] == "lost_batches"
        assert sum(readings(service.home)[job["id"]].values()) == 223
        assert job["cost"]["spent"]["mu"] == "0.5"
        scope = service.get(f"/v1/datasets/{data}/budget")["scope"]
        assert verified(service.http, scope)["ok"] is True

    @pytest.mark.slow
    def test_is_offered_where_a_unit_may_change_into_any_other(self, service: Embedded) -> None:
        dataset = service.upload(adjacency="replace_one")
        model = {**LINEAR, "weights": {"kind": "clip"}, "loss": {"kind": "squared"}}
        body = {"model": model, "optimizer": {"kind": "one_pass_clipped_sgd"}, "privacy": {"mu": "1"}}
        _, job, _ = run(service, dataset, **body)
        assert job["cost"]["spent"]["mu"] == "1"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"optimizer": PRACTICAL, "inference": {}}, "/inference/intervals"),
        ({"optimizer": CERTIFIED, "inference": {}}, "/inference/intervals"),
        ({"optimizer": {**PRACTICAL, "batch": 10**6}}, "/optimizer/batch"),
        ({"optimizer": {**PRACTICAL, "mu": 1}}, "/optimizer"),
        ({"optimizer": {**PRACTICAL, "sigma": 1e-3}}, "/optimizer/sigma"),
        ({"optimizer": {**PRACTICAL, "average": {"kind": "tail", "steps": 401}}}, "/optimizer/average/steps"),
        ({"optimizer": {**CERTIFIED, "steps": 10**5}}, "/optimizer/steps"),
        ({"optimizer": {**CERTIFIED, "clip": 1e3}}, "/optimizer/clip"),
        ({"optimizer": {**CERTIFIED, "moment": {"order": 1, "size": 1}}}, "/optimizer"),
        ({"optimizer": CERTIFIED, "privacy": {"mu": "0.1"}, "goal": {"excess_risk": {"at_most": 1}}}, "/goal"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_field(
    service: Embedded, data: str, changes: dict[str, Any], pointer: str
) -> None:
    body = {"dataset": data, "model": LOGISTIC, "inference": NONE, "privacy": {"budget_share": "0.05"}} | changes
    answer = service.http.post("/v1/estimates", json=body)
    assert answer.status_code == 422, answer.text
    assert any(one["pointer"].startswith(pointer) for one in answer.json()["errors"]), answer.text


def test_the_catalogue_has_both_with_what_is_checked(service: Embedded) -> None:
    cards = {card["kind"]: card for card in service.get("/v1/optimizers")["data"]}
    assert cards["clipped_sgd"]["adjacency"] == ["zero_out"]
    assert cards["one_pass_clipped_sgd"]["adjacency"] == ["zero_out", "replace_one"]
    assert {one["checked"] for one in cards["one_pass_clipped_sgd"]["assumptions"]} == {
        "static",
        "declared",
        "runtime",
    }
