import io
import json
import math
import time
from typing import Any

import httpx
import numpy as np
import pytest
from pypdf import PdfReader
from safetensors.numpy import load

from core.db.tables import Dataset, Job
from core.inference.checks import Checks
from core.inference.released import Flags, Released
from core.inference.settings import UNCHECKED
from core.inference.swept import SweepOutcome
from core.jobs import jobs as rows
from core.ledger import ledger
from core.losses.categorical import Logistic
from core.losses.weights import Mallows
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.events import EVENT
from core.privacy.facts import Adjacency
from core.privacy.reports import report
from core.service.quotes import COLUMNS
from farthing.schemas.figures import MINUS, interval_words, statistic
from tests.support.api import Service, job, submit, upload

THETA = (-0.5, 0.25, -0.125, 0.0625)


def finish(
    service: Service,
    job_id: str,
    approval: str = "not-needed",
    sweep: SweepOutcome | None = None,
    checks: Checks | None = None,
) -> str:
    """Publish a known model for a queued job by the store's own functions, and wait for the time grid."""
    database = service.database()
    with database.read() as session:
        stored = session.get_one(Job, job_id)
        dataset = session.get_one(Dataset, stored.dataset_id)
        terms = ledger.balance(session, stored.scope_id).terms
        spec, price = JobSpec.model_validate(stored.spec), EVENT.validate_python(stored.price)
        columns = COLUMNS.validate_python(dataset.columns)
    planned = plan_job(spec, columns=columns, units=400, adjacency=Adjacency.ZERO_OUT, terms=terms)
    released = Released(
        kind="logistic",
        target="y",
        optimizer=spec.optimizer.kind,
        units=400,
        steps=8,
        status="finished",
        level=0.95,
        correction="stationary",
        design=planned.design,
        theta=THETA,
        covariance=None if checks else tuple(tuple(0.04 if i == j else 0.0 for j in range(4)) for i in range(4)),
        checks=checks,
        flags=Flags(
            eigenvalues_floored=0, curvature_floored=0, score_floored=0, optimizer_floored=0, slow_directions=0
        ),
        privacy=report(price, terms, Adjacency.ZERO_OUT, declared=True),
        loss=Logistic(),
        weights=Mallows(bound=2.0),
        sweep=sweep,
    )
    while True:
        claim = database.transaction(rows.claim, "test", 600.0)
        assert claim is not None, "the job is queued"
        if claim.job_id == job_id:
            break
    model = database.transaction(rows.finish, claim, released.model_dump(mode="json"), approval)
    database.dispose()
    time.sleep(1.1)
    return model.id


@pytest.fixture(scope="module")
def made(service: Service, admin: httpx.Client, dataset: str) -> tuple[str, str]:
    job_id = submit(admin, job(dataset)).json()["id"]
    return finish(service, job_id), job_id


class TestReading:
    def test_the_job_names_its_model(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        model, job_id = made
        view = admin.get(f"/v1/jobs/{job_id}").json()
        assert view["state"] == "succeeded"
        assert view["result"] == {"model": model}
        assert view["progress"] == {"step": 8, "steps": 8, "left": 0}
        names = [item["name"] for item in admin.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]]
        assert names == ["report.json", "model.json", "model.safetensors"]
        followed = admin.get(f"/v1/jobs/{job_id}/artifacts/model.json", follow_redirects=True)
        assert followed.json()["model"] == model

    def test_summary_has_the_promised_shape(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        model, job_id = made
        summary = admin.get(f"/v1/models/{model}/summary").json()
        members = {"model", "job", "optimizer", "n", "level", "correction", "coefficients", "flags", "privacy"}
        assert members <= summary.keys()
        assert (summary["model"], summary["job"], summary["n"]) == (model, job_id, 400)
        names = [row["name"] for row in summary["coefficients"]]
        assert names[1:] == ["age", "job[technician]", "job[other]"]
        for row in summary["coefficients"]:
            assert set(row) == {"name", "estimate", "std_error", "z", "p_value", "interval"}
        assert {"eigenvalues_floored", "scale_floored"} <= summary["flags"].keys()
        assert summary["privacy"]["mu"] == "0.1"
        assert summary["privacy"]["implies"]["replace_one"]["mu"] == "0.2"
        wide, narrow = (admin.get(f"/v1/models/{model}/summary?level={level}").json() for level in (0.99, 0.6))
        for one, two in zip(wide["coefficients"], narrow["coefficients"], strict=True):
            assert one["interval"][0] < two["interval"][0] < two["interval"][1] < one["interval"][1]

    def test_summary_as_text(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        answer = admin.get(f"/v1/models/{made[0]}/summary?format=text")
        assert answer.headers["content-type"].startswith("text/plain")
        assert "P>|z|" in answer.text
        assert "job[technician]" in answer.text
        assert len({len(line) for line in answer.text.splitlines() if line.startswith(("age", "job["))}) == 1

    def test_intervals_and_odds_ratios(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        summary = admin.get(f"{base}/summary?level=0.9").json()["coefficients"]
        told = admin.get(f"{base}/intervals?level=0.9").json()
        assert told["level"] == 0.9
        assert told["intervals"] == [{"name": row["name"], "interval": row["interval"]} for row in summary]
        odds = {row["name"]: row["odds_ratio"] for row in admin.get(f"{base}/odds-ratios").json()["odds_ratios"]}
        by_name = {row["name"]: row["estimate"] for row in summary}
        assert odds == pytest.approx({name: math.exp(by_name[name]) for name in odds})
        assert "age" in odds

    def test_the_covariance_has_the_table_s_errors(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        told = admin.get(f"{base}/covariance").json()
        lines = admin.get(f"{base}/summary").json()["coefficients"]
        assert (told["model"], told["coefficients"]) == (made[0], [line["name"] for line in lines])
        matrix = np.array(told["covariance"])
        assert np.sqrt(np.diag(matrix)) == pytest.approx([line["std_error"] for line in lines])
        names = told["coefficients"]
        weights = dict(zip(names, (1.0, -2.0, 3.0, 0.5), strict=True))
        contrast = admin.post(f"{base}/contrasts", json={"weights": weights}).json()
        row = np.array(list(weights.values()))
        assert row @ matrix @ row == pytest.approx(contrast["std_error"] ** 2)

    def test_several_levels_at_once(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        told = admin.get(f"/v1/models/{made[0]}/summary?level=0.8&level=0.95").json()
        assert (told["level"], told["levels"]) == (0.8, [0.8, 0.95])
        for row in told["coefficients"]:
            assert [band["level"] for band in row["intervals"]] == [0.8, 0.95]
        for level in ("0.4", "1", "nan", "0.9&" + "&".join(["level=0.9"] * 11)):
            assert admin.get(f"/v1/models/{made[0]}/summary?level={level}").status_code == 422

    def test_a_page_runs_and_loads_nothing(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        answer = admin.get(f"/v1/models/{made[0]}/summary?format=html")
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "sandbox" in policy
        assert "job[technician]" in answer.text
        assert "<script" not in answer.text
        assert made[0] in answer.text

    def test_a_pdf_has_the_figures_of_the_page(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        path = f"/v1/models/{made[0]}/summary"
        answer = admin.get(f"{path}?format=pdf&level=0.9")
        assert answer.headers["content-type"] == "application/pdf"
        reader = PdfReader(io.BytesIO(answer.content))
        assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"], "tagged, so that it can be read aloud"
        text = "".join("".join(sheet.extract_text() for sheet in reader.pages).split())
        page, told = admin.get(f"{path}?format=html&level=0.9").text, admin.get(f"{path}?level=0.9").json()
        for line in told["coefficients"]:
            assert f"{line['name']}{line['estimate']:.4g}".replace("-", MINUS) in text.replace("-", MINUS)
            assert statistic(line["estimate"]) in page
            assert interval_words(line["interval"]) in page
        for said in (made[0], "For a methods section", told["privacy"]["epsilon"]):
            assert "".join(said.split()) in text
            assert said in page

    def test_intervals_may_hold_all_at_once(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}/intervals"
        wide, single = (admin.get(f"{base}?method={method}").json() for method in ("scheffe", "pointwise"))
        assert (wide["method"], wide["comparisons"]) == ("scheffe", 4)
        for one, other in zip(wide["intervals"], single["intervals"], strict=True):
            assert one["interval"][0] < other["interval"][0]
        some = admin.get(f"{base}?method=sidak&coefficient=age&coefficient=job[other]").json()
        assert [one["name"] for one in some["intervals"]] == ["age", "job[other]"]
        assert some["flags"]["slow_directions"] == 0
        assert some["notes"] == [UNCHECKED]
        wrong = admin.get(f"{base}?coefficient=age&coefficient=age")
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "#query/coefficient/1")
        assert admin.get(f"{base}?method=guess").status_code == 422

    def test_regions(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        point = {"age": 0.0, "job[other]": 0.1}
        told = admin.post(
            f"{base}/regions", json={"coefficients": list(point), "levels": [0.5001, 0.9], "point": point}
        )
        assert told.status_code == 200, told.text
        region = told.json()
        wald = admin.post(f"{base}/tests", json={"coefficients": list(point), "values": list(point.values())}).json()
        assert region["point"]["p_value"] == pytest.approx(wald["p_value"])
        assert [one["inside"] for one in region["regions"]] == [wald["p_value"] >= 0.4999, wald["p_value"] >= 0.1]
        assert len(region["regions"][0]["outline"]) > 30
        for body, pointer in (
            ({"coefficients": ["nope"]}, "/coefficients/0"),
            ({"coefficients": ["age", "age"]}, "/coefficients/1"),
            ({"coefficients": ["age"], "point": {"job[other]": 1}}, "/point/age"),
            ({"coefficients": []}, "/coefficients"),
            ({"coefficients": ["age"], "point": {"age": 1e200}}, "/point/age"),
            ({"coefficients": ["age"], "levels": [0.5]}, "/levels/0"),
        ):
            refused = admin.post(f"{base}/regions", json=body)
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["pointer"] == pointer

    def test_one_sided_tests_equivalence_and_scheffe(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}/contrasts"
        plain = admin.post(base, json={"weights": {"age": 1}}).json()
        told = admin.post(
            base,
            json={"weights": {"age": 1}, "alternative": "greater", "value": 0.001, "margin": 0.5, "method": "scheffe"},
        ).json()
        assert told["z"] < plain["z"]
        assert told["interval"][0] < plain["interval"][0]
        assert told["equivalence"]["p_value"] < 1e-6
        for changed in ({"margin": 0}, {"alternative": "other"}, {"weights": {"age": 0}}, {"value": "inf"}):
            assert admin.post(base, json={"weights": {"age": 1}} | changed).status_code == 422

    def test_ratios_are_those_of_the_kind(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        refused = admin.get(f"/v1/models/{made[0]}/rate-ratios")
        assert refused.status_code == 422
        assert "Poisson" in refused.json()["detail"]

    def test_two_models_side_by_side(
        self, service: Service, admin: httpx.Client, made: tuple[str, str], dataset: str
    ) -> None:
        other = finish(service, submit(admin, job(dataset)).json()["id"])
        told = admin.get(f"/v1/models/{made[0]}/compare/{other}?level=0.9").json()
        assert told["relation"] == "same_equation"
        assert [one["model"] for one in told["models"]] == [made[0], other]
        assert told["models"][0]["privacy"]["mu"] == "0.1"
        assert all(row["difference"] == 0 and row["p_value_bound"] == 1 for row in told["coefficients"])
        text = admin.get(f"/v1/models/{made[0]}/compare/{other}?format=text")
        assert text.headers["content-type"].startswith("text/plain")
        elsewhere = finish(service, submit(admin, job(upload(admin, shift=870)["id"])).json()["id"])
        assert admin.get(f"/v1/models/{other}/compare/{elsewhere}").json()["relation"] == "different_people"
        assert admin.get(f"/v1/models/{other}/compare/{other}").json()["errors"][0]["pointer"] == "/other"
        assert admin.get(f"/v1/models/{other}/compare/mdl_nowhere").status_code == 404

    def test_a_stranger_sees_neither_side_of_a_comparison(self, service: Service, made: tuple[str, str]) -> None:
        owner, _ = service.someone("owner")
        own = upload(owner, shift=871)
        mine = finish(service, submit(owner, job(own["id"])).json()["id"])
        assert owner.get(f"/v1/models/{mine}/summary").status_code == 200
        for one, other in ((mine, made[0]), (made[0], mine)):
            assert owner.get(f"/v1/models/{one}/compare/{other}").status_code == 404

    def test_predictions_with_intervals(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        rows = {"rows": [{"age": 40, "job": "other"}]}
        (plain,), (told,) = (
            admin.post(f"/v1/models/{made[0]}/predict", json=rows | level).json()["predictions"]
            for level in ({}, {"level": 0.9})
        )
        assert set(plain) == {"probability"}
        assert told["interval"][0] < plain["probability"] < told["interval"][1]
        assert admin.post(f"/v1/models/{made[0]}/predict", json=rows | {"level": 1}).status_code == 422

    def test_tests_and_contrasts(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        row = next(r for r in admin.get(f"{base}/summary").json()["coefficients"] if r["name"] == "age")
        contrast = admin.post(f"{base}/contrasts", json={"weights": {"age": 1}}).json()
        assert contrast["estimate"] == pytest.approx(row["estimate"])
        assert contrast["p_value"] == pytest.approx(row["p_value"])
        wald = admin.post(f"{base}/tests", json={"coefficients": ["age"]}).json()
        assert wald["p_value"] == pytest.approx(row["p_value"])
        both = admin.post(
            f"{base}/tests", json={"hypotheses": [{"job[technician]": 1, "job[other]": -1}], "values": [0.5]}
        )
        assert both.status_code == 200, both.text
        for body in ({}, {"coefficients": ["nope"]}, {"coefficients": ["age"], "hypotheses": [{"age": 1}]}):
            assert admin.post(f"{base}/tests", json=body).status_code == 422
        assert admin.post(f"{base}/tests", json={"coefficients": ["age"], "values": [1, 2]}).status_code == 422

    def test_predict(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        told = admin.post(
            f"{base}/predict", json={"rows": [{"age": 40, "job": "other"}, {"age": 60, "job": "technician"}]}
        )
        rows_out = told.json()["predictions"]
        assert all(set(row) == {"probability"} and 0 < row["probability"] < 1 for row in rows_out)
        by_name = {row["name"]: row["estimate"] for row in admin.get(f"{base}/summary").json()["coefficients"]}
        intercept = next(
            value for name, value in by_name.items() if name not in ("age", "job[technician]", "job[other]")
        )
        margin = intercept + 40 * by_name["age"] + by_name["job[other]"]
        assert rows_out[0]["probability"] == pytest.approx(1 / (1 + math.exp(-margin)))
        wrong = admin.post(f"{base}/predict", json={"rows": [{"age": 40, "job": "other"}, {"age": 40}]})
        assert wrong.status_code == 422
        assert wrong.json()["errors"][0]["pointer"].startswith("/rows/1")
        assert admin.post(f"{base}/predict", json={"rows": []}).status_code == 422

    def test_exports(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        base = f"/v1/models/{made[0]}"
        as_json = admin.get(f"{base}/export?format=json").json()
        raw = admin.get(f"{base}/export?format=safetensors")
        assert raw.headers["content-type"] == "application/octet-stream"
        tensors = load(raw.content)
        assert tensors["coefficients"].tolist() == pytest.approx(list(as_json["coefficients"].values()))
        assert tensors["covariance"].shape == (4, 4)
        size = int.from_bytes(io.BytesIO(raw.content).read(8), "little")
        header = json.loads(raw.content[8 : 8 + size])["__metadata__"]
        assert json.loads(header["names"]) == list(as_json["coefficients"])
        assert admin.get(f"{base}/export?format=pickle").status_code == 422

    def test_methods(self, admin: httpx.Client, made: tuple[str, str]) -> None:
        assert "differentially private" in admin.get(f"/v1/models/{made[0]}/methods").json()["text"]

    def test_the_budget_tells_what_was_spent(self, service: Service, admin: httpx.Client) -> None:
        data = upload(admin, shift=900)
        finish(service, submit(admin, job(data["id"])).json()["id"])
        budget = admin.get(f"/v1/datasets/{data['id']}/budget").json()
        assert budget["budget_share"]["reserved"] == "0"
        assert budget["budget_share"]["spent"] == "0"  # the store's functions published without paying any chunk

    def test_strangers(self, service: Service, admin: httpx.Client, made: tuple[str, str]) -> None:
        stranger, _ = service.someone("analyst")
        for path in ("", "/summary", "/summary?format=html", "/summary?format=pdf", "/intervals", "/covariance",
                     "/odds-ratios", "/rate-ratios", "/methods", "/export", f"/compare/{made[0]}x"):  # fmt: skip
            assert stranger.get(f"/v1/models/{made[0]}{path}").status_code == 404
        region = stranger.post(f"/v1/models/{made[0]}/regions", json={"coefficients": ["age"]})
        assert region.status_code == 404
        assert admin.get("/v1/models/mdl_nowhere").status_code == 404


class TestApproval:
    @pytest.mark.parametrize("verdict", ["approve", "reject"])
    def test_nobody_sees_a_release_before_its_owner_agrees(
        self, service: Service, admin: httpx.Client, verdict: str
    ) -> None:
        owner, _ = service.someone("owner")
        analyst, who = service.someone("analyst")
        data = upload(owner, shift=910 + len(verdict), approval=True)
        owner.put(f"/v1/datasets/{data['id']}/access/{who['principal']}", json={"budget_cap": "all"})
        job_id = submit(analyst, job(data["id"])).json()["id"]
        model = finish(service, job_id, approval="pending")

        waiting = analyst.get(f"/v1/jobs/{job_id}").json()
        assert (waiting["state"], waiting["result"], waiting["approval"]) == ("succeeded", None, "pending")
        assert model not in analyst.get(f"/v1/jobs/{job_id}/events").text
        assert analyst.get(f"/v1/models/{model}/summary").status_code == 404
        assert analyst.post(f"/v1/models/{model}/approve").status_code == 404
        assert owner.get(f"/v1/models/{model}/summary").status_code == 200
        assert admin.get(f"/v1/jobs/{job_id}").json()["result"] is None
        bodies: dict[str, Any] = {"approve": None, "reject": {"reason": "too fine"}}
        asked = bodies[verdict]
        for answer in (
            admin.get(f"/v1/models/{model}/summary"),
            admin.post(f"/v1/models/{model}/{verdict}", json=asked),
        ):
            assert answer.status_code == 404, "a role is no owner"

        for lacking in (None, {}, {"reason": ""}):
            assert owner.post(f"/v1/models/{model}/reject", json=lacking).status_code == 422
        judged = owner.post(f"/v1/models/{model}/{verdict}", json=asked)
        assert judged.status_code == 200
        seen = analyst.get(f"/v1/models/{model}/summary").status_code
        assert seen == (200 if verdict == "approve" else 404)
        other = {"approve": "reject", "reject": "approve"}[verdict]
        assert owner.post(f"/v1/models/{model}/{other}", json=bodies[other]).status_code == 409
        by_admin = admin.post(f"/v1/models/{model}/{other}", json=bodies[other])
        assert by_admin.status_code == (403 if verdict == "approve" else 404)
        if verdict == "reject":
            assert '"reason":"too fine"' in owner.get(f"/v1/scopes/{data['scope']}/entries").text.replace("\\", "")
        result: dict[str, Any] | None = analyst.get(f"/v1/jobs/{job_id}").json()["result"]
        assert result == ({"model": model} if verdict == "approve" else None)
