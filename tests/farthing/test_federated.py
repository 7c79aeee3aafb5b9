"""Federated jobs as the SDK asks for them and the command line shows them: a dash stands for each hidden value."""

from typing import Any

import pytest

from farthing import federated, job_tables
from farthing.asking import over
from farthing.schemas.estimates import SiteEstimate
from farthing.schemas.jobs import JobView
from tests.farthing.conftest import shown
from tests.support.filled import filled

COST = {"budget_share": "0.025", "epsilon_alone": "0.4", "rho": "0.005", "mu": "0.1"}


def test_datasets_take_the_place_of_a_dataset() -> None:
    asked = over({"dataset": "ds_1", "privacy": {"mu": "1"}}, ["ds_2", "ds_3"], 1)
    assert asked == {"federation": {"datasets": ["ds_2", "ds_3"], "quorum": 1}, "privacy": {"mu": "1"}}
    assert over({"dataset": "ds_1"}, None, None) == {"dataset": "ds_1"}


def test_models_take_the_place_of_models() -> None:
    job = {"dataset": "ds_1", "models": ["mdl_0"], "optimizer": {"kind": "check_bound"}}
    assert over(job, None, models=["mdl_1"]) == {**job, "models": ["mdl_1"]}
    assert over(job, None) == job
    several = over(job, ["ds_2", "ds_3"], 2, ["mdl_1"])
    assert several["federation"] == {"datasets": ["ds_2", "ds_3"], "quorum": 2}
    assert several["models"] == ["mdl_1"]
    assert "dataset" not in several


def test_clients_are_shown_as_far_as_they_may_be_seen() -> None:
    paid = {"reserved": COST, "spent": {**COST, "budget_share": "0.011"}, "delta": "1e-6"}
    clients = [
        {
            "place": 0,
            "state": "failed",
            "dataset": "ds_1",
            "scope": "sc_1",
            "site": "north",
            "job": "job_1",
            "cost": paid,
            "error": {"code": "site-lost"},
        },
        {"place": 1, "state": "failed"},
    ]
    job = filled(
        JobView,
        {
            "id": "job_0",
            "state": "failed",
            "progress": {"step": 1, "steps": 8},
            "federation": {"job": "job_0", "quorum": 2, "sites": clients},
        },
    )
    assert job.cost is None
    *_, mine, other = shown(federated.sites(job))
    assert mine.split() == [
        *["0", "ds_1", "sc_1", "north", "job_1", "failed", "(site-lost)", "2.5", "%", "1.1", "%", "0.4", "1e-6"]
    ]
    assert other.split() == ["1", "-", "-", "-", "-", "failed", *"----"]
    assert federated.spent(job) == "1.1 %"
    more = {**clients[0], "place": 2, "cost": {**paid, "spent": {**COST, "budget_share": "0.105"}}}
    federation = {"job": "job_0", "place": None, "quorum": 2, "sites": [*clients, more]}
    several = filled(JobView, {**job.model_dump(), "federation": federation})
    assert shown(job_tables.jobs([several]))[1].endswith("1/8  1.1 to 10.5 %")


def waiting(sites: list[str | None], **changes: Any) -> JobView:
    """Return a federated job that is queued, with clients of these sites."""
    clients = [
        {
            "place": place,
            "state": "queued",
            "dataset": site and f"ds_{site}",
            "site": site,
            "job": site and f"job_{site}",
        }
        for place, site in enumerate(sites)
    ]
    told = {"id": "job_0", "state": "queued", "progress": {"step": 0, "steps": 8}, "model": {"kind": "linear"}}
    federation = {"job": "job_0", "quorum": 2, "sites": clients}
    return filled(JobView, {**told, "federation": federation, **changes})


def test_what_was_asked_is_told_whole_or_not_at_all() -> None:
    asked = {"model": {"kind": "linear", "target": "y"}, "optimizer": {"kind": "noisy_gd"}, "retry_allowance": 2}
    spec = waiting(["a", "b"], **asked).spec
    assert spec is not None
    assert spec["federation"] == {"datasets": ["ds_a", "ds_b"], "quorum": 2}
    assert asked.items() <= spec.items()
    assert "dataset" not in spec
    assert waiting(["a", None], **asked).spec is None


@pytest.mark.parametrize(
    ("model", "fits"),
    [({"kind": "description", "columns": ["age"]}, "description"), ({"kind": "linear", "target": "y"}, "linear for y")],
)
def test_a_job_is_shown_with_and_without_a_target(model: dict[str, object], fits: str) -> None:
    lines = [" ".join(line.split()) for line in shown(job_tables.job(waiting([], model=model)))]
    assert f"fits {fits}" in lines


def test_a_job_tells_what_it_waits_for_and_whose_sites_keep_its_clients_records() -> None:
    found = waiting(["north", "", None], waits_for="a worker that serves north")
    lines = [" ".join(line.split()) for line in shown(job_tables.job(found))]
    assert lines[0] == "job_0"
    assert "state queued" in lines
    assert "waits for a worker that serves north" in lines
    assert not [line for line in lines if line.startswith(("dataset ", "site ", "ended "))], "it has none of its own"
    heads, *clients = lines[lines.index("sites of job_0") + 1 :]
    assert heads == "place dataset scope site job state reserved spent epsilon delta"
    assert clients == [
        "0 ds_north - north job_north queued - - - -",
        "1 - - (service) - queued - - - -",
        "2 - - - - queued - - - -",
    ]


def test_a_client_tells_its_site_and_which_job_it_is_of() -> None:
    ended = {"state": "failed", "site": "north", "dataset": "ds_1", "scope": "sc_1", "error": {"code": "site-lost"}}
    membership = {"federation": {"job": "job_9", "place": 1, "quorum": None, "sites": None}}
    lines = [" ".join(line.split()) for line in shown(job_tables.job(waiting([], **ended, **membership)))]
    for said in (
        "state failed (site-lost)",
        "dataset ds_1",
        "scope sc_1",
        "site north",
        "site of job_9, place 1",
        "steps 0/8",
    ):
        assert said in lines


def test_a_list_tells_sites_and_waiting_where_some_job_has_any() -> None:
    here = waiting([], federation=None, site="", state="running")
    heads, line = shown(job_tables.jobs([here]))
    assert heads.split() == ["id", "state", "optimizer", "model", "steps", "spent"]
    assert line.split()[-2:] == ["0/8", "-"]
    several = waiting(["north", "", "north"], waits_for="a worker that serves north")
    heads, _, line = shown(job_tables.jobs([here, several]))
    assert heads.split("  ")[-1].strip() == "spent"
    assert "site" in heads.split()
    assert "north, (service)" in line
    assert "a worker that serves north" in line


def test_prices_are_shown_client_by_client() -> None:
    one = {"dataset": "ds_1", "rows": 400, "cost": COST, "jobs_that_still_fit": 2}
    *_, line = shown(federated.prices([filled(SiteEstimate, one)]))
    assert line.split() == ["ds_1", "no", "400", "2.5", "%", "0.4", "0.1", "2"]
