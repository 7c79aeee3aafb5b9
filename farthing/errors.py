"""Errors, as the service names them."""

from collections.abc import Mapping, Sequence
from typing import Any


class FarthingError(Exception):
    """The service refused: a problem document (RFC 9457) with a stable `code`.

    Attributes:
        status: the HTTP status.
        code: the stable code, for programs.
        detail: the fault and its remedy, for people.
        retryable: whether the same request may succeed later.
        errors: one mapping a wrong field, with `pointer` and `detail`.
        problem: the whole document.
        retry_after_seconds: the service asks for the same request again after that; 0: it names no time.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_seconds: float = 0.0) -> None:
        """Keep the problem document."""
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.problem = problem
        self.code = str(problem.get("code", "unknown"))
        self.detail = str(problem.get("detail") or problem.get("title") or "no detail")
        self.retryable = bool(problem.get("retryable", False))
        self.errors: Sequence[Mapping[str, str]] = problem.get("errors") or ()
        fields = "".join(f"\n  {error.get('pointer', '')}: {error.get('detail', '')}" for error in self.errors)
        super().__init__(f"{self.code}: {self.detail}{fields}")


class DraftRefused(FarthingError):
    """The file of a draft was refused. The draft keeps its parts for a day: mend it, and send the same file again.

    Attributes:
        dataset: the draft, `ds_...`.
    """

    def __init__(self, refusal: FarthingError, dataset: str) -> None:
        """Keep the service's refusal, and name the draft."""
        self.dataset = dataset
        super().__init__(refusal.status, refusal.problem, refusal.retry_after_seconds)


class JobFailed(FarthingError):
    """The job ended without a result."""

    def __init__(self, job_id: str, state: str, code: str | None, why: str | None = None) -> None:
        """Say how it ended, and why where that is known: a failed job keeps a code, and words that follow from it."""
        detail = f"job {job_id} ended as {state}" + (f" ({code})" if code else "") + (f": {why}" if why else "")
        # No request was refused: the job itself was answered with status 200.
        super().__init__(200, {"code": code or state, "detail": detail})


class ReleaseWithheld(FarthingError):
    """The job succeeded and is paid for, and its model is not to be had with this key, now or any more.

    Attributes:
        job: its id. Where `code` is `release-pending`, `client.train` can wait for the approval, and
            `client.released(client.job(job))` has the model after it.
    """

    def __init__(self, job_id: str, approval: str, why: str) -> None:
        """Say why; codes are release-pending, release-rejected, release-retired and release-retracted."""
        self.job = job_id
        detail = f"job {job_id} succeeded; its release {why}"
        super().__init__(200, {"code": f"release-{approval}", "detail": detail})


class WrongInput(FarthingError, ValueError):
    """An argument that cannot be sent, found before any request."""

    def __init__(self, detail: str, pointer: str = "", fix: str = "") -> None:
        """Name the field and the fix, as the service's refusals do."""
        errors = [{"pointer": pointer, "detail": fix}] if pointer else []
        super().__init__(0, {"code": "wrong-input", "detail": detail, "errors": errors})


class MissingExtra(FarthingError, ImportError):
    """A call needs a package that is not installed."""

    def __init__(self, package: str, what: str, extra: str) -> None:
        """Name the package, the call and the extra that brings it."""
        detail = f'{what} needs {package}, which is not installed: pip install "farthing[{extra}]"'
        super().__init__(0, {"code": "missing-extra", "detail": detail})


class Unreachable(FarthingError):
    """No answer came from the service."""

    def __init__(self, url: str, reason: str) -> None:
        """Name the address that was tried."""
        detail = f"no answer from {url} ({reason}); is the service up? `farthing up` starts one"
        # Without an answer there is no status.
        super().__init__(0, {"code": "unreachable", "detail": detail, "retryable": True})
