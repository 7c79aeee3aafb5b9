"""The methods under the KL condition, end to end through HTTP: planned, charged as they draw, and honest in the end."""

import csv
import io
from math import sqrt
from typing import Any

import numpy as np
import pytest

from tests.support.embedded import LINEAR, LOGISTIC, SEEDS, Embedded
from tests.support.verified import verified

NONE: dict[str, Any] = {"intervals": False}
WEAK = {"epsilon": "35", "delta": "1e-6", "accept_weak_privacy": True}
"""A budget of rho 10."""
RIDGE = {**LOGISTIC, "ridge": 0.1}
ROBUST = {**LINEAR, "loss": {"kind": "geman_mcclure", "scale": 2.0}}
PHASES: list[dict[str, Any]] = [
    {"name": "first", "type": "number", "lower": -1, "upper": 1},
    {"name": "second", "type": "number", "lower": -1, "upper": 1},
    {"name": "power", "type": "number", "lower": 0, "upper": 8},
]
TRUTH = (1.5, -1.0)


def phases_csv(rows: int = 4000) -> bytes:
    """Return rows whose last column is the square of 1.5 first - second."""
    features = np.random.default_rng(next(SEEDS)).uniform(-1, 1, (rows, 2))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column["name"] for column in PHASES])
    writer.writerows((f"{a:.5f}", f"{b:.5f}", f"{(TRUTH[0] * a + TRUTH[1] * b) ** 2:.5f}") for a, b in features)
    return text.getvalue().encode()


def run(service: Embedded, dataset: str, **body: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Submit a job without intervals, wait for it, and return its estimate, the job, and its release."""
    asked = {"inference": NONE, "privacy": {"mu": "4"}, **body}
    answer = service.http.post("/v1/estimates", json={"dataset": dataset, **asked})
    assert answer.status_code == 200, answer.text
    job = service.wait(service.submit(dataset, **asked))
    assert job["state"] == "succeeded", job
    return answer.json(), job, service.get(f"/v1/models/{job['result']['model']}")["release"]


def spent(job: dict[str, Any], of: str = "spent") -> float:
    return float(job["cost"][of]["rho"])


@pytest.mark.slow
def test_an_adaptive_job_reserves_the_worst_case_and_gives_back_what_it_did_not_draw(service: Embedded) -> None:
    dataset = service.upload(adjacency="replace_one", budget=WEAK)
    body = {"model": ROBUST, "optimizer": {"kind": "adaptive_gd"}, "privacy": {"mu": "1"}}
    quoted, job, release = run(service, dataset, **body)
    assert quoted["cost"]["mu"] is None, "what is known only to be zero-concentrated has no mu"
    assert float(quoted["cost"]["rho"]) == pytest.approx(0.5, rel=1e-6)
    assert 0 < spent(job) <= spent(job, "reserved"), "one that ends by its budget may have drawn all that is told of it"
    assert job["cost"]["reserved"]["rho"] == quoted["cost"]["rho"]
    assert spent(job) + spent(job, "returned") == pytest.approx(spent(job, "reserved"), rel=1e-3), (
        "figures are rounded up"
    )
    certificate = release["error_bound"]
    assert certificate["ended_by"] in ("small_gradient", "budget"), "its noise decides"
    assert certificate["quantity"] == "gradient_norm"
    assert 0 <= certificate["value"] < quoted["bound"]["trivial"]
    assert certificate["variant"] == "corrected"
    assert (release["covariance"], release["privacy"]["promise"]["mu"]) == (None, None)
    promise = release["privacy"]["promise"]["rho"]
    assert promise == job["cost"]["reserved"]["rho"], "that less was drawn was decided by answers"
    budget = service.get(f"/v1/datasets/{dataset}/budget")
    assert (budget["rho"]["spent"], budget["budget_share"]["reserved"]) == (job["cost"]["spent"]["rho"], "0")
    assert verified(service.http, budget["scope"])["ok"] is True
    report = service.get(f"/v1/jobs/{job['id']}/report")
    assert report["privacy"]["promise"]["mu"] is None
    assert report["privacy"]["promise"]["rho"] == job["cost"]["spent"]["rho"]
    assert (report["privacy"]["label"], release["privacy"]["label"]) == ("informational", "guarantee")
    summary = service.get(f"/v1/models/{job['result']['model']}/summary")
    ended_by = certificate["ended_by"].replace("_", " ")
    assert any(f"ended by {ended_by}" in note for note in summary["notes"])
    text = service.http.get(f"/v1/models/{job['result']['model']}/summary?format=text").text
    assert "claims a gradient norm of at most" in " ".join(text.split())


def test_kl_spider_takes_its_condition_from_the_ridge(service: Embedded) -> None:
    dataset = service.upload(budget=WEAK)
    body = {"model": RIDGE, "optimizer": {"kind": "kl_spider", "variant": "calibrated"}}
    quoted, job, release = run(service, dataset, **body)
    assert quoted["plan"]["condition"] == {"gamma": pytest.approx(1 / sqrt(0.2)), "kappa": 2.0}
    assert quoted["bound"]["value"] < quoted["bound"]["trivial"]
    assert not quoted["bound"]["vacuous"]
    assert 0 < spent(job) <= spent(job, "reserved")
    certificate = release["error_bound"]
    assert (certificate["quantity"], certificate["ended_by"]) == ("excess_risk", "rounds")
    assert certificate["value"] == pytest.approx(quoted["bound"]["value"])
    assert (certificate["variant"], certificate["conditions"]) == ("calibrated", []), "all of it is proved of the loss"
    table = service.get(f"/v1/models/{job['result']['model']}/summary")
    assert {line["std_error"] for line in table["coefficients"]} == {None}


@pytest.mark.slow
def test_kl_spider_asks_for_differences_where_the_condition_is_flatter(service: Embedded) -> None:
    dataset = service.upload(budget=WEAK)
    optimizer = {"kind": "kl_spider", "variant": "calibrated", "condition": {"gamma": 2.0, "kappa": 1.5}}
    quoted, job, release = run(service, dataset, model=RIDGE, optimizer=optimizer)
    assert "gradient_difference" in quoted["plan"]["sigma"]
    assert 0 < spent(job) <= spent(job, "reserved") <= 8
    assert any("KL" in condition for condition in release["error_bound"]["conditions"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        (RIDGE, {"kind": "kl_spider", "variant": "calibrated", "condition": {"gamma": 2.0, "kappa": 1.5}}),
        (ROBUST, {"kind": "adaptive_gd", "step_cap": 20, "select": "exponential"}),
    ],
    ids=["differences", "norms and a choice"],
)
def test_several_processes_answer_differences_norms_and_choices_together(
    service: Embedded, model: dict[str, Any], optimizer: dict[str, Any]
) -> None:
    dataset = service.upload(budget=WEAK)
    _, job, release = run(service, dataset, model=model, optimizer=optimizer, resources={"processes": 2})
    assert 0 < spent(job) <= spent(job, "reserved")
    assert release["error_bound"]["ended_by"] in {"rounds", "small_gradient", "budget"}
    assert job["attempt"] == 1


@pytest.mark.slow
def test_a_proximal_point_job_spends_what_its_rounds_ask(service: Embedded) -> None:
    dataset = service.upload(budget=WEAK)
    optimizer = {"kind": "proximal_point", "round_schedule": "practical", "inner_steps": "practical", "max_inner": 40}
    quoted, job, release = run(service, dataset, model=RIDGE, optimizer=optimizer)
    assert quoted["bound"]["value"] is None, "no theorem covers what is practical"
    assert spent(job) == spent(job, "reserved")
    assert spent(job, "returned") == 0
    assert release["error_bound"]["value"] is None
    assert "practical rounds" in release["error_bound"]["variant"]
    assert release["steps"] == quoted["steps"]


@pytest.mark.slow
def test_phase_retrieval_starts_at_random_and_finds_one_of_two_answers(service: Embedded) -> None:
    """b and -b are alike; from zero nobody leaves."""
    dataset = service.upload(phases_csv(20_000), columns=PHASES, budget=WEAK)
    model = {"kind": "phase_retrieval", "target": "power"}
    found = []
    for _ in range(2):
        optimizer = {"kind": "adaptive_gd", "start": "random", "smoothness": 0.5, "step_cap": 30}
        _, job, release = run(service, dataset, model=model, optimizer=optimizer, privacy={"mu": "3"})
        assert job["cost"]["spent"]["mu"] is None
        table = service.get(f"/v1/models/{job['result']['model']}/summary")["coefficients"]
        found.append([line["estimate"] for line in table])
        assert release["error_bound"]["quantity"] == "gradient_norm"
    for estimate in found:
        sign = 1 if estimate[0] > 0 else -1
        assert np.allclose([sign * value for value in estimate], TRUTH, atol=0.2), estimate


@pytest.mark.parametrize(
    ("changes", "pointer", "said"),
    [
        ({"optimizer": {"kind": "kl_spider", "condition": {"gamma": 1, "kappa": 3}}}, "/optimizer/condition/kappa", ""),
        ({"optimizer": {"kind": "kl_spider"}, "model": LOGISTIC}, "/optimizer/condition", ""),
        ({"optimizer": {"kind": "proximal_point"}, "model": LOGISTIC}, "/optimizer/condition", ""),
        ({"optimizer": {"kind": "kl_spider"}, "privacy": {"mu": "0.05"}}, "/optimizer/variant", "trivial_regime"),
        ({"optimizer": {"kind": "kl_spider"}, "inference": {"intervals": True}}, "/inference/intervals", ""),
        ({"optimizer": {"kind": "adaptive_gd"}, "inference": {}, "model": ROBUST}, "/inference/intervals", ""),
        ({"optimizer": {"kind": "adaptive_gd", "start": [0, 0]}, "model": LOGISTIC}, "/optimizer/start", ""),
        ({"optimizer": {"kind": "adaptive_gd", "start": "anywhere"}, "model": LOGISTIC}, "/optimizer/start", ""),
        ({"optimizer": {"kind": "noisy_newton"}, "model": ROBUST}, "/optimizer/kind", ""),
    ],
)
def test_what_a_method_cannot_do_is_refused_with_its_field(
    service: Embedded, refusing: str, changes: dict[str, Any], pointer: str, said: str
) -> None:
    body = {"dataset": refusing, "model": RIDGE, "inference": NONE, "privacy": {"mu": "1"}} | changes
    answers = [
        service.http.post("/v1/estimates", json=body),
        service.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": f"refused-{next(SEEDS)}"}),
    ]
    for answer in answers:
        assert answer.status_code == 422, answer.text
        assert any(one["pointer"].startswith(pointer) for one in answer.json()["errors"]), answer.text
        assert said in answer.text


@pytest.fixture(scope="module")
def refusing(service: Embedded) -> str:
    return service.upload()


SMALL_NETWORK: dict[str, Any] = {
    "kind": "network",
    "target": "power",
    "layers": [{"kind": "linear", "units": 6}, {"kind": "activation", "of": "tanh"}, {"kind": "linear", "units": 1}],
}
CONDITION = {"gamma": 2.0, "kappa": 2.0}
DECLARED: dict[str, dict[str, Any]] = {
    "adaptive_gd": {"smoothness": 2.0, "step_cap": 20},
    "kl_spider": {
        "condition": {**CONDITION, "kappa": 1.5},
        "smoothness": 2.0,
        "start_gap": 0.5,
        "variant": "calibrated",
    },
    "proximal_point": {
        "condition": CONDITION,
        "weak_convexity": 0.5,
        "start_gap": 0.5,
        "round_schedule": "practical",
        "inner_steps": "practical",
        "max_inner": 20,
    },
}


@pytest.mark.parametrize(
    ("kind", "select"),
    [
        pytest.param("adaptive_gd", "last", marks=pytest.mark.slow),
        pytest.param("adaptive_gd", "exponential", marks=pytest.mark.slow),
        pytest.param("kl_spider", None, marks=pytest.mark.slow),
        pytest.param("proximal_point", None, marks=pytest.mark.slow),
    ],
)
def test_a_network_is_trained_under_declared_constants(service: Embedded, kind: str, select: str | None) -> None:
    """The answer gives the declared constants of its loss beside its certificate: nobody has checked them."""
    dataset = service.upload(phases_csv(25_000), columns=PHASES, budget=WEAK)
    optimizer = {"kind": kind, "clip": 2.0, **DECLARED[kind], **({} if select is None else {"select": select})}
    body = {"model": SMALL_NETWORK, "optimizer": optimizer, "privacy": {"mu": "4"}}
    quoted, job, release = run(service, dataset, **body)
    assert quoted["coefficients"] == 25
    assert 0 < spent(job) <= spent(job, "reserved")
    told, held = spent(job) + spent(job, "returned"), spent(job, "reserved")
    assert told == pytest.approx(held, rel=1e-3), "figures are rounded up"
    certificate = release["error_bound"]
    if kind == "adaptive_gd":
        assert certificate["quantity"] == "gradient_norm"
        assert certificate["ended_by"] in {"small_gradient", "budget", "step_cap"}
    else:
        assert (certificate["quantity"], certificate["ended_by"]) == ("excess_risk", "rounds")
        assert any("-KL within" in said for said in certificate["conditions"])
        assert any("no unit's gradient is longer than 2 " in said for said in certificate["conditions"])
    if kind == "kl_spider":
        assert "gradient_difference" in quoted["plan"]["sigma"]
        assert certificate["value"] == pytest.approx(quoted["bound"]["value"])
    notes = service.get(f"/v1/models/{job['result']['model']}/summary")["notes"]
    assert any(certificate["ended_by"].replace("_", " ") in note for note in notes)
    rows = [{"first": 0.5, "second": -0.5}]
    answer = service.http.post(f"/v1/models/{job['result']['model']}/predict", json={"rows": rows})
    assert answer.status_code == 200, answer.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(DECLARED))
def test_what_a_method_needs_to_know_of_a_network_is_named(service: Embedded, kind: str) -> None:
    dataset = service.upload(phases_csv(100), columns=PHASES, budget=WEAK)
    body = {"model": SMALL_NETWORK, "optimizer": {"kind": kind}, "privacy": {"mu": "2"}, "inference": NONE}
    answer = service.http.post("/v1/estimates", json={"dataset": dataset, **body})
    assert answer.status_code == 422
    needed = [name for name in ("condition", "smoothness", "weak_convexity") if name in DECLARED[kind]]
    assert [field["pointer"] for field in answer.json()["errors"]] == [f"/optimizer/{name}" for name in needed]
