"""Webhooks and the email address by the client and by commands."""

from collections.abc import Iterator

import pytest
from standardwebhooks import Webhook as Verifier
from typer.testing import CliRunner

from farthing import Client, FarthingError
from farthing.cli import app
from farthing.schemas.notices import KINDS
from tests.support.api import Service, running
from tests.support.listener import listening
from tests.support.mailbox import Mailbox, mailbox, noticing


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as found:
        yield found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, box: Mailbox) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("noticing"), **noticing(box)) as found:
        yield found


def run(service: Service, *words: str, code: int = 0) -> str:
    environment = {"FARTHING_URL": service.url, "FARTHING_KEY": service.key}
    said = CliRunner().invoke(app, list(words), env=environment)
    assert said.exit_code == code, said.output
    return said.output


def test_webhooks_by_commands(service: Service) -> None:
    with listening() as there, Client(service.url, service.key) as client:
        secret = run(service, "webhooks", "add", there.url, "--kind", "job.ended").splitlines()[-1]
        (hook,) = client.webhooks()
        assert hook.kinds == ["job.ended"]
        assert hook.url in run(service, "webhooks", "list")
        assert hook.id in run(service, "webhooks", "list", "--json")
        assert run(service, "webhooks", "test", hook.id).startswith("msg_")
        (came,) = there.wait(1)
        assert Verifier(secret).verify(came.body, came.headers)["type"] == "webhook.test"
        assert run(service, "webhooks", "rotate", hook.id).splitlines()[-1].startswith("whsec_")
        assert came.headers["webhook-id"] in run(service, "webhooks", "deliveries", hook.id)
        assert "webhook.test" in run(service, "webhooks", "deliveries", hook.id, "--json")
        assert run(service, "webhooks", "remove", hook.id) == f"{hook.id}: removed\n"
        assert list(client.webhooks()) == []


def test_the_email_address_by_commands(service: Service, box: Mailbox) -> None:
    assert run(service, "email", "show") == "no address\n"
    assert run(service, "email", "set", "ann@example.com", "--kind", "budget.low") == (
        "ann@example.com: unconfirmed; budget.low\n"
    )
    code = box.wait(1)[0].message.get_content().split()[0]
    assert run(service, "email", "confirm", code) == "ann@example.com: confirmed; budget.low\n"
    with Client(service.url, service.key) as client:
        assert client.set_email("ann@example.com").kinds == sorted(KINDS)
        with pytest.raises(FarthingError):
            client.set_email("ann@example.com\r\nBcc: x@evil.example")
    assert run(service, "email", "remove") == "no address\n"
