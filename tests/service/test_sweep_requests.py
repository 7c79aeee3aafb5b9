"""Sweeps as requests: the one job that they become, and the names of fields in its refusals."""

from typing import Any

import pytest
from pydantic import ValidationError

from core.base.errors import BudgetExhausted, FieldError, Invalid
from core.base.validation_errors import field_errors
from core.planning.job import JobSpec
from core.service.sweeps import MOST_CANDIDATES, SweepRequest

GD = {"kind": "noisy_gd", "steps": 20}


def job(**changes: Any) -> dict[str, Any]:
    base = {
        "dataset": "ds_01m7z047qwmg8dd4x4h9dm983j",
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": GD,
        "privacy": {"mu": "0.5"},
        "inference": {"intervals": False},
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def ridged(ridge: Any, **changes: Any) -> dict[str, Any]:
    return job(model={"kind": "logistic", "target": "y", "ridge": ridge}, **changes)


def read(**body: Any) -> SweepRequest:
    return SweepRequest.model_validate(body)


def refused(**body: Any) -> dict[str, str]:
    """Return the fields at fault, and what is said of each."""
    try:
        read(**body).to_job()
    except Invalid as refusal:
        return {field.pointer: field.detail for field in refusal.fields}
    except ValidationError as error:
        return {field.pointer: field.detail for field in field_errors(error.errors(), body)}
    raise AssertionError("it is taken")


def settings(**body: Any) -> list[tuple[Any, ...]]:
    """Return steps and ridge of each candidate."""
    found = read(**body).body()["optimizer"]["candidates"]
    return [(one["optimizer"].get("steps"), one.get("ridge")) for one in found]


class TestBody:
    def test_jobs_become_candidates_of_the_first(self) -> None:
        body = read(jobs=[ridged(0.1), ridged(0.2, optimizer={"kind": "noisy_newton"})], runs=3, way="selection").body()
        assert body["optimizer"] == {
            "kind": "sweep",
            "candidates": [
                {"optimizer": GD, "ridge": 0.1},
                {"optimizer": {"kind": "noisy_newton"}, "ridge": 0.2},
            ],
            "runs": 3,
            "way": "selection",
        }
        assert {name: value for name, value in body.items() if name != "optimizer"} == JobSpec.model_validate(
            ridged(0.1)
        ).model_dump(exclude_unset=True, exclude={"optimizer"})

    def test_every_combination_of_a_grid_is_one(self) -> None:
        grid = {"/optimizer/steps": [10, 20], "/model/ridge": [0.0, 0.1]}
        expected = [(10, 0.0), (20, 0.0), (10, 0.1), (20, 0.1)]
        assert settings(job=job(), grid=grid) == expected
        assert settings(job=job(), grid=dict(reversed(grid.items()))) == expected, "names in an object have no order"

    def test_one_ridge_is_the_models(self) -> None:
        one = read(job=job(), grid={"/optimizer/steps": [10, 20], "/model/ridge": [0.1]}).body()
        other = read(jobs=[ridged(0.1, optimizer={**GD, "steps": steps}) for steps in (10, 20)]).body()
        assert one == other
        assert one["model"]["ridge"] == 0.1
        assert settings(job=ridged(0.3), grid={"/optimizer/steps": [1, 2]}) == [(1, None), (2, None)]

    def test_a_kind_may_vary_and_a_field_within_a_field(self) -> None:
        kinds = read(job=job(optimizer={"kind": "noisy_gd"}), grid={"/optimizer/kind": ["noisy_gd", "noisy_newton"]})
        assert [one["optimizer"]["kind"] for one in kinds.body()["optimizer"]["candidates"]] == [
            "noisy_gd",
            "noisy_newton",
        ]

    def test_candidates_share_nothing(self) -> None:
        first, second = read(job=job(), grid={"/optimizer/start": [[1.0, 2.0], [3.0, 4.0]]}).body()["optimizer"][
            "candidates"
        ]
        assert (first["optimizer"]["start"], second["optimizer"]["start"]) == ([1.0, 2.0], [3.0, 4.0])

    def test_a_grid_repeats_no_long_list_without_end(self) -> None:
        """Else a body of 5,000 values makes a job of a million."""
        long = job(optimizer={"kind": "noisy_gd", "start": [0.0] * 5000})
        grid = {"/optimizer/steps": list(range(1, 257))}
        assert list(refused(job=long, grid=grid)) == ["/grid"]
        assert list(refused(job=job(), grid={**grid, "/optimizer/start": [[0.0] * 5000]})) == ["/grid"]
        assert len(settings(job=long, grid={"/optimizer/steps": [1, 2, 3]})) == 3

    def test_only_sent_settings_are_settings(self) -> None:
        assert read(jobs=[job(), job(optimizer={**GD, "steps": 5})]).body()["optimizer"].keys() == {
            "kind",
            "candidates",
        }


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/jobs"),
        ({"jobs": [job()]}, "/jobs"),
        ({"jobs": []}, "/jobs"),
        ({"jobs": [job()] * (MOST_CANDIDATES + 1)}, "/jobs"),
        ({"job": job()}, "/grid"),
        ({"grid": {"/optimizer/steps": [1, 2]}}, "/job"),
        ({"jobs": [job(), job()], "job": job()}, "/jobs"),
        ({"jobs": [job(), job()], "grid": {"/optimizer/steps": [1, 2]}}, "/jobs"),
        ({"job": job(), "grid": {}}, "/grid"),
        ({"job": job(), "grid": {"/optimizer/steps": []}}, "/grid/~1optimizer~1steps"),
        ({"job": job(), "grid": {"/optimizer/steps": [1]}}, "/grid"),
        ({"job": job(), "grid": {"/optimizer/steps": 7}}, "/grid/~1optimizer~1steps"),
        (
            {"job": job(), "grid": {"/optimizer/steps": [1, 2], "/model/ridge": [0.001 * n for n in range(129)]}},
            "/grid",
        ),
        ({"job": job(), "grid": {f"/optimizer/s{n}": [1, 2] for n in range(40)}}, "/grid"),
        ({"job": job(), "grid": {"/privacy/mu": ["1", "2"]}}, "/grid/~1privacy~1mu"),
        ({"job": job(), "grid": {"/model/target": ["y", "z"]}}, "/grid/~1model~1target"),
        ({"job": job(), "grid": {"/optimizer": [1, 2]}}, "/grid/~1optimizer"),
        ({"job": job(), "grid": {"/optimizer/": [1, 2]}}, "/grid/~1optimizer~1"),
        ({"job": job(), "grid": {"/optimizer/a//b": [1, 2]}}, "/grid/~1optimizer~1a~1~1b"),
        ({"job": job(), "grid": {"optimizer/steps": [1, 2]}}, "/grid/optimizer~1steps"),
        ({"job": job(), "grid": {"/optimizer/a~b": [1, 2]}}, "/grid/~1optimizer~1a~0b"),
        ({"job": job(), "grid": {"/optimizer/steps/x": [1, 2]}}, "/grid/~1optimizer~1steps~1x"),
        (
            {"job": job(), "grid": {"/optimizer/steps": [1], "/optimizer/steps/x": [1, 2]}},
            "/grid/~1optimizer~1steps~1x",
        ),
        ({"jobs": [job(), job(privacy={"mu": "0.6"})]}, "/jobs/1/privacy/mu"),
        ({"jobs": [job(), job(), job(dataset="ds_01m7z047qwmg8dd4x4h9dm983k")]}, "/jobs/2/dataset"),
        ({"jobs": [job(), job(labels={"a/b": "c"})]}, "/jobs/1/labels/a~1b"),
        ({"jobs": [job(), job(model={"kind": "logistic", "target": "z", "ridge": 0.1})]}, "/jobs/1/model/target"),
        ({"jobs": [job(), job(optimizer={"kind": "noisy_gd", "steps": 0})]}, "/jobs/1/optimizer/steps"),
        ({"jobs": [job(), job(model={"kind": "linear", "target": "y"})]}, "/jobs/1/model/kind"),
        ({"jobs": [job(dataset=None), job(dataset=None)]}, "/jobs/0/dataset"),
        ({"job": job(dataset=None), "grid": {"/optimizer/steps": [1, 2]}}, "/job/dataset"),
        ({"job": job(models=["mdl_01m7z047qwmg8dd4x4h9dm983j"]), "grid": {"/optimizer/steps": [1, 2]}}, "/job/models"),
        (
            {
                "job": job(dataset=None, federation={"datasets": ["ds_1", "ds_2"]}),
                "grid": {"/optimizer/steps": [1, 2]},
            },
            "/job/federation",
        ),
        ({"jobs": [job(), job(optimizer={**GD, "steps": 5})], "runs": 0}, "/runs"),
        ({"jobs": [job(), job(optimizer={**GD, "steps": 5})], "way": "cheap"}, "/way"),
        ({"jobs": [job(), job(optimizer={**GD, "steps": 5})], "score_share": 1}, "/score_share"),
        ({"jobs": [job(), job(optimizer={**GD, "steps": 5})], "colour": 1}, "/colour"),
    ],
)
def test_the_wrong_field_is_named(body: dict[str, Any], pointer: str) -> None:
    assert pointer in refused(**body), refused(**body)


class TestNames:
    JOBS = read(jobs=[job(), job(optimizer={**GD, "steps": 5})])
    GRID = read(job=job(), grid={"/optimizer/start": ["zeros", [0.0, 1.0]], "/model/ridge": [0.0, 0.1]})

    @pytest.mark.parametrize(
        ("inside", "of_jobs", "of_grid"),
        [
            ("/optimizer/candidates/1/optimizer/steps", "/jobs/1/optimizer/steps", "/job/optimizer/steps"),
            ("/optimizer/candidates/1/optimizer/start/0", "/jobs/1/optimizer/start/0", "/grid/~1optimizer~1start/1/0"),
            ("/optimizer/candidates/1/ridge", "/jobs/1/model/ridge", "/grid/~1model~1ridge/0"),
            ("/optimizer/candidates/1", "/jobs/1", "/grid"),
            ("/optimizer/candidates", "/jobs", "/grid"),
            ("/optimizer/kind", "/jobs", "/grid"),
            ("/optimizer", "/jobs", "/grid"),
            ("/optimizer/runs", "/runs", "/runs"),
            ("/optimizer/score_share", "/score_share", "/score_share"),
            ("/model/ridge", "/jobs/0/model/ridge", "/grid/~1model~1ridge"),
            ("/privacy/mu", "/jobs/0/privacy/mu", "/job/privacy/mu"),
            ("#header/idempotency-key", "#header/idempotency-key", "#header/idempotency-key"),
            ("", "", ""),
        ],
    )
    def test_a_field_is_named_as_it_was_sent(self, inside: str, of_jobs: str, of_grid: str) -> None:
        assert (self.JOBS.pointer(inside), self.GRID.pointer(inside)) == (of_jobs, of_grid)

    def test_a_refusal_keeps_its_class_its_facts_and_its_text(self) -> None:
        fields = (FieldError("/privacy", "too much"), FieldError("/privacy/mu", "too much"))
        with pytest.raises(BudgetExhausted) as caught, self.GRID.naming():
            raise BudgetExhausted("See /privacy/mu, /privacy or /optimizer.", *fields, retry_after_seconds=7, scope="s")
        assert caught.value.detail == "See /job/privacy/mu, /job/privacy or /optimizer."
        assert [field.pointer for field in caught.value.fields] == ["/job/privacy", "/job/privacy/mu"]
        assert (caught.value.retry_after_seconds, caught.value.facts) == (7, {"scope": "s"})

    def test_a_candidate_in_a_text_is_named_as_it_was_sent(self) -> None:
        inside = "/optimizer/candidates/1/ridge"
        with pytest.raises(Invalid) as caught, self.JOBS.naming():
            raise Invalid(f"See {inside}.", FieldError("/optimizer/way", f"{inside} is dear; see ({inside})"))
        assert caught.value.detail == "See /jobs/1/model/ridge."
        assert caught.value.fields == (FieldError("/way", "/jobs/1/model/ridge is dear; see (/jobs/1/model/ridge)"),)

    def test_a_refusal_without_fields_keeps_its_text(self) -> None:
        with pytest.raises(BudgetExhausted, match=r"^The end of /privacy\.$"), self.JOBS.naming():
            raise BudgetExhausted("The end of /privacy.")
