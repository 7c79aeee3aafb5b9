"""A multinomial model by the default, through HTTP: estimated, trained, read, predicted with intervals, certified.

Coverage is judged in `tests/benchmarks/test_trust_classes.py`; here, that nothing is lost between the method and who
asks. Estimates within six standard errors of the truth: false alarm 2e-9 for each of six. Standard errors are .87 of
what is foreseen, give or take .044 in 30 such jobs: .55 and 1.35 are seven deviations away, 1e-11 for all six.
"""

import csv
import io
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from scipy.special import softmax

from farthing import certificates
from tests.support.embedded import SEEDS, Embedded

ROWS = 6000
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "lower": 0, "upper": 1000},
    {"name": "missing", "type": "binary", "values": ["no", "yes"]},
    {"name": "lab", "type": "number", "lower": -20, "upper": 20},
    {"name": "diet", "type": "category", "values": ["meat", "fish", "none"]},
]
TRUTH = {"intercept": (0.4, -0.2), "age": (0.03, -0.02), "lab": (0.5, 0.0)}
"""Of fish and of none, against meat."""
MODEL = {"kind": "multinomial", "target": "diet", "features": ["age", "lab"]}
GAPS = MODEL | {"features": ["age", "missing", "lab"]}
PRIVACY = {"mu": "1"}


def table(features: dict[str, np.ndarray], margins: np.ndarray, draws: np.random.Generator) -> bytes:
    """Return records as CSV, their classes drawn by margins against meat, shape (n, 2)."""
    chances = softmax(np.column_stack((np.zeros(len(margins)), margins)), 1)
    level = (chances.cumsum(1) < draws.random((len(margins), 1))).sum(1)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column["name"] for column in COLUMNS])
    writer.writerows(zip(*features.values(), np.array(COLUMNS[3]["values"])[level], strict=True))
    return text.getvalue().encode()


def people() -> bytes:
    """Return records of two numbers, of which nothing is missing but at random."""
    draws = np.random.default_rng(next(SEEDS))
    age, lab = draws.normal(45, 12, ROWS).clip(18, 95).round(3), draws.normal(0, 1, ROWS).round(4)
    margins = np.column_stack([a + b * age + c * lab for a, b, c in zip(*TRUTH.values(), strict=True)])
    return table({"age": age, "missing": draws.choice(["no", "yes"], ROWS), "lab": lab}, margins, draws)


def gaps() -> bytes:
    """Return records of which a sixth lack a measurement, coded -9; hardly anybody among them eats neither."""
    draws = np.random.default_rng(next(SEEDS))
    lacking = draws.random(ROWS) < 0.15
    age = draws.normal(45, 12, ROWS).clip(18, 95).round(3)
    lab = np.where(lacking, -9.0, draws.normal(0, 1, ROWS)).round(4)
    margins = np.column_stack((0.2 * lab + 1.8 * lacking, 0.75 * lab))
    return table({"age": age, "missing": np.where(lacking, "yes", "no"), "lab": lab}, margins, draws)


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload(people(), columns=COLUMNS, budget={"epsilon": "12", "delta": "1e-6"})


@pytest.fixture(scope="module")
def job(service: Embedded, dataset: str) -> dict[str, Any]:
    """A job that names no method, ended; one in 18,000 does not converge, and another one follows."""
    found = ended(service, dataset, MODEL)
    return found if service.converged(found["result"]["model"]) else ended(service, dataset, MODEL)


def ended(service: Embedded, dataset: str, model: dict[str, Any]) -> dict[str, Any]:
    body = {"dataset": dataset, "model": model, "privacy": PRIVACY}
    answer = service.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": uuid4().hex})
    assert answer.status_code == 202, answer.text
    found = service.wait(str(answer.json()["id"]))
    assert found["state"] == "succeeded", found
    return found


@pytest.mark.statistical
def test_it_is_the_default_costs_what_is_said_and_is_as_wide_as_foreseen(
    service: Embedded, dataset: str, job: dict[str, Any]
) -> None:
    body = {"dataset": dataset, "model": MODEL, "privacy": PRIVACY}
    estimate = service.http.post("/v1/estimates", json=body).json()
    assert estimate["method"]["kind"] == job["method"]["kind"] == "whitened_newton"
    assert job["cost"]["spent"]["rho"] == job["cost"]["reserved"]["rho"] == estimate["cost"]["rho"]
    names = [one["name"] for one in estimate["prediction"]["coefficients"]]
    assert names == [f"{level}: {name}" for level in ("fish", "none") for name in ("intercept", "age", "lab")]
    view = service.get(f"/v1/models/{job['result']['model']}")
    checks = view["release"]["checks"]
    assert (checks["job"], {flag for flags in checks["coefficients"] for flag in flags}) == ([], set())
    assert sum(checks["learned"]["class_rates"]) == pytest.approx(1.0)
    lines = {line["name"]: line for line in service.get(f"/v1/models/{view['id']}/summary")["coefficients"]}
    assert list(lines) == names
    for place, level in enumerate(("fish", "none")):
        for name, truth in TRUTH.items():
            line = lines[f"{level}: {name}"]
            assert abs(line["estimate"] - truth[place]) < 6 * line["std_error"], line
            assert 0.55 < line["std_error"] / line["foreseen_error"] < 1.35, line
            assert line["interval"][0] < line["estimate"] < line["interval"][1]
    text = service.http.get(f"/v1/models/{view['id']}/summary?format=text").text
    assert all(name in text for name in names)


@pytest.mark.statistical
def test_predictions_are_of_all_classes_and_their_intervals_hold_the_truth(
    service: Embedded, job: dict[str, Any]
) -> None:
    """At 1 - 10^-8 each of six intervals holds it."""
    rows = [{"age": 30, "lab": -1}, {"age": 60, "lab": 1.5}]
    model = job["result"]["model"]
    answer = service.http.post(f"/v1/models/{model}/predict", json={"rows": rows, "level": 0.99999999})
    assert answer.status_code == 200, answer.text
    for row, told in zip(rows, answer.json()["predictions"], strict=True):
        margins = [a + b * row["age"] + c * row["lab"] for a, b, c in zip(*TRUTH.values(), strict=True)]
        truth = softmax([0.0, *margins])
        assert set(told["probabilities"]) == {"meat", "fish", "none"}, told
        assert sum(told["probabilities"].values()) == pytest.approx(1.0)
        for level, chance in zip(("meat", "fish", "none"), truth, strict=True):
            low, high = told["intervals"][level]
            assert low < chance < high, (told, truth)


def test_its_certificate_says_what_was_drawn(service: Embedded, job: dict[str, Any]) -> None:
    text = service.http.get(f"/v1/jobs/{job['id']}/certificate").text
    signed = certificates.check(text, service.http.get("/.well-known/jwks.json").json())
    certificates.of_job(signed, job["id"])
    certificates.released(signed, service.get(f"/v1/models/{job['result']['model']}/export"))
    assert signed.payload["method"]["optimizer"]["kind"] == "whitened_newton"
    assert signed.payload["method"]["model"]["kind"] == "multinomial"
    assert signed.payload["promise"]["label"] == "guarantee"


@pytest.mark.nightly
def test_a_class_that_is_nearly_missing_among_missing_cells_has_no_interval_there(service: Embedded) -> None:
    """About one record of that class has no measurement: seen in all of 240 jobs like this, at 8,000 records.

    One of 30 such jobs said that it had not converged, and then has no interval at all.
    """
    dataset = service.upload(gaps(), columns=COLUMNS, budget={"epsilon": "12", "delta": "1e-6"})
    model = ended(service, dataset, GAPS)["result"]["model"]
    lines = {line["name"]: line for line in service.get(f"/v1/models/{model}/summary")["coefficients"]}
    withheld = lines["none: missing"]
    assert "separated" in withheld["flags"]
    assert (withheld["interval"], withheld["p_value"]) == (None, None)
    assert lines["none: lab"]["interval"] is not None
    text = service.http.get(f"/v1/models/{model}/summary?format=text").text
    assert "do not exclude that an outcome is missing" in " ".join(text.split())
