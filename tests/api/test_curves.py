"""The curve of width against budget is the estimate at nine targets: same price, same widths, nothing reserved."""

import json
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from farthing import Client
from farthing.cli import app
from tests.support.api import Service, upload


@pytest.fixture(scope="module")
def big(admin: httpx.Client) -> str:
    return str(upload(admin, rows=4000)["id"])


def asked(dataset: str, **changes: Any) -> dict[str, Any]:
    base = {"dataset": dataset, "model": {"kind": "logistic", "target": "y"}, "privacy": {"mu": "0.2"}}
    return {**base, **changes}


def curve(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/estimates/curve", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_points_are_those_of_the_estimate(admin: httpx.Client, big: str) -> None:
    found = curve(admin, asked(big))
    points = found["points"]
    assert len(points) == 9
    assert [point["asked"] for point in points].index(True) == 4
    mus = [float(point["mu"]) for point in points]
    assert mus == sorted(mus)
    assert mus[0] == pytest.approx(0.05, rel=1e-3)
    assert mus[-1] == pytest.approx(0.8, rel=1e-3)
    ratios = [point["ratio"] for point in points]
    assert ratios == sorted(ratios, reverse=True)
    for point in points:
        told = admin.post("/v1/estimates", json=asked(big, privacy={"mu": point["mu"]})).json()
        assert point["budget_share"] == told["cost"]["budget_share"]
        assert point["fits"] == told["fits"]
        widths = told["prediction"]["coefficients"]
        assert point["ratio"] == pytest.approx(exp(fmean(log(one["ratio"]) for one in widths)), rel=1e-6)
        lowest = [one["lowest"] / one["nonprivate_width"] for one in widths]
        assert point["lowest"] == pytest.approx(exp(fmean(map(log, lowest))), rel=1e-6)
        assert point["highest"] is None, "nothing was said of the columns"
    assert not points[-1]["fits"] or float(points[-1]["budget_share"]) <= 1


def test_what_is_assumed_gives_an_upper_end(admin: httpx.Client, big: str) -> None:
    assume = {
        "deviations": {"age": 15},
        "means": {"age": 50},
        "frequencies": {"job": [0.4, 0.3, 0.3]},
        "base_rate": 0.25,
    }
    for point in curve(admin, asked(big, assume=assume))["points"]:
        assert point["highest"] is None or point["lowest"] <= point["ratio"] <= point["highest"]
    assert any(point["highest"] for point in curve(admin, asked(big, assume=assume))["points"])


def test_jobs_without_intervals_have_prices_alone(admin: httpx.Client, big: str) -> None:
    body = asked(big, optimizer={"kind": "noisy_gd"}, inference={"intervals": False})
    found = curve(admin, body)
    assert found["level"] is None
    assert {point["ratio"] for point in found["points"]} == {None}
    assert len({point["budget_share"] for point in found["points"]}) == 9


def test_refusals_name_the_field(admin: httpx.Client, service: Service, big: str) -> None:
    for body, pointer in (
        (asked(big, model={"kind": "logistic", "target": "nothing"}), "/model/target"),
        (asked(big) | {"privacy": {"mu": "-1"}}, "/privacy/mu"),
        ({name: value for name, value in asked(big).items() if name != "dataset"}, "/dataset"),
        (asked(big) | {"goal": {"width": {"coefficient": "age", "at_most": 1}}}, "/goal"),
    ):
        answer = admin.post("/v1/estimates/curve", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    stranger, _ = service.someone("analyst")
    assert stranger.post("/v1/estimates/curve", json=asked(big)).status_code == 404
    assert httpx.post(f"{service.url}/v1/estimates/curve", json=asked(big)).status_code == 401


def test_a_curve_leaves_no_line_in_the_audit_log(service: Service, admin: httpx.Client, big: str) -> None:
    analyst, who = service.someone("analyst")
    admin.put(f"/v1/datasets/{big}/access/{who['principal']}", json={"budget_cap": {"budget_share": "0.1"}})
    found = curve(analyst, asked(big))
    assert any(not point["fits"] for point in found["points"])
    assert "POST /v1/estimates/curve" not in {line["action"] for line in analyst.get("/v1/audit").json()["data"]}


def test_the_client_and_the_command_show_the_same(service: Service, big: str, tmp_path: Path) -> None:
    with Client(service.url, service.key) as client:
        assert len(client.curve(asked(big)).points) == 9
    path = tmp_path / "job.json"
    path.write_text(json.dumps(asked(big)))
    said = CliRunner().invoke(app, ["curve", str(path)], env={"FARTHING_URL": service.url, "FARTHING_KEY": service.key})
    assert said.exit_code == 0, said.output
    assert " *" in said.output
