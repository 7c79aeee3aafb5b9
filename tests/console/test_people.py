"""People: an admin reads somebody's keys, stops one, and shuts somebody out and lets them in again, with a reason."""

import pytest

from tests.support.api import Service
from tests.support.windows import csrf


def test_an_admin_shuts_somebody_out_and_in_again(service: Service) -> None:
    client, made = service.someone("analyst", "Ann Bauer")
    _, boss = service.someone("admin", "boss")
    window, hers = service.window(boss["key"]), service.window(made["key"])
    path = f"/people/{made['principal']}"
    shown = window.get(path)
    assert shown.status_code == 200
    assert made["id"] in shown.text
    assert boss["id"] not in shown.text, "keys of others"
    missing = window.post(f"{path}/disable", data={"csrf": csrf(window), "reason": " "})
    assert missing.status_code == 422
    assert "Write why" in missing.text
    assert client.get("/v1/me").status_code == 200
    done = window.post(f"{path}/disable", data={"csrf": csrf(window), "reason": "left the office"})
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert client.get("/v1/me").status_code == 401
    assert hers.get("/").headers["location"].startswith("/sign-in"), "her session has ended"
    assert "Let <bdi" in window.get(path).text
    lines = client_lines(service)
    assert lines[0]["target"] == f"principals/{made['principal']}/disable"
    window.post(f"{path}/enable", data={"csrf": csrf(window)})
    assert client.get("/v1/me").status_code == 200
    window.post(f"{path}/keys/{made['id']}/revoke", data={"csrf": csrf(window)})
    assert client.get("/v1/me").status_code == 401
    assert "revoked" in window.get(path).text


def client_lines(service: Service) -> list[dict[str, str]]:
    admin, _ = service.someone("admin", "reader")
    found: list[dict[str, str]] = admin.get("/v1/audit?limit=10").json()["data"]
    return [one for one in found if one["target"].startswith("principals/")]


@pytest.mark.parametrize("role", ["owner", "analyst", "auditor"])
def test_nobody_else_does(service: Service, role: str) -> None:
    _, other = service.someone("analyst", "somebody")
    _, made = service.someone(role, "curious")
    window = service.window(made["key"])
    path = f"/people/{other['principal']}"
    assert window.get(path).status_code == 403
    fields = {"csrf": csrf(window), "reason": "because"}
    for deed in ("disable", "enable", f"keys/{other['id']}/revoke"):
        assert window.post(f"{path}/{deed}", data=fields).status_code == 403, deed


def test_keys_of_one_principal(service: Service) -> None:
    admin, _ = service.someone("admin", "lister")
    client, made = service.someone("analyst", "one of many")
    found = admin.get(f"/v1/keys?principal={made['principal']}").json()["data"]
    assert [one["id"] for one in found] == [made["id"]]
    own = client.get(f"/v1/keys?principal={made['principal']}").json()["data"]
    assert [one["id"] for one in own] == [made["id"]]
    _, other = service.someone("analyst", "another")
    assert client.get(f"/v1/keys?principal={other['principal']}").json()["data"] == []
