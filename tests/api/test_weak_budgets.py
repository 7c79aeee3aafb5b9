"""Budgets that protect hardly anybody are refused, or taken only where their owner says that they are meant."""

import json

import httpx
import pytest

from core.privacy.draws import MOST_RUNS
from tests.support.api import Service, csv, job, metadata, post_dataset, submit, upload
from tests.support.verified import verified

FORTY = {"epsilon": "45", "delta": "1e-6", "accept_weak_privacy": True}


def refused(answer: httpx.Response) -> dict[str, str]:
    """Return the details of a refusal by their pointers."""
    assert answer.status_code == 422, answer.text
    return {error["pointer"]: error["detail"] for error in answer.json()["errors"]}


@pytest.mark.parametrize("accepted", [{}, {"accept_delta": True}])
@pytest.mark.parametrize("delta", ["0.01", "0.0025"])
def test_a_delta_of_1_over_n_or_more_is_refused_whatever_is_accepted(
    admin: httpx.Client, delta: str, accepted: dict[str, bool]
) -> None:
    """With it a mechanism that publishes a whole record keeps its promise; 400 records, 1/n = 0.0025."""
    told = refused(post_dataset(admin, budget={"epsilon": "3", "delta": delta, **accepted}))
    assert "give at most 0.00025, or leave it out" in told["/budget/delta"]


def test_a_delta_above_a_tenth_of_that_is_taken_where_it_is_accepted(admin: httpx.Client) -> None:
    told = refused(post_dataset(admin, budget={"epsilon": "3", "delta": "0.0024"}))
    assert "set it to true if that is meant" in told["/budget/accept_delta"]
    made = post_dataset(admin, budget={"epsilon": "3", "delta": "0.0024", "accept_delta": True})
    assert made.status_code == 201, made.text
    assert post_dataset(admin, budget={"epsilon": "3", "delta": "0.00025"}).status_code == 201


def test_an_upload_in_two_steps_is_checked_once_its_records_are_counted(admin: httpx.Client) -> None:
    declared = admin.post("/v1/datasets", json=metadata(budget={"epsilon": "3", "delta": "0.0024"}))
    assert declared.status_code == 201, declared.text
    put = admin.put(
        f"/v1/datasets/{declared.json()['id']}/content",
        content=csv(400, 13),
        headers={"Content-Type": "text/csv"},
    )
    assert "/budget/accept_delta" in refused(put)
    early = admin.post("/v1/datasets", json=metadata(rows=400, budget={"epsilon": "3", "delta": "0.0024"}))
    assert "/budget/accept_delta" in refused(early), "where their number is declared, at once"


def test_who_joins_a_scope_has_its_delta_checked_against_his_own_records(admin: httpx.Client) -> None:
    scope = post_dataset(admin, rows=100, budget={"epsilon": "3", "delta": "0.001"}).json()["scope"]
    joining = {"scope": scope, "budget": None}
    assert post_dataset(admin, rows=100, **joining).status_code == 201
    told = refused(post_dataset(admin, rows=1000, **joining))
    assert "join a scope whose delta is at most 0.0001" in told["/scope"]
    told = refused(post_dataset(admin, rows=500, **joining))
    assert "set it to true" in told["/accept_delta"]
    assert post_dataset(admin, rows=500, accept_delta=True, **joining).status_code == 201
    assert "/scope" in refused(post_dataset(admin, rows=1000, accept_delta=True, **joining))
    elsewhere = refused(post_dataset(admin, accept_delta=True))
    assert "budget.accept_delta" in elsewhere["/accept_delta"]


@pytest.mark.parametrize("budget", [{"epsilon": "20.5"}, {"rho": "6", "delta": "1e-6"}])
def test_a_large_epsilon_is_taken_where_it_is_accepted(admin: httpx.Client, budget: dict[str, str]) -> None:
    """However it is said: rho 6 is epsilon 24."""
    assert "set it to true" in refused(post_dataset(admin, budget=budget))["/budget/accept_weak_privacy"]
    assert "/budget/accept_weak_privacy" in refused(
        post_dataset(admin, budget={**budget, "accept_weak_privacy": False})
    )
    made = post_dataset(admin, budget={**budget, "accept_weak_privacy": True})
    assert made.status_code == 201, made.text
    assert post_dataset(admin, budget={"epsilon": "20"}).status_code == 201


def test_acceptance_is_a_boolean(admin: httpx.Client) -> None:
    assert "/budget/accept_delta" in refused(post_dataset(admin, budget={"epsilon": "3", "accept_delta": "yes"}))


def test_a_job_that_may_draw_more_than_the_proof_has_room_for_is_refused(admin: httpx.Client) -> None:
    """At epsilon 45 the proof has room for nine thousand units; each step of this job may draw five in ten runs."""
    made = upload(admin, budget=FORTY)
    many = job(made["id"], optimizer={"kind": "noisy_gd", "steps": 400}, inference={"intervals": False})
    answer = submit(admin, many)
    assert (answer.status_code, answer.json()["code"]) == (403, "draws-exhausted"), answer.text
    told = answer.json()
    assert int(told["draws"]) > int(told["most_draws"]) > 1000
    assert told["reserved_draws"] == "0"
    assert str(told["most_draws"]) in told["detail"]
    estimate = admin.post("/v1/estimates", json=many).json()
    assert (estimate["fits"], estimate["jobs_that_still_fit"]) == (False, 0)
    few = job(made["id"], optimizer={"kind": "noisy_gd", "steps": 20}, inference={"intervals": False})
    assert admin.post("/v1/estimates", json=few).json()["fits"]
    first = submit(admin, few)
    assert first.status_code == 202, first.text
    entries = admin.get(f"/v1/scopes/{made['scope']}/entries").json()["data"]
    reserved = json.loads(entries[-1]["body"])["draws"]
    assert 0 < reserved <= int(told["most_draws"])
    assert json.loads(entries[-1]["body"])["runs"] == MOST_RUNS, "each attempt that never begins gives a tenth back"
    assert verified(admin, made["scope"])["ok"]


def test_an_analyst_s_cheap_jobs_leave_the_owner_his_room_for_draws(service: Service) -> None:
    """At epsilon 20 an analyst with a thousandth of the budget used up all its draws, by samples that cost nothing."""
    (owner, _), (ann, who) = service.someone("owner"), service.someone("analyst")
    dataset = upload(owner, budget={"epsilon": "20", "delta": "1e-6"})
    owner.put(f"/v1/datasets/{dataset['id']}/access/{who['principal']}", json={"budget_cap": {"budget_share": "0.1"}})
    sampled = {"kind": "clipped_sgd", "steps": 60_000, "batch": 4, "clip": 1.0}
    body = job(dataset["id"], mu="0.0002", optimizer=sampled, inference={"intervals": False})
    answers = [submit(ann, body) for _ in range(10)]
    assert answers[0].status_code == 202, answers[0].text
    assert (answers[-1].status_code, answers[-1].json()["code"]) == (403, "draws-exhausted")
    refused = answers[-1].json()
    assert "budget cap has room for" in refused["detail"]
    assert ann.post("/v1/estimates", json=body).json()["jobs_that_still_fit"] == 0
    made = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    assert len(made) * int(refused["draws"]) <= int(refused["most_draws"]), "a tenth of the room, and no more"
    assert submit(owner, body).status_code == 202
    ann.post(f"/v1/jobs/{made[0]}/cancel")
    assert submit(ann, body).status_code == 202, "a job that paid nothing gives its draws back"
