"""Whatever the OpenAPI document allows, and much that it does not, is answered without a 5xx."""

from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from tests.support.api import Service, job, submit, upload


def attack(service: Service, examples: int) -> list[str]:
    """Send generated requests to every operation, to real resources and invented ones; return what went wrong."""
    client = service.client()
    made = upload(client)
    job_id = submit(client, job(made["id"])).json()["id"]
    real = {"dataset_id": made["id"], "scope_id": made["scope"], "job_id": job_id}
    schema = schemathesis.openapi.from_dict(httpx.get(f"{service.url}/openapi.json").json())
    wrong: list[str] = []
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {service.key}"
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in GenerationMode:
                for known in (real, {}):
                    wrong += _attack(service, session, operation, mode, known, examples)
    return wrong


def _attack(
    service: Service,
    session: requests.Session,
    operation: Any,
    mode: GenerationMode,
    known: dict[str, str],
    examples: int,
) -> list[str]:
    wrong: list[str] = []
    named = {name: value for name, value in known.items() if f"{{{name}}}" in operation.path}
    if known and not named:
        return wrong

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode, path_parameters=named or None))
    def send(case: Any) -> None:
        try:
            answer = case.call(base_url=service.url, session=session, timeout=20)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return  # no client can send this
        if answer.status_code >= 500:
            wrong.append(f"{operation.label} {answer.status_code} {answer.text[:300]} {case.body!r:.300}")

    try:
        send()
    except Exception as error:  # noqa: BLE001 - reported with the operation's name
        if type(error).__name__ not in {"Unsatisfiable", "InvalidArgument"}:
            wrong.append(f"{operation.label} {mode} {type(error).__name__}: {error!s:.300}")
    return wrong


def test_a_few_of_everything(service: Service) -> None:
    assert attack(service, examples=3) == []
    assert service.process.poll() is None
    assert '"unhandled"' not in (service.home / "api.log").read_text()


@pytest.mark.slow
def test_many_of_everything(service: Service) -> None:
    assert attack(service, examples=60) == []
    assert '"unhandled"' not in (service.home / "api.log").read_text()
