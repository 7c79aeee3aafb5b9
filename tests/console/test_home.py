"""Home: each role finds what is to be looked at, and nothing of others."""

import json
import re
import time
from pathlib import Path

from core.jobs import jobs as rows
from tests.support.api import Service, csv, job, metadata, own_key, running, submit, upload


def test_an_owner_alone_reads_of_unreadable_cells(service: Service) -> None:
    client, made = service.someone("owner", "careless")
    spoilt = re.sub(rb"^\d\d\.", b"old", csv(400, 77_000), count=20, flags=re.MULTILINE)
    declared = json.dumps(metadata(name="half read"))
    parts = [
        ("metadata", (None, declared, "application/json")),
        ("file", ("people.csv", spoilt, "text/csv")),
    ]
    answer = client.post("/v1/datasets", files=parts)
    assert answer.status_code == 201, answer.text
    text = service.window(made["key"]).get("/").text
    assert "half read: 20 cells of age cannot be read" in text
    assert f"/datasets/{answer.json()['id']}/validation" in text
    for role in ("admin", "auditor"):
        _, other = service.someone(role, f"curious {role}")
        shown = service.window(other["key"]).get("/").text
        assert "cannot be read" not in shown


def test_a_failed_job_is_shown_to_who_asked_and_to_the_owner(service: Service) -> None:
    owner, own = service.someone("owner", "data office")
    analyst, asks = service.someone("analyst", "Ann Bauer")
    dataset = str(upload(owner, shift=78_000, name="asked")["id"])
    path = f"/v1/datasets/{dataset}/access/{asks['principal']}"
    assert owner.put(path, json={"budget_cap": "all"}).status_code == 201
    made = submit(analyst, job(dataset, labels={"name": "too far"})).json()["id"]
    assert "too far: queued" in service.window(asks["key"]).get("/").text
    database = service.database()
    while (claim := database.transaction(rows.claim, "test", 600.0)) is not None and claim.job_id != made:
        pass
    assert claim is not None, "the job was queued"
    database.transaction(rows.fail, claim, "trainer-failed", charge="spent")
    time.sleep(1.1)  # the ends of jobs are seen on a grid of a second
    database.dispose()
    assert "too far failed" in service.window(asks["key"]).get("/").text
    assert "by Ann Bauer failed" in service.window(own["key"]).get("/").text


def test_a_cap_is_neither_spent_nor_the_analyst_s_beyond_it(service: Service) -> None:
    owner, _ = service.someone("owner", "gives half")
    _, made = service.someone("analyst", "has half")
    dataset = str(upload(owner, shift=78_500, name="halved")["id"])
    given = owner.put(
        f"/v1/datasets/{dataset}/access/{made['principal']}", json={"budget_cap": {"budget_share": "0.5"}}
    )
    assert given.status_code == 201
    window = service.window(made["key"])
    text = window.get("/").text
    assert "50.0\N{NO-BREAK SPACE}% left" in text
    assert '<rect class="g-spent" width="0.0000%"' in text
    assert '<rect class="g-others" x="49.9999%"' in text
    assert (
        '<rect class="g-others" x="100.0000%"'
        in service.window(service.someone("auditor", "all")[1]["key"]).get("/").text
    )


def test_home_begins_with_the_first_deed_of_each_role(service: Service) -> None:
    """An owner whose key somebody else made uploads nothing before it is replaced; then the deed is gone."""
    made = service.client().post("/v1/keys", json={"name": "new office", "role": "owner"}).json()
    window = service.window(made["key"])
    text = window.get("/").text
    assert "Replace your key before your first upload" in text
    assert '<a class="btn" href="/you">' in text
    fresh = own_key(service.client(made["key"]), made)
    text = service.window(fresh["key"]).get("/").text
    assert "Replace your key" not in text
    _, analyst = service.someone("analyst", "brand new")
    text = service.window(analyst["key"]).get("/").text
    assert "Replace your key" not in text, "an analyst's key is no bar"
    assert 'Tell an owner your <a href="/you">id</a>' in text


def test_an_admin_begins_with_invitations(tmp_path: Path) -> None:
    """On a service without datasets home says to invite people, and so does the page of people."""
    with running(tmp_path / "home") as empty:
        window = empty.window(empty.key)
        text = window.get("/").text
        assert "Invite a data owner and an analyst" in text
        assert '<a class="btn" href="/invitations">' in text
        assert 'href="/invitations">invitation</a>' in window.get("/people").text
        upload(empty.someone("owner", "first owner")[0], shift=79_000)
        assert "Invite a data owner and an analyst" not in window.get("/").text


def test_each_cell_is_in_one_count_of_the_report(service: Service) -> None:
    """The API counts unreadable cells as missing too; the page must not count a cell twice."""
    client, made = service.someone("owner", "counts cells")
    spoilt = re.sub(rb"^\d\d\.", b"old", csv(400, 80_000), count=10, flags=re.MULTILINE)
    spoilt = re.sub(rb"^\d\d\.\d+", b"", spoilt, count=5, flags=re.MULTILINE)
    parts = [
        ("metadata", (None, json.dumps(metadata(name="counted")), "application/json")),
        ("file", ("people.csv", spoilt, "text/csv")),
    ]
    dataset = client.post("/v1/datasets", files=parts).json()["id"]
    counts = client.get(f"/v1/datasets/{dataset}/validation").json()["columns"][0]
    assert (counts["unreadable"], counts["missing"]) == (10, 15)
    text = service.window(made["key"]).get(f"/datasets/{dataset}/validation").text
    assert '<td class="num">10</td><td class="num">5</td><td class="wrap">15 without a value' in text
