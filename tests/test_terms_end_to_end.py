"""Interactions, an exposure and sampling weights through HTTP, the SDK and the command line, and over three sites."""

import csv
import io
import json
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from farthing import Client
from farthing.cli import app
from tests.support import federated
from tests.support.embedded import KEY, SEEDS, Embedded

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "lower": 18, "upper": 95, "centre": 50},
    {"name": "smoker", "type": "binary", "values": ["no", "yes"]},
    {"name": "job", "type": "category", "values": ["a", "b", "c"]},
    {"name": "years", "type": "number", "lower": 0.5, "upper": 8},
    {"name": "w", "type": "number", "lower": 0, "upper": 4},
    {"name": "shift", "type": "number", "lower": -2, "upper": 2},
    {"name": "visits", "type": "integer", "lower": 0, "upper": 60},
    {"name": "ill", "type": "binary", "values": ["no", "yes"]},
]
COUNTS = {
    "kind": "poisson",
    "target": "visits",
    "features": ["age", "smoker", "job"],
    "exposure": "years",
    "sampling_weights": "w",
    "interactions": [["age", "smoker"], ["job", "smoker"]],
}
TRUTH = {"intercept": -1.5, "age": 0.01, "smoker": -0.45, "age:smoker": 0.015, "job[b]": 0.2, "job[c]": 0.0}
UNITS = 12_000


def people(rows: int = UNITS) -> bytes:
    draws = np.random.default_rng(next(SEEDS))
    age, smoker, job = draws.normal(54, 11, rows).clip(18.5, 94.5), draws.random(rows) < 0.4, draws.integers(0, 3, rows)
    years, w, shift = draws.uniform(0.5, 6, rows), draws.choice([1.0, 4.0], rows), draws.uniform(-2, 2, rows)
    eta = -1.5 + 0.01 * age + (-0.45 + 0.015 * age) * smoker + 0.2 * (job == 1)
    visits = draws.poisson(np.exp(eta) * years).clip(0, 60)
    ill = draws.random(rows) < 1 / (1 + np.exp(-eta - shift))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column["name"] for column in COLUMNS])
    words = np.array(["no", "yes"])
    for row in zip(
        age.round(2), words[smoker.astype(int)], np.array(list("abc"))[job], years.round(3), w, shift.round(3), visits,
        words[ill.astype(int)], strict=True,
    ):  # fmt: skip
        writer.writerow(row)
    return text.getvalue().encode()


@pytest.fixture(scope="module")
def dataset(service: Embedded) -> str:
    return service.upload(people(), columns=COLUMNS, budget={"epsilon": "19", "delta": "1e-6"})


@pytest.fixture(scope="module")
def model(service: Embedded, dataset: str) -> str:
    """A model of counts; one job in 24,000 does not converge, and another one follows."""
    for _ in range(2):
        job = service.wait(
            service.submit(dataset, model=COUNTS, optimizer={"kind": "whitened_newton"}, privacy={"mu": "2"})
        )
        assert job["state"] == "succeeded", job
        if service.converged(job["result"]["model"]):
            break
    return str(job["result"]["model"])


@pytest.mark.statistical
def test_names_intervals_and_notes_follow(service: Embedded, model: str) -> None:
    """Each within six of its standard errors: false alarm 1 in 10^8."""
    shown = service.get(f"/v1/models/{model}/summary")
    found = {line["name"]: line for line in shown["coefficients"]}
    assert set(found) == {*TRUTH, "job[b]:smoker", "job[c]:smoker"}
    for name, line in found.items():
        assert line["flags"] == [], line
        assert abs(line["estimate"] - TRUTH.get(name, 0.0)) < 6 * line["std_error"], line
    notes = " ".join(shown["notes"])
    assert "exposure years" in notes
    assert "worth about" in notes
    learned = service.get(f"/v1/models/{model}")["release"]["checks"]["learned"]["sampling"]
    assert learned["mean"] == pytest.approx(2.5 / 4, rel=0.1)
    assert learned["effect"] == pytest.approx(8.5 / 2.5**2, rel=0.15)
    assert "interactions age:smoker, job:smoker" in service.get(f"/v1/models/{model}/methods")["text"]
    page = service.http.get(f"/v1/models/{model}/summary?format=html")
    assert "age:smoker" in page.text
    ratios = service.get(f"/v1/models/{model}/rate-ratios")["rate_ratios"]
    assert {one["name"] for one in ratios} == {*found} - {"intercept"}


def test_the_sdk_tests_contrasts_and_predicts(service: Embedded, model: str) -> None:
    with Client(service.url, KEY) as client:
        read = client.model(model)
        assert read.wald_test("age:smoker = 0").degrees_of_freedom == 1
        assert read.wald_test("age:smoker = 0, job[b]:smoker = job[c]:smoker").degrees_of_freedom == 2
        slope = read.contrast({"age": 1, "age:smoker": 1})
        assert slope.estimate == pytest.approx(
            sum(one.estimate for one in read.table().coefficients if one.name in {"age", "age:smoker"})
        )
        row = {"age": 60, "smoker": "yes", "job": "b", "years": 1}
        one, five = read.predict([row, {**row, "years": 4}], level=0.95)
        assert five["mean"] / one["mean"] == pytest.approx(4.0)
        assert five["std_error"] / one["std_error"] == pytest.approx(4.0)
        told = {line.name: line.estimate for line in read.table().coefficients}
        eta = told["intercept"] + told["job[b]"] + told["smoker"] + told["job[b]:smoker"]
        eta += 60 * (told["age"] + told["age:smoker"])
        # Predictions are shrunk: where coefficients are known, by a small part of a standard error.
        assert abs(one["mean"] - exp(eta + log(1))) < 0.1 * one["std_error"]
    absent = service.http.post(f"/v1/models/{model}/predict", json={"rows": [{**row, "years": None}]})
    assert absent.status_code == 422
    assert absent.json()["errors"][0]["pointer"] == "/rows/0/years"


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"exposure": "shift"}, "/model/exposure"),
        ({"offset": "shift"}, "/model/exposure"),
        ({"sampling_weights": "shift"}, "/model/sampling_weights"),
        ({"sampling_weights": "nobody"}, "/model/sampling_weights"),
        ({"interactions": [["age", "nobody"]]}, "/model/interactions/0/1"),
        ({"interactions": [["age"]]}, "/model/interactions/0"),
        ({"interactions": ["age:smoker"]}, "/model/interactions/0"),
        ({"kind": "multinomial", "target": "job"}, "/model/exposure"),
    ],
)
def test_what_does_not_fit_names_its_field(
    service: Embedded, dataset: str, changes: dict[str, Any], pointer: str
) -> None:
    refused = service.try_submit(dataset, model={**COUNTS, **changes}, optimizer={"kind": "whitened_newton"})
    assert refused.status_code == 422, refused.text
    assert pointer in " ".join(one["pointer"] for one in refused.json()["errors"]), refused.text


def test_estimates_and_the_command_line_warn_where_a_main_effect_is_missing(
    service: Embedded, dataset: str, tmp_path: Path
) -> None:
    asked = {"dataset": dataset, "model": {**COUNTS, "features": ["age", "job"]}, "privacy": {"mu": "1"}}
    found = service.http.post("/v1/estimates", json=asked).json()
    assert "age:smoker is in the model without smoker" in found["notes"][0]
    assert {one["name"] for one in found["prediction"]["coefficients"]} >= {"age:smoker", "job[b]:smoker"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(asked))
    said = CliRunner().invoke(app, ["estimate", str(file), "--url", service.url, "--key", KEY])
    assert said.exit_code == 0, said.output
    assert "age:smoker is in the model without smoker" in " ".join(said.output.split())


def test_the_interface_describes_them(service: Embedded) -> None:
    schemas = service.get("/openapi.json")["components"]["schemas"]
    assert {"offset", "exposure", "sampling_weights", "interactions"} <= set(schemas["PoissonModel"]["properties"])


def test_three_sites_fit_one_model_with_them(service: Embedded) -> None:
    """Toy rows of ages apart: the federation's facts agree, weights and offset and product included."""
    model = {
        "kind": "logistic",
        "target": "y",
        "features": ["age"],
        "interactions": [["age", "job"]],
        "offset": "balance",
        "sampling_weights": "balance",
    }
    job = federated.submit(
        service,
        None,
        model=model | {"sampling_weights": None},
        optimizer={"kind": "whitened_newton"},
        privacy={"mu": "1.2"},
        inference={},
    )
    ended = job.wait()
    assert (ended["state"], federated.states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    federated.check(job)
    release = service.get(f"/v1/models/{ended['result']['model']}")["release"]
    assert [one["name"] for one in release["design"]["features"]][-2:] == ["age:job[b]", "age:job[c]"]
    assert release["checks"]["learned"]["offset"] is not None
    weighted = federated.submit(
        service,
        None,
        model={**model, "offset": None},
        optimizer={"kind": "whitened_newton"},
        privacy={"mu": "1.2"},
        inference={},
    )
    ended = weighted.wait()
    assert (ended["state"], federated.states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    sampling = service.get(f"/v1/models/{ended['result']['model']}")["release"]["checks"]["learned"]["sampling"]
    assert 0.1 < sampling["mean"] < 0.9
