"""Pages that only show: methods, a job's plan and sites, a signed head, space on the disk."""

import html
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from farthing.schemas.figures import per_cent, size
from tests.api.test_federations import federated
from tests.support.api import Service, job, submit, upload
from tests.support.browser import WIDTHS, look
from tests.support.windows import csrf


@pytest.fixture(scope="module")
def owner(service: Service) -> tuple[httpx.Client, httpx.Client]:
    client, made = service.someone("owner", "looks around")
    return client, service.window(made["key"])


@pytest.fixture(scope="module")
def dataset(owner: tuple[httpx.Client, httpx.Client]) -> dict[str, Any]:
    found: dict[str, Any] = upload(owner[0], shift=98_000, name="looked at")
    return found


def test_every_method_stands_with_all_that_it_assumes(owner: tuple[httpx.Client, httpx.Client]) -> None:
    client, window = owner
    text = html.unescape(window.get("/methods").text)
    cards = client.get("/v1/optimizers").json()["data"]
    assert len(cards) > 10
    for card in cards:
        assert card["title"] in text
        assert card["returns"] in text
        for said in card["assumptions"]:
            assert said["text"] in text
    for kind in client.get("/v1/model-kinds").json()["data"]:
        assert f'<code class="small">{kind["kind"]}</code>' in text


def test_a_plan_on_a_page_is_the_plan_of_the_api(
    owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]
) -> None:
    client, window = owner
    made = submit(client, job(dataset["id"])).json()["id"]
    plan = client.get(f"/v1/jobs/{made}/plan").json()
    text = window.get(f"/jobs/{made}").text
    assert f"Its plan: {plan['chunks']} chunks" in text
    for one in plan["runs"]:
        assert (
            f'<td class="num">{per_cent(one["budget_share"])}</td><td class="num">{one["epsilon_alone"]}</td>' in text
        )


def test_a_wrong_figure_of_a_new_job_is_said_at_the_field_and_beside_the_button(
    owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]
) -> None:
    _, window = owner
    form = {"dataset": dataset["id"], "target": "y", "features": "age", "by": "epsilon", "amount": "0.5"}
    text = window.post("/jobs/new/estimate", data=form | {"csrf": csrf(window), "base_rate": "many"}).text
    assert '<a href="#base_rate">Share or mean count: Write a number, such as 0.5.</a>' in text
    assert 'id="why-not" hx-swap-oob="true">Share or mean count: Write a number' in text


def test_prices_that_do_not_fit_are_shaded_above_the_band_and_below_the_line(
    owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]
) -> None:
    _, window = owner
    form = {"dataset": dataset["id"], "target": "y", "features": "age", "by": "epsilon", "amount": "2"}
    text = window.post("/jobs/new/estimate", data=form | {"csrf": csrf(window)}).text
    places = [text.find(f'class="{part}"') for part in ("c-band", "c-off", "c-line")]
    assert -1 not in places
    assert places == sorted(places), "the band is opaque"


@pytest.mark.parametrize(("epsilon", "fits"), [("0.5", True), ("50", False)])
def test_a_job_that_does_not_fit_cannot_be_submitted(
    owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any], epsilon: str, fits: bool
) -> None:
    _, window = owner
    form = {"dataset": dataset["id"], "target": "y", "features": "age", "by": "epsilon", "amount": epsilon}
    text = window.post("/jobs/new/estimate", data=form | {"csrf": csrf(window)}).text
    assert ("does not fit" in text) is not fits
    (button,) = re.findall('<button[^>]*id="submit"[^>]*>', text)
    assert ("disabled" in button) is not fits


@pytest.mark.parametrize("approval", [False, True])
def test_a_release_that_will_wait_for_approval_is_said_before_the_job(service: Service, approval: bool) -> None:
    client, made = service.someone("owner", "looks first")
    dataset = upload(client, shift=98_100 + approval, approval=approval)["id"]
    window = service.window(made["key"])
    form = {"dataset": dataset, "target": "y", "features": "age", "by": "epsilon", "amount": "0.5"}
    priced = window.post("/jobs/new/estimate", data=form | {"csrf": csrf(window)}).text
    shown = window.get(f"/datasets/{dataset}").text
    assert ("release waits for the approval" in priced) is approval
    assert ("wait for the owner" in shown) is approval
    assert f'href="/datasets/{dataset}/access">Let an analyst ask' in shown
    submit(client, job(dataset))
    assert "Next steps" not in window.get(f"/datasets/{dataset}").text


def test_the_sites_of_a_federated_job_stand_on_its_page(service: Service) -> None:
    """Each owner reads of the own site alone."""
    people = [service.someone("owner", f"hospital {place}") for place in range(2)]
    names = [str(upload(client, 99_000 + place)["id"]) for place, (client, _) in enumerate(people)]
    asks, key = service.someone("analyst", "asks both")
    for (client, _), name in zip(people, names, strict=True):
        path = f"/v1/datasets/{name}/access/{key['principal']}"
        assert client.put(path, json={"budget_cap": "all"}).status_code == 201
    made = submit(asks, federated(names)).json()
    text = service.window(key["key"]).get(f"/jobs/{made['id']}").text
    assert all(f'href="/datasets/{name}"' in text for name in names)
    mine, theirs = (one["job"] for one in made["federation"]["sites"])
    window = service.window(people[0][1]["key"])
    assert "site 1 of a federated job" in window.get(f"/jobs/{mine}").text
    assert window.get(f"/jobs/{theirs}").status_code == 404
    refused = asks.get(f"/v1/jobs/{made['id']}/plan")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


def test_a_signed_head_is_downloaded_and_checks(
    service: Service, owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]
) -> None:
    client, window = owner
    verified = client.post(f"/v1/scopes/{dataset['scope']}/verify").json()
    while verified["ok"] is None:
        verified = client.post(f"/v1/scopes/{dataset['scope']}/verify").json()
    answer = window.get(f"/datasets/{dataset['id']}/head")
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    assert client.post("/v1/certificates/check", json={"certificate": answer.text}).json()["valid"] is True
    _, made = service.someone("analyst", "no way in")
    assert service.window(made["key"]).get(f"/datasets/{dataset['id']}/head").status_code == 404


def test_an_owner_sees_the_space_on_the_disk(owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]) -> None:
    client, window = owner
    assert dataset["id"]
    used = client.get("/v1/usage").json()
    assert f"{size(used['stored_bytes'])} of {size(used['most_bytes'])} are taken" in window.get("/you").text


def test_these_pages_have_no_violation(service: Service, chromium: Browser) -> None:
    _, made = service.someone("analyst", "reads of methods")
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        for width in WIDTHS:
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.go("/methods")
            seen.refuse_violations()
        seen.refuse_reports()


def test_a_rehearsal_is_marked_and_costs_nothing(
    owner: tuple[httpx.Client, httpx.Client], dataset: dict[str, Any]
) -> None:
    client, window = owner
    before = client.get(f"/v1/datasets/{dataset['id']}/budget").json()
    asked = {"dataset": dataset["id"], "target": "y", "features": "age", "by": "epsilon", "amount": "0.5"}
    page = window.get(f"/jobs/new?dataset={dataset['id']}").text
    assert 'formaction="/jobs/new/rehearse"' in page
    form = asked | {"csrf": csrf(window), "name": "practice"}
    wrong = window.post("/jobs/new/rehearse", data=form | {"target": "nope"})
    assert wrong.status_code == 422
    assert 'id="problems"' in wrong.text
    sent = window.post("/jobs/new/rehearse", data=form)
    assert sent.status_code == 303
    place = sent.headers["Location"]
    assert place.startswith("/jobs/mock_")
    text = window.get(place).text
    assert "Mock: nothing here is about the data" in text
    assert "Its plan" not in text
    assert "Mock jobs" in window.get("/jobs").text
    assert f'href="{place}">' in window.get("/jobs").text
    assert "Mock: privacy report of practice" in window.get(f"{place}/report").text
    assert client.get(f"/v1/datasets/{dataset['id']}/budget").json() == before
    assert window.post(f"{place}/cancel", data={"csrf": csrf(window)}).status_code == 303
    assert client.get(f"/v1{place}").json()["state"] == "cancelled"
