"""Jobs on the bank data of a running service, and what their models say."""

from typing import Any

from examples import bank
from tests.support.embedded import SEEDS, Embedded


def brier(*features: str) -> dict[str, Any]:
    """Return a model whose loss is not convex: the squared error of the probability."""
    chosen = {"features": list(features), "loss": {"kind": "brier"}, "weights": {"kind": "clip"}}
    return {"kind": "logistic", "target": "y", **chosen}


def upload(service: Embedded, epsilon: str = "20", **changes: Any) -> str:
    """Upload the bank data as its owner declares it, without a last record for each dataset before; return the id."""
    lines = bank.records().rstrip().splitlines(keepends=True)
    before = len(service.get("/v1/datasets")["data"])
    # The same records again would be refused, whatever bytes end the file, and so would most of them.
    apart = {"distinct_because": "a test takes them for other people"} if before else {}
    content = b"".join(lines[: len(lines) - before])
    return service.upload(content, **{**bank.metadata(epsilon=epsilon), **apart, **changes})


def succeed(service: Embedded, dataset: str, **body: Any) -> dict[str, Any]:
    """Submit a job, and return it once it has succeeded."""
    return _succeeded(service.wait(service.submit(dataset, **body)))


def succeed_together(service: Embedded, datasets: list[str], **body: Any) -> dict[str, Any]:
    """Submit a federated job, and return it once it has succeeded."""
    headers = {"Idempotency-Key": f"together-{next(SEEDS)}"}
    answer = service.http.post("/v1/jobs", json={**body, "federation": {"datasets": datasets}}, headers=headers)
    assert answer.status_code == 202, answer.text
    return _succeeded(service.wait(answer.json()["id"]))


def release_of(service: Embedded, done: dict[str, Any]) -> dict[str, Any]:
    """Return the release of a job that has succeeded."""
    return dict(service.get(f"/v1/models/{done['result']['model']}")["release"])


def summary_of(service: Embedded, done: dict[str, Any]) -> str:
    """Return what its model's summary says to a reader, in one line."""
    path = f"/v1/models/{done['result']['model']}/summary"
    return " ".join(service.http.get(path, headers={"Accept": "text/plain"}).text.split())


def _succeeded(done: dict[str, Any]) -> dict[str, Any]:
    assert done["state"] == "succeeded", done
    return done
