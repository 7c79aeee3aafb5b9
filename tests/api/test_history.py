"""The route and the command of a budget's history; `tests/service/test_history.py` tests the content of points."""

from typer.testing import CliRunner

from farthing import Client
from farthing.cli import app
from tests.support.api import Service, job, submit, upload


def test_the_route_pages_and_keeps_to_roles(service: Service) -> None:
    owner, made = service.someone("owner", "Olive")
    dataset = upload(owner)
    analyst, who = service.someone("analyst")
    owner.put(f"/v1/datasets/{dataset['id']}/access/{who['principal']}", json={"budget_cap": "all"})
    for client in (owner, analyst, owner):
        client.post(f"/v1/jobs/{submit(client, job(dataset['id'])).json()['id']}/cancel")
    path = f"/v1/scopes/{dataset['scope']}/history"
    page = owner.get(path, params={"limit": 2}).json()
    assert (len(page["data"]), page["has_more"]) == (2, True)
    rest = owner.get(path, params={"after": page["next"]}).json()
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    assert {one["charged"] for one in page["data"] + rest["data"]} == {"0"}
    everybody = [
        (owner, 200),
        (analyst, 200),
        (service.someone("auditor")[0], 200),
        (service.client(), 200),
        (service.someone("owner")[0], 404),
        (service.someone("analyst")[0], 404),
    ]
    assert [client.get(path).status_code for client, _ in everybody] == [status for _, status in everybody]
    assert owner.get(path, params={"after": -1}).status_code == 422
    with Client(service.url, made["key"]) as client:
        assert [one.name for one in client.history(dataset["scope"])].count("Olive") == 2
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": made["key"]}
    said = CliRunner().invoke(app, ["history", dataset["scope"], "--json"], env=environment)
    assert (said.exit_code, len(said.output.splitlines())) == (0, 3)
    assert CliRunner().invoke(app, ["history", dataset["scope"]], env=environment).exit_code == 0
