"""A dataset's budget and activity, an operator's page and a certificate's check: the figures of the API."""

import httpx
import pytest

from api.pages.entry_words import sentence
from core.ledger.kinds import KINDS
from farthing.schemas.figures import per_cent
from tests.api.test_models import finish
from tests.support.api import Service, job, submit, upload
from tests.support.windows import csrf


class Made:
    """An owner with two ended jobs of an analyst, and windows of both."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.owner, own = service.someone("owner", "budget office")
        self.analyst, asks = service.someone("analyst", "Ann Bauer")
        self.dataset = str(upload(self.owner, shift=60_000, name="spent on")["id"])
        path = f"/v1/datasets/{self.dataset}/access/{asks['principal']}"
        assert self.owner.put(path, json={"budget_cap": "all"}).status_code == 201
        self.jobs = [
            submit(self.analyst, job(self.dataset, labels={"name": name})).json()["id"] for name in ("a1", "b2")
        ]
        for made in self.jobs:
            finish(service, made)
        self.scope = self.owner.get(f"/v1/datasets/{self.dataset}").json()["scope"]
        self.window, self.hers = service.window(own["key"]), service.window(asks["key"])


@pytest.fixture(scope="module")
def made(service: Service) -> Made:
    return Made(service)


def test_the_burn_down_has_the_points_of_the_history(made: Made) -> None:
    page = made.window.get(f"/datasets/{made.dataset}/budget").text
    points = made.owner.get(f"/v1/scopes/{made.scope}/history").json()["data"]
    assert len(points) == 2
    for point in points:
        assert f'{per_cent(point["charged"])}</td><td class="num">{per_cent(point["remaining"])}' in page
    assert page.count('class="c-pin"') in {1, 2}, "two that lie on each other have one pin"
    assert "Ann Bauer" in page
    assert ">a1</bdi>" in page


def test_the_offers_are_those_of_the_api(made: Made) -> None:
    page = made.window.get(f"/datasets/{made.dataset}/budget").text
    offers = made.owner.get(f"/v1/datasets/{made.dataset}/offers").json()["offers"]
    assert offers
    for one in offers:
        assert one["name"] in page
        assert per_cent(one["budget_share"]) in page


def test_an_analyst_sees_no_job_of_others_in_the_burn_down(made: Made, service: Service) -> None:
    client, asks = service.someone("analyst", "Tom")
    path = f"/v1/datasets/{made.dataset}/access/{asks['principal']}"
    assert made.owner.put(path, json={"budget_cap": "all"}).status_code == 201
    page = service.window(asks["key"]).get(f"/datasets/{made.dataset}/budget").text
    assert made.jobs[0] in page, "the ledger shows ids"
    for hidden in ("Ann Bauer", ">a1<", f'href="/jobs/{made.jobs[0]}"'):
        assert hidden not in page, hidden
    assert client.get(f"/v1/jobs/{made.jobs[0]}").status_code == 404


def test_an_owner_reads_everything_that_was_done(made: Made) -> None:
    page = made.window.get(f"/datasets/{made.dataset}/activity").text
    lines = made.owner.get(f"/v1/datasets/{made.dataset}/activity").json()["data"]
    assert any(line["job"] == made.jobs[0] for line in lines)
    assert "Ann Bauer" in page
    assert f'href="/jobs/{made.jobs[0]}"' in page
    assert made.hers.get(f"/datasets/{made.dataset}/activity").status_code == 403


def test_the_operators_page_has_queue_and_limits(made: Made, service: Service) -> None:
    waits = submit(made.analyst, job(made.dataset, labels={"name": "c3"})).json()["id"]
    _, key = service.someone("admin", "operator")
    page = service.window(key["key"]).get("/service").text
    assert waits in page
    assert "Limits of one principal" in page
    assert "No worker is at work" in page
    made.analyst.post(f"/v1/jobs/{waits}/cancel")


def _check(window: httpx.Client, text: str) -> httpx.Response:
    return window.post("/certificates/check", data={"csrf": csrf(window), "certificate": text})


def test_a_certificate_is_checked(made: Made) -> None:
    signed = made.owner.get(f"/v1/jobs/{made.jobs[0]}/certificate").text
    found = _check(made.window, signed)
    assert found.status_code == 200
    assert "It holds" in found.text
    assert made.jobs[0] in found.text
    head, payload, signature = signed.split(".")
    spoilt = _check(made.window, f"{head}.{payload[:-4]}AAAA.{signature}")
    assert "It does not hold" in spoilt.text
    assert _check(made.window, " ").status_code == 422


def test_the_ledger_says_each_entry_in_a_sentence(made: Made) -> None:
    made.owner.post(f"/v1/scopes/{made.scope}/freeze", json={"reason": "a <b>look</b>"})
    made.owner.post(f"/v1/scopes/{made.scope}/unfreeze", json={"reason": "looked"})
    text = made.window.get(f"/datasets/{made.dataset}/ledger").text
    for said in (
        "The budget was opened: epsilon 3 at delta 0.000001.",
        "A dataset of 400 rows came in.",
        "All of the budget is open to Ann Bauer.",
        "The price of the job was reserved, with an allowance for retries.",
        "The budget was frozen: a &lt;b&gt;look&lt;/b&gt;",
        "The budget was unfrozen: looked",
    ):
        assert said in text, said
    hers = made.hers.get(f"/datasets/{made.dataset}/ledger").text
    assert "All of the budget is open to Ann Bauer." in hers, "the own name"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_entry_has_a_sentence(kind: str) -> None:
    """Also with members that a version of the form leaves out."""
    said = sentence(kind, {}, None, {})
    assert said.endswith(".")
    assert len(said.split()) > 3


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("withhold", {}, "The release waits for approval by the owner."),
        ("decide", {"outcome": "approved", "reason": None}, "The owner approved the release."),
        ("decide", {"outcome": "rejected", "reason": "too few"}, "The owner rejected the release: too few"),
        ("grant", {"principal": "pr_1", "closed": True}, "No more of the budget is open to Ann."),
        (
            "grant",
            {"principal": "pr_1", "closed": False, "terms": {"declared": {"share": "0.25"}}},
            "At most 25\N{NO-BREAK SPACE}% of the budget is open to Ann.",
        ),
        (
            "grant",
            {"principal": "pr_2", "closed": False, "terms": {"declared": {"epsilon": "1"}}},
            "At most epsilon 1 of the budget is open to pr_2.",
        ),
        ("spend", {"again": False}, "Chunk 3 was paid, before it read records."),
        ("spend", {"again": True}, "Chunk 3 was paid again, by the allowance for retries."),
    ],
)
def test_an_entry_is_said_plainly(kind: str, body: dict[str, object], said: str) -> None:
    assert sentence(kind, body, 2, {"pr_1": "Ann"}) == said
