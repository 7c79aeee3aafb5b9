"""The SDK against a real service: every method once, and every way a request can fail."""

import io
import json
import math
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from sqlalchemy import select

from core.base.errors import LedgerBusy
from farthing import Client, FarthingError, JobFailed, ReleaseWithheld, Unreachable, WrongInput
from farthing.errors import FarthingError as Refused
from tests.farthing.conftest import Released, body
from tests.support.embedded import COLUMNS, KEY, Embedded


def metadata(**changes: object) -> dict[str, object]:
    base = {"name": "toy", "columns": COLUMNS, "budget": {"epsilon": "3", "delta": "1e-6"}}
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def someone(service: Embedded, role: str) -> Client:
    with Client(service.url, KEY) as admin:
        made = admin.create_key(role, role)
    with Client(service.url, made.key or "") as first:
        return Client(service.url, first.rotate_key(made.id).key or "")


class TestData:
    def test_a_file_becomes_a_dataset_that_is_listed_shared_and_erased(
        self, service: Embedded, client: Client, records: Path
    ) -> None:
        made = client.upload(records, metadata())
        assert (made.rows, made.state, len(made.columns)) == (300, "ready", 4)
        assert client.dataset(made.id) == made
        assert made.id in [found.id for found in client.datasets()]
        report = client.validation(made.id)
        assert (report.rows, [column.name for column in report.columns]) == (300, ["age", "job", "balance", "y"])
        assert len(client.mock(made.id, 7)) == 7
        analyst = client.create_key("ana", "analyst")
        with Client(service.url, analyst.key or "") as ana:
            assert list(ana.datasets()) == []
            given = client.share(made.id, analyst.principal, {"budget_share": "0.2"})
            assert (given.budget_cap, given.name, given.datasets) == ({"budget_share": "0.2"}, "ana", [made.id])
            changed = client.share(made.id, analyst.principal, "all", version=given.version)
            assert [changed] == client.accesses(made.id) == ana.accesses(made.id)
            assert [found.id for found in ana.datasets()] == [made.id]
            with pytest.raises(FarthingError) as forbidden:
                ana.validation(made.id)
            assert (forbidden.value.status, forbidden.value.code) == (403, "forbidden")
            client.unshare(made.id, analyst.principal)
            with pytest.raises(FarthingError) as gone:
                ana.dataset(made.id)
            assert gone.value.status == 404
        assert client.erase(made.id).state in {"erasing", "erased"}
        assert client.dataset(made.id).state == "erased"

    def test_an_open_file_will_do_and_the_same_bytes_twice_are_refused(self, client: Client, records: Path) -> None:
        with records.open("rb") as stream:
            first = client.upload(stream, metadata())
        with pytest.raises(FarthingError) as twice:
            client.upload(records, metadata())
        assert twice.value.code == "duplicate-dataset"
        assert twice.value.problem["dataset"] == first.id

    def test_arrays_are_uploaded_in_one_call_and_are_the_same_bytes_each_time(self, client: Client) -> None:
        columns = [
            {"name": "image", "type": "array", "shape": [2, 3], "lower": 0, "upper": 1},
            {"name": "label", "type": "category", "values": ["cat", "dog"]},
        ]
        images = np.asfortranarray(np.random.default_rng(1).random((50, 2, 3)))
        records = {"image": images, "label": ["cat", "dog"] * 25}
        made = client.upload(records, metadata(columns=columns))
        assert (made.rows, made.columns[0]["shape"]) == (50, [2, 3])
        assert client.validation(made.id).incomplete_rows == 0
        with pytest.raises(FarthingError) as twice:
            client.upload(records, metadata(columns=columns))
        assert twice.value.code == "duplicate-dataset"
        with pytest.raises(ValueError, match="Python objects"):
            client.upload({**records, "label": np.array(["cat", None], dtype=object)}, metadata(columns=columns))

    def test_one_idempotency_key_makes_one_dataset(self, client: Client, records: Path) -> None:
        key = uuid4().hex
        assert client.upload(records, metadata(), key=key) == client.upload(records, metadata(), key=key)

    def test_wrong_fields_are_named_in_the_error_and_its_text(self, client: Client, records: Path) -> None:
        columns = [{"name": "age", "type": "number", "lower": 9, "upper": 1}, *COLUMNS[1:]]
        with pytest.raises(FarthingError) as wrong:
            client.upload(records, metadata(columns=columns, budget={"epsilon": "-1"}))
        assert wrong.value.status == 422
        pointers = {error["pointer"] for error in wrong.value.errors}
        assert any(pointer.startswith("/columns/0") for pointer in pointers)
        assert "/budget/epsilon" in pointers
        assert all(pointer in str(wrong.value) for pointer in pointers)

    def test_lists_are_read_to_their_end(self, client: Client, released: Released) -> None:
        made = [client.create_key(f"many {number}", "auditor").id for number in range(25)]  # a page holds 20
        assert set(made) <= {key.id for key in client.keys()}  # noqa: SIM118 - a method of the client
        lines = list(client.entries(released.scope))
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))


class TestBudget:
    def test_it_is_read_verified_granted_and_frozen(self, service: Embedded, client: Client, records: Path) -> None:
        made = client.upload(records, metadata())
        scope = str(made.scope)
        budget = client.budget(made.id)
        assert (budget.scope, budget.epsilon.total, budget.budget_share.spent) == (scope, "3", "0")
        assert client.scope(scope).datasets == [made.id]
        verified = client.verify(scope)
        assert (verified.ok, verified.head) == (True, budget.head)
        analyst = client.create_key("ana", "analyst")
        given = client.share(made.id, analyst.principal, {"epsilon": "1", "delta": "1e-6"})
        assert (given.principal, given.epsilon, given.scope) == (analyst.principal, "1", scope)
        with Client(service.url, analyst.key or "") as ana:
            own = ana.budget(made.id).cap
            assert own is not None
            assert own.budget_cap == {"epsilon": "1", "delta": "1e-6"} == given.budget_cap
            with pytest.raises(FarthingError) as beyond:
                ana.submit(body(made.id, mu="0.6"))
            assert beyond.value.code == "privacy-budget-exhausted"
            assert client.freeze(scope, "a question came up").frozen == "a question came up"
            with pytest.raises(FarthingError) as frozen:
                ana.submit(body(made.id, mu="0.1"))
            assert frozen.value.code == "scope-frozen"
        assert client.unfreeze(scope, "answered").frozen is None
        assert [entry.kind for entry in client.entries(scope)][-2:] == ["freeze", "unfreeze"]

    def test_a_charge_whose_records_were_opened_is_not_given_back(self, client: Client, released: Released) -> None:
        with pytest.raises(FarthingError) as opened:
            client.adjust(released.scope, released.job.id, "please")
        assert opened.value.status == 409


class TestJobs:
    def test_an_estimate_says_what_the_job_then_costs(self, client: Client, released: Released) -> None:
        quoted = client.estimate(body(released.dataset))
        assert quoted.cost.mu == released.job.cost.spent.mu == "1"
        assert quoted.bound is not None
        assert quoted.plan["kind"] == "noisy_newton"

    def test_a_job_is_found_again_with_its_history_and_report(self, client: Client, released: Released) -> None:
        job = released.job
        assert (job.state, job.attempt, job.ended, job.error) == ("succeeded", 1, True, None)
        assert job.id in [found.id for found in client.jobs(dataset=released.dataset, state="succeeded")]
        assert list(client.jobs(label="study:other")) == []
        history = list(client.events(job.id))
        assert history[0].kind == "queued"
        assert history[-1].kind == "succeeded"
        assert client.report(job.id)["job"]["id"] == job.id

    def test_a_job_tells_what_to_submit_for_the_same_again(self, client: Client, released: Released) -> None:
        asked = {**body(released.dataset, mu="0.05"), "resources": {"device": "cpu"}, "retry_allowance": 0}
        made = client.submit(asked)
        found = client.job(made.id)
        assert (found.resources["device"], found.retry_allowance) == ("cpu", 0)
        assert found.spec is not None
        assert asked.keys() <= found.spec.keys()
        assert found.spec["model"]["kind"] == "logistic"
        again = client.submit(found.spec)
        assert again.id != made.id
        assert (again.spec, again.cost) == (made.spec, made.cost)
        for one in (made, again):
            client.cancel(one.id)

    def test_progress_is_told_until_the_end(self, client: Client, released: Released) -> None:
        seen = list(client.watch(released.job.id))
        assert [job.state for job in seen] == ["succeeded"]
        told: list[str] = []
        client.wait(released.job.id, progress=lambda job: told.append(job.state))
        assert told == ["succeeded"]

    def test_one_idempotency_key_is_one_job(self, service: Embedded, client: Client) -> None:
        dataset, key = service.upload(), uuid4().hex
        first, second = (client.submit(body(dataset, mu="0.1"), key=key) for _ in range(2))
        assert first.id == second.id
        with pytest.raises(FarthingError) as reused:
            client.submit(body(dataset, mu="0.2"), key=key)
        assert reused.value.code == "idempotency-key-reused"
        client.wait(first.id)

    def test_a_cancelled_job_has_failed_for_who_waits(self, service: Embedded, client: Client) -> None:
        dataset = service.upload()
        long = body(dataset, mu="0.1") | {"optimizer": {"kind": "noisy_gd", "steps": 20_000}}
        job = client.submit(long)
        assert client.cancel(client.clone(job.id).id).id != job.id
        assert client.cancel(job.id).state in {"cancelled", "cancelling"}
        with pytest.raises(JobFailed) as failed:
            client.wait(job.id)
        assert failed.value.code == "cancelled"
        assert job.id in str(failed.value)

    def test_a_refusal_says_what_would_fit_and_is_not_sent_again(self, client: Client, released: Released) -> None:
        started = time.monotonic()
        with pytest.raises(FarthingError) as refusal:
            client.submit(body(released.dataset) | {"privacy": {"epsilon": "99"}})
        assert (refusal.value.status, refusal.value.code) == (403, "privacy-budget-exhausted")
        assert not refusal.value.retryable
        assert "required" in str(refusal.value.problem)
        assert time.monotonic() - started < 5


class TestModels:
    def test_the_table_its_text_and_its_intervals_agree(self, client: Client, released: Released) -> None:
        table = client.summary(released.model)
        names = [line.name for line in table.coefficients]
        assert names == ["intercept", "age", "job[b]", "job[c]"]
        assert (table.n, table.level, table.privacy["mu"]) == (2000, 0.95, "1")
        assert "job[b]" in client.summary_text(released.model, level=0.9)
        wide = {line.name: line.interval for line in client.intervals(released.model, level=0.99)}
        for line in table.coefficients:
            assert line.interval is not None
            low, high = wide[line.name] or (None, None)
            assert low is not None
            assert high is not None
            assert line.interval[0] is not None
            assert line.interval[1] is not None
            assert low < line.interval[0] < line.interval[1] < high

    def test_odds_ratios_contrasts_and_tests_are_those_of_the_table(self, client: Client, released: Released) -> None:
        table = {line.name: line for line in client.summary(released.model).coefficients}
        ratios = {line.name: line.odds_ratio for line in client.odds_ratios(released.model)}
        age = table["age"].estimate
        assert age is not None
        assert "intercept" not in ratios
        assert ratios["age"] == pytest.approx(math.exp(age))
        alone = client.contrast(released.model, {"age": 2.0}, level=0.9)
        assert alone.estimate == pytest.approx(2 * age)
        assert alone.z == pytest.approx(table["age"].z)
        one = client.wald_test(released.model, ["age"])
        assert (one.degrees_of_freedom, one.p_value) == (1, pytest.approx(table["age"].p_value, rel=1e-6))
        shifted = client.wald_test(released.model, [{"age": 1.0}, "job[b]"], values=[age, 0.0])
        assert shifted.degrees_of_freedom == 2
        assert shifted.p_value > one.p_value

    def test_predictions_follow_the_coefficients(self, client: Client, released: Released) -> None:
        table = {line.name: line.estimate or 0.0 for line in client.summary(released.model).coefficients}
        (found,) = client.predict(released.model, [{"age": 40, "job": "b"}])
        logit = table["intercept"] + 40 * table["age"] + table["job[b]"]
        assert found["probability"] == pytest.approx(1 / (1 + math.exp(-logit)))
        with pytest.raises(FarthingError) as wrong:
            client.predict(released.model, [{"age": 40}])
        assert "/rows/0" in str(wrong.value)

    def test_exports_and_the_methods_paragraph(self, client: Client, released: Released) -> None:
        exported = json.loads(client.export(released.model))
        table = {line.name: line.estimate for line in client.summary(released.model).coefficients}
        assert exported["coefficients"] == pytest.approx(table)
        from safetensors.numpy import load  # noqa: PLC0415 - for this check alone

        tensors = load(client.export(released.model, "safetensors"))
        assert list(tensors["coefficients"]) == pytest.approx(list(table.values()))
        assert "differentially private" in client.methods(released.model)

    def test_a_model_is_read_as_text_page_and_frame(self, client: Client, released: Released) -> None:
        model = client.model(released.model)
        assert model.names == ("intercept", "age", "job[b]", "job[c]")
        text = model.summary(level=[0.9, 0.99])
        assert "P>|z|" in text
        assert "0.005]" not in text
        assert "[0.005" in text
        assert repr(text) == str(text), "a prompt shows lines, not their escapes"
        assert model.page().startswith("<!doctype html>")
        shown = model._repr_html_()
        assert shown.startswith("<iframe sandbox")
        assert "<script" not in shown
        assert "&lt;!doctype html&gt;" in shown
        table = model.table([0.9, 0.99])
        assert [band.level for band in table.coefficients[1].intervals] == [0.9, 0.99]
        assert repr(model) == f"Model('{released.model}')"

    def test_a_frame_needs_pandas_and_has_the_table(
        self, client: Client, released: Released, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = client.model(released.model)
        frame = model.frame(0.9)
        assert list(frame.index) == list(model.names)
        assert frame.loc["age", "lower"] < frame.loc["age", "estimate"] < frame.loc["age", "upper"]
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError):
            model.frame()

    def test_hypotheses_may_be_text_values_or_weights(self, client: Client, released: Released) -> None:
        model = client.model(released.model)
        same = [
            model.wald_test("age = 0.01, job[b] = job[c]"),
            model.wald_test([{"age": 1.0}, {"job[b]": 1.0, "job[c]": -1.0}], values=[0.01, 0.0]),
        ]
        assert same[0].p_value == pytest.approx(same[1].p_value)
        assert model.wald_test({"age": 0.01}).p_value == pytest.approx(model.wald_test("age = 0.01").p_value)
        assert client.wald_test(released.model, "age = 0.01").statistic == model.wald_test({"age": 0.01}).statistic
        with pytest.raises(WrongInput, match=r"(?m)^ {11}\^$"):
            model.wald_test("age = 0, jbo[b] = 0")
        with pytest.raises(FarthingError) as contradiction:
            model.wald_test("age = 0, age = 1")
        assert "/hypotheses/1" in str(contradiction.value)

    def test_a_region_holds_what_the_test_of_a_point_says(self, client: Client, released: Released) -> None:
        model = client.model(released.model)
        point = {"age": 0.0, "job[b]": 0.2}
        found = model.ellipsoid(["age", "job[b]"], [0.8, 0.95], point=point)
        tested = model.wald_test(point)
        assert found.point is not None
        assert found.point["p_value"] == pytest.approx(tested.p_value)
        assert [one.inside for one in found.regions] == [tested.p_value >= 0.2, tested.p_value >= 0.05]
        assert found.regions[0].outline is not None
        assert model.ellipsoid(["age"]).regions[0].level == 0.95

    def test_intervals_that_hold_at_once_are_wider(self, client: Client, released: Released) -> None:
        model = client.model(released.model)
        widths = {}
        for method in ("pointwise", "sidak", "bonferroni", "scheffe"):
            (one,) = (found for found in model.intervals(0.9, method=method) if found.name == "age")
            assert one.interval is not None
            assert one.interval[0] is not None
            assert one.interval[1] is not None
            widths[method] = one.interval[1] - one.interval[0]
        assert widths["pointwise"] < widths["sidak"] < widths["bonferroni"] < widths["scheffe"]
        (alone,) = model.intervals(0.9, method="scheffe", coefficients=["age"])
        assert alone.name == "age"

    def test_predictions_say_how_well_they_are_known(self, client: Client, released: Released) -> None:
        (found,) = client.predict(released.model, [{"age": 40, "job": "b"}], level=0.9)
        low, high = found["interval"]
        assert 0 < low < found["probability"] < high < 1
        assert client.model(released.model).contrast({"age": 1.0}, alternative="greater", margin=0.5).equivalence

    def test_two_models_of_one_equation_differ_by_noise_alone(self, client: Client, released: Released) -> None:
        other = client.wait(client.submit(body(released.dataset, mu="0.9")).id).released
        assert other is not None
        found = client.model(released.model).compare(client.model(other))
        assert found.relation == "same_equation"
        assert [one["model"] for one in found.models] == [released.model, other]
        assert all(one.p_value_bound is not None for one in found.coefficients)
        assert "upper bounds" in client.model(released.model).compare_text(other).replace("\n  ", " ")
        with pytest.raises(FarthingError) as itself:
            client.model(other).compare(other)
        assert "/other" in str(itself.value)

    def test_a_release_waits_for_its_owner(self, service: Embedded, client: Client, records: Path) -> None:
        analyst = client.create_key("ana", "analyst")
        made = client.upload(records, metadata(approval=True))
        client.share(made.id, analyst.principal, "all")
        with Client(service.url, analyst.key or "") as ana:
            job = ana.wait(ana.submit(body(made.id, mu="0.1")).id)
            assert (job.approval, job.released) == ("pending", None)
            model = client.job(job.id).released
            assert model is not None
            client.approve(model)
            assert ana.job(job.id).released == model
            assert ana.summary(model).model == model
            with pytest.raises(FarthingError) as judged:
                client.reject(model, "too fine")
            assert judged.value.status == 409
            second = ana.wait(ana.submit(body(made.id, mu="0.1")).id)
            client.reject(str(client.job(second.id).released), "too fine")
            assert ana.job(second.id).approval == "rejected"
            with pytest.raises(ReleaseWithheld, match="waits for the owner's approval") as withheld:
                ana.train(body(made.id, mu="0.1"))
            assert withheld.value.code == "release-pending"
            assert ana.job(withheld.value.job).state == "succeeded"  # nothing is lost: its model comes with approval

    def test_train_waits_for_the_owner_as_long_as_asked(self, service: Embedded, client: Client, records: Path) -> None:
        analyst = client.create_key("ana", "analyst")
        made = client.upload(records, metadata(approval=True))
        client.share(made.id, analyst.principal, "all")
        with Client(service.url, analyst.key or "") as ana, ThreadPoolExecutor(2) as pool:
            trained = pool.submit(ana.train, body(made.id, mu="0.1"), wait_for_approval_seconds=120.0)
            while not (waiting := list(client.models(approval="pending", dataset=made.id))):
                time.sleep(0.1)
            assert list(ana.models()) == []
            (first,) = waiting
            client.approve(first.id, "as agreed")
            model = trained.result()
            assert model.id == first.id
            assert [one.id for one in ana.models(approval="approved")] == [first.id]
            said = ana.job(first.job).decision
            assert said is not None
            assert (said.outcome, said.reason) == ("approved", "as agreed")
            with pytest.raises(ReleaseWithheld) as late:
                ana.train(body(made.id, mu="0.1"), wait_for_approval_seconds=0.2)
            assert late.value.code == "release-pending"
            with pytest.raises(ReleaseWithheld, match="waits"):
                ana.released(ana.job(late.value.job))
            client.reject(next(client.models(approval="pending", dataset=made.id)).id, "too fine")
            with pytest.raises(ReleaseWithheld, match="rejected by the owner: too fine"):
                ana.released(ana.job(late.value.job), 5.0)
            assert model.delete() == ana.retract(first.id)
            with pytest.raises(FarthingError) as gone:
                model.summary()
            assert (gone.value.status, gone.value.code) == (410, "model-retracted")
            with pytest.raises(ReleaseWithheld, match="was retracted by the submitter"):
                ana.released(ana.job(first.job))


class TestKeysAndAudit:
    def test_keys_rotate_and_end(self, service: Embedded, client: Client) -> None:
        made = client.create_key("ada", "auditor")
        more = client.create_key("ada's laptop", "auditor", principal=made.principal)
        assert more.principal == made.principal
        with Client(service.url, made.key or "") as ada:
            me = ada.me()
            assert (me.role, me.id, me.name) == ("auditor", made.principal, "ada")
            fresh = ada.rotate_key(made.id)
            with pytest.raises(FarthingError) as old:
                ada.me()
            assert (old.value.status, old.value.code) == (401, "unauthenticated")
        with Client(service.url, fresh.key or "") as ada:
            assert ada.me().id == made.principal
            client.revoke_key(fresh.id)
            with pytest.raises(FarthingError):
                ada.me()

    def test_the_trail_is_listed_and_exported(self, service: Embedded, client: Client, released: Released) -> None:
        client.report(released.job.id)
        assert any(line.target and released.job.id in line.target for line in client.audit())
        lines = [json.loads(line) for line in client.audit_export()]
        assert {"principal", "action", "target", "status"} <= set(lines[0])
        header, *rows = client.audit_export("csv")
        assert header.split(",")[0] == "id"
        assert len(rows) >= len(lines)
        with someone(service, "analyst") as ana, pytest.raises(FarthingError) as forbidden:
            list(ana.audit_export())
        assert forbidden.value.code == "forbidden"


class TestWire:
    def test_nobody_there(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}", "key", timeout_seconds=2) as client:
            assert client.ready() is False
            with pytest.raises(Unreachable) as away:
                client.me()
        assert away.value.code == "unreachable"
        assert f"127.0.0.1:{port}" in str(away.value)
        assert "farthing up" in str(away.value)

    def test_a_wrong_key_is_refused_at_once(self, service: Embedded) -> None:
        with Client(service.url, "no-such-key") as client, pytest.raises(FarthingError) as wrong:
            client.me()
        assert wrong.value.status == 401
        with Client(service.url) as client:
            assert client.ready() is True

    def test_a_plain_answer_is_an_error_with_a_code(self) -> None:
        assert Refused(404, {"code": "http-404", "detail": "gone"}).code == "http-404"
        assert str(Refused(500, {})) == "unknown: no detail"

    @pytest.mark.slow
    def test_a_request_is_sent_again_while_the_service_starts_again(self, service: Embedded, client: Client) -> None:
        assert service.kill("api")
        assert client.me().role == "admin"

    @pytest.mark.slow
    def test_an_upload_is_sent_again_while_the_service_starts_again(
        self, service: Embedded, client: Client, records: Path
    ) -> None:
        assert service.kill("api")
        assert client.upload(records, metadata()).rows == 300

    @pytest.mark.slow
    def test_an_upload_is_sent_again_while_the_ledger_is_busy(
        self, service: Embedded, client: Client, records: Path
    ) -> None:
        """Its rows went over the wire each time: it was read again from its start."""
        database, busy = service.database(), f'"{LedgerBusy.code}"'
        log = service.home / "stderr.txt"
        before = log.read_text().count(busy)
        with ThreadPoolExecutor(1) as pool, io.BytesIO(records.read_bytes()) as stream:
            with database.write() as session:
                session.execute(select(1))  # the lock is taken with the first statement
                sent = pool.submit(client.upload, stream, metadata())
                deadline = time.monotonic() + 60
                while log.read_text().count(busy) == before:
                    assert time.monotonic() < deadline, log.read_text()[-2000:]
                    time.sleep(0.05)
            assert sent.result(60).rows == 300
        database.dispose()

    @pytest.mark.slow
    def test_what_cannot_be_rewound_is_sent_again_too(self, service: Embedded, client: Client, records: Path) -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as stream:
            with os.fdopen(writing, "wb") as source:
                source.write(records.read_bytes())
            assert service.kill("api")
            assert client.upload(stream, metadata()).rows == 300
