"""A client generated from the OpenAPI document, by a tool of others, does the main job: submit, watch, read."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.embedded import KEY, LOGISTIC, ROOT, Embedded, embedded

SETTINGS = ROOT / "examples" / "openapi-python-client.yml"
METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home") / "service") as running:
        yield running


@pytest.fixture(scope="module")
def document(service: Embedded) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{service.url}/openapi.json", timeout=60).json()
    return found


@pytest.fixture(scope="module")
def generated(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package that openapi-python-client writes, which fails on a schema that it cannot parse."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(document))
    tool = Path(sys.executable).with_name("openapi-python-client")
    options = "--path openapi.json --fail-on-warning --meta none --output-path farthing_generated"
    done = subprocess.run(
        [tool, "generate", "--config", SETTINGS, *options.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert "Unable" not in done.stdout
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("farthing_generated")
    finally:
        sys.path.remove(str(folder))


def operation(generated: ModuleType, area: str, name: str) -> Any:
    """Return the generated module of an operation, by the name that it has here."""
    folder = Path(str(generated.__file__)).parent / "api" / area
    (found,) = folder.glob(f"{name}_v1*.py")
    return importlib.import_module(f"{generated.__name__}.api.{area}.{found.stem}")


@pytest.fixture
def client(service: Embedded, generated: ModuleType) -> Iterator[Any]:
    with generated.AuthenticatedClient(base_url=service.url, token=KEY, timeout=httpx.Timeout(60)) as found:
        yield found


def test_it_submits_watches_and_reads_a_job(service: Embedded, generated: ModuleType, client: Any) -> None:
    models = importlib.import_module(f"{generated.__name__}.models")
    body = models.JobSpec.from_dict(
        {
            "dataset": service.upload(),
            "model": LOGISTIC,
            "optimizer": {"kind": "noisy_newton", "steps": 4},
            "inference": {"accept_unchecked": True},
            "privacy": {"mu": "0.5"},
        }
    )
    submitted = operation(generated, "jobs", "submit_job").sync(client=client, body=body, idempotency_key=uuid4().hex)
    assert submitted.state == "queued"
    watched = submitted
    for _ in range(20):
        watched = operation(generated, "jobs", "get_job").sync(submitted.id, client=client, prefer="wait=30")
        if watched.finished_at is not None:
            break
    assert watched.state == "succeeded"
    history = operation(generated, "jobs", "list_events").sync(submitted.id, client=client)
    assert [line.kind for line in history.data][-1] == "succeeded"
    report = operation(generated, "jobs", "get_report").sync(submitted.id, client=client)
    assert report["job"]["id"] == submitted.id
    released = operation(generated, "models", "get_model").sync(watched.result.model, client=client)
    assert released.job == submitted.id
    summary = operation(generated, "models", "get_summary").sync(released.id, client=client)
    assert summary["coefficients"][0]["name"] == "intercept"


def test_a_refusal_is_a_problem_there_too(generated: ModuleType, client: Any) -> None:
    answer = operation(generated, "jobs", "get_job").sync_detailed("job_nowhere", client=client)
    assert answer.status_code == 404
    assert json.loads(answer.content)["code"] == "not-found"


def test_every_success_answer_has_a_schema(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method in operations.keys() & METHODS:
            answers = operations[method]["responses"]
            good = {status: answer for status, answer in answers.items() if status.startswith(("2", "3"))}
            assert good, f"{method} {path}"
            for status, answer in good.items():
                if status in {"204", "307"}:
                    assert "content" not in answer
                    continue
                assert answer.get("content"), f"{method} {path} {status} says not what it answers"
                for kind, content in answer["content"].items():
                    assert content.get("schema"), f"{method} {path} {status} {kind} has no schema"


def test_the_key_of_a_create_is_marked_required_where_it_is(document: dict[str, Any]) -> None:
    required = {
        f"{method} {path}": parameter["required"]
        for path, operations in document["paths"].items()
        for method in operations.keys() & METHODS
        for parameter in operations[method].get("parameters", ())
        if parameter["name"] == "Idempotency-Key"
    }
    assert required == {
        "post /v1/jobs": True,
        "post /v1/jobs/{job_id}/clone": True,
        "post /v1/mock-jobs": True,
        "post /v1/sweeps": True,
        "post /v1/datasets": False,
        "post /v1/datasets/{dataset_id}/uploads": False,
        "post /v1/keys": False,
    }
