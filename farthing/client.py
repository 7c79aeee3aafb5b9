"""A typed, synchronous client. Creating calls carry an idempotency key, so a repeated send is answered once."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from uuid import uuid4

import httpx

from farthing.errors import FarthingError, JobFailed, Unreachable
from farthing.views import Budget, Dataset, Estimate, Job, Key, Summary, Verification

Spec = Mapping[str, Any]
SENDS = 4
"""How often one request is sent at most when no answer comes, or a retryable one."""

CONTENT_TYPES = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".feather": "application/vnd.apache.arrow.file",
    ".arrows": "application/vnd.apache.arrow.stream",
}


class Client:
    """Talks to one Farthing service.

    Args:
        url: where the service listens.
        key: an API key.
        timeout_seconds: of one request; uploads and waits take longer by themselves.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", key: str = "", timeout_seconds: float = 60.0) -> None:
        """Open a connection pool; nothing is sent yet."""
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ready(self) -> bool:
        """Say whether the service answers and is ready for work."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    # Data ----------------------------------------------------------------------------------------------------------

    def upload(self, file: str | Path | BinaryIO, metadata: Spec, *, key: str | None = None) -> Dataset:
        """Upload records with their declared columns and budget.

        Args:
            file: a path to, or an open binary file of, CSV, Parquet or Arrow IPC.
            metadata: name, columns, and a budget or a scope to join.
            key: idempotency key; made here unless given.

        Raises:
            FarthingError: with the wrong fields named; nothing was stored.
        """
        if isinstance(file, str | Path):
            path = Path(file)
            with path.open("rb") as stream:
                return self._upload(stream, path.name, metadata, key)
        return self._upload(file, Path(getattr(file, "name", "records.csv")).name, metadata, key)

    def _upload(self, stream: BinaryIO, name: str, metadata: Spec, key: str | None) -> Dataset:
        kind = CONTENT_TYPES.get(Path(name).suffix.lower(), "text/csv")
        parts = [
            ("metadata", (None, json.dumps(metadata).encode(), "application/json")),
            ("file", (name, stream, kind)),
        ]
        headers = {"Idempotency-Key": key or str(uuid4())}
        # One send only: a stream that broke half-way cannot be rewound for every caller.
        answer = self._send("POST", "/v1/datasets", sends=1, files=parts, headers=headers, timeout=None)
        return Dataset.model_validate(answer.json())

    def datasets(self) -> Iterator[Dataset]:
        """Yield the datasets that this key may see."""
        return (Dataset.model_validate(item) for item in self._pages("/v1/datasets"))

    def dataset(self, dataset: str) -> Dataset:
        """Return a dataset's public facts."""
        return Dataset.model_validate(self._get(f"/v1/datasets/{dataset}"))

    def validation(self, dataset: str) -> dict[str, Any]:
        """Return the owner's report: how many cells were clamped, unknown or missing."""
        return self._get(f"/v1/datasets/{dataset}/validation")

    def share(self, dataset: str, principal: str) -> None:
        """Let another principal see a dataset and send jobs to it."""
        self._send("PUT", f"/v1/datasets/{dataset}/access/{principal}")

    def erase(self, dataset: str) -> None:
        """Erase the records; the ledger stays."""
        self._send("DELETE", f"/v1/datasets/{dataset}")

    # Budget --------------------------------------------------------------------------------------------------------

    def budget(self, dataset: str) -> Budget:
        """Return what is left of the budget of the people behind a dataset."""
        return Budget.model_validate(self._get(f"/v1/datasets/{dataset}/budget"))

    def entries(self, scope: str) -> Iterator[dict[str, Any]]:
        """Yield a scope's ledger, oldest first."""
        return self._pages(f"/v1/scopes/{scope}/entries")

    def verify(self, scope: str) -> Verification:
        """Recompute a scope's chain and its sums."""
        return Verification.model_validate(self._send("POST", f"/v1/scopes/{scope}/verify").json())

    # Jobs ----------------------------------------------------------------------------------------------------------

    def estimate(self, job: Spec) -> Estimate:
        """Return price, plan and prediction of a job; no record is read."""
        return Estimate.model_validate(self._send("POST", "/v1/estimates", json=job).json())

    def submit(self, job: Spec, *, key: str | None = None) -> Job:
        """Queue a job and reserve the most it may cost.

        Args:
            job: dataset, model, optimizer, privacy, and what else a job may say.
            key: idempotency key; the same key and job again return the same job. Made here unless given.
        """
        headers = {"Idempotency-Key": key or str(uuid4())}
        return Job.model_validate(self._send("POST", "/v1/jobs", json=job, headers=headers).json())

    def job(self, job: str, *, wait_seconds: int = 0) -> Job:
        """Return a job, or wait that long for it to end."""
        headers = {"Prefer": f"wait={wait_seconds}"} if wait_seconds else {}
        timeout = 30.0 + wait_seconds
        return Job.model_validate(self._send("GET", f"/v1/jobs/{job}", headers=headers, timeout=timeout).json())

    def jobs(self, **filters: str) -> Iterator[Job]:
        """Yield jobs, newest first; filters: state, dataset, optimizer, label."""
        return (Job.model_validate(item) for item in self._pages("/v1/jobs", **filters))

    def watch(self, job: str, *, every_seconds: float = 1.0) -> Iterator[Job]:
        """Yield the job each time it is looked at, until it has ended."""
        while True:
            seen = self.job(job)
            yield seen
            if seen.ended:
                return
            time.sleep(every_seconds)

    def wait(self, job: str, *, progress: Callable[[Job], None] | None = None) -> Job:
        """Wait until a job has succeeded.

        Raises:
            JobFailed: it ended without a result.
        """
        seen = None
        for seen in self.watch(job):
            if progress is not None:
                progress(seen)
        assert seen is not None, "watch yields at least once"
        if seen.state != "succeeded":
            raise JobFailed(seen.id, seen.state, (seen.error or {}).get("code"))
        return seen

    def cancel(self, job: str) -> Job:
        """Cancel a job; what it has not spent is given back."""
        return Job.model_validate(self._send("POST", f"/v1/jobs/{job}/cancel").json())

    # Models --------------------------------------------------------------------------------------------------------

    def summary(self, model: str, *, level: float | None = None) -> Summary:
        """Return the coefficient table with private intervals."""
        query = {} if level is None else {"level": level}
        return Summary.model_validate(self._get(f"/v1/models/{model}/summary", **query))

    def summary_text(self, model: str) -> str:
        """Return the coefficient table as plain text."""
        return self._send("GET", f"/v1/models/{model}/summary", params={"format": "text"}).text

    def methods(self, model: str) -> str:
        """Return a paragraph that a paper's methods section may quote."""
        return str(self._get(f"/v1/models/{model}/methods")["text"])

    def predict(self, model: str, rows: list[Mapping[str, Any]]) -> list[dict[str, float]]:
        """Return predictions for rows in declared units."""
        answer = self._send("POST", f"/v1/models/{model}/predict", json={"rows": rows}).json()
        return list(answer["predictions"])

    def export(self, model: str, kind: str = "json") -> bytes:
        """Return the model as `json` or `safetensors`."""
        return self._send("GET", f"/v1/models/{model}/export", params={"format": kind}).content

    # Keys ----------------------------------------------------------------------------------------------------------

    def create_key(self, name: str, role: str) -> Key:
        """Make a principal with a key: owner, analyst, auditor or admin. The secret is in the answer, once."""
        headers = {"Idempotency-Key": str(uuid4())}
        body = {"name": name, "role": role}
        return Key.model_validate(self._send("POST", "/v1/keys", json=body, headers=headers).json())

    # Wire ----------------------------------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - query values are whatever httpx takes
        answer: dict[str, Any] = self._send("GET", path, params=query).json()
        return answer

    def _pages(self, path: str, **filters: str) -> Iterator[dict[str, Any]]:
        query: dict[str, str] = dict(filters)
        while True:
            page = self._get(path, **query)
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page.get("next") or page["data"][-1]["id"]

    def _send(self, method: str, path: str, *, sends: int = SENDS, **request: Any) -> httpx.Response:  # noqa: ANN401 - passed on to httpx
        """Send, and send again where that is safe: reads, and writes with an idempotency key."""
        keyed = method != "POST" or "Idempotency-Key" in (request.get("headers") or {})
        for last in (*([False] * (sends - 1 if keyed else 0)), True):
            try:
                response = self._http.request(method, path, **request)
            except httpx.TransportError as error:
                if last:
                    raise Unreachable(self.url, type(error).__name__) from error
                time.sleep(0.5)
                continue
            if response.is_success:
                return response
            refusal = FarthingError(response.status_code, _problem(response))
            if last or not refusal.retryable:
                raise refusal
            time.sleep(min(float(response.headers.get("Retry-After", "1")), 5.0))
        raise AssertionError("the last send returns or raises")


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    """Return the problem document, or one made of a plain answer."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, Mapping):
        return body
    return {"code": f"http-{response.status_code}", "detail": response.text[:500]}
