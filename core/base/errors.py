"""Expected failures. Each is a `Refusal` with a stable code; `api/errors.py` gives each its HTTP status.

The docstring of a class is its title. Conditions that the guarantee depends on are checked by `ensure`, which also
raises under `python -O`. Other assertions are for types and tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Actor = Literal["client", "owner", "operator"]
Fact = str | int | None | Sequence[Mapping[str, str | int]]
"""A machine-readable fact of a refusal."""


@dataclass(frozen=True)
class FieldError:
    """One wrong field: a JSON pointer into the request and what to do about it."""

    pointer: str
    detail: str


class Refusal(Exception):
    """The request was refused."""

    code: ClassVar[str] = "refused"
    retryable: ClassVar[bool] = False
    actor: ClassVar[Actor] = "client"

    def __init__(self, detail: str, *fields: FieldError, retry_after_seconds: int | None = None, **facts: Fact) -> None:
        """Keep the text for people, the fields at fault, and facts that a program may read."""
        super().__init__(detail)
        self.detail = detail
        self.fields = fields
        self.retry_after_seconds = retry_after_seconds
        self.facts = facts


class Invalid(Refusal):
    """The request is not valid."""

    code = "invalid-request"


class DigestMismatch(Refusal):
    """The bytes that came are not those of the digest: send them again."""

    code = "digest-mismatch"
    retryable = True


class NotOfferedYet(Refusal):
    """This is part of the interface but not offered yet."""

    code = "not-offered-yet"


class Unauthenticated(Refusal):
    """A valid API key is needed."""

    code = "unauthenticated"


class Forbidden(Refusal):
    """This key's role does not allow that."""

    code = "forbidden"


class KeyNotOwn(Forbidden):
    """Somebody else made this key and has seen it: rotate it, then send records."""

    code = "key-not-own"


class NotFound(Refusal):
    """There is no such thing, or not for this key."""

    code = "not-found"


class Conflict(Refusal):
    """That does not fit the present state."""

    code = "conflict"


class DuplicateDataset(Refusal):
    """The same records are already a dataset of yours; its scope is named."""

    code = "duplicate-dataset"


class NearCopy(Refusal):
    """More than half of these rows may be in another scope of yours: join it, or say why these are other people."""

    code = "near-copy"


class ManyExcluded(Refusal):
    """More than 5 % of the rows would be excluded: mend file or declaration, or accept that; nothing was stored."""

    code = "many-excluded"


class PreconditionFailed(Refusal):
    """The resource has changed since it was read."""

    code = "precondition-failed"


class IdempotencyKeyMissing(Refusal):
    """An Idempotency-Key header is required."""

    code = "idempotency-key-missing"


class IdempotencyKeyReused(Refusal):
    """This Idempotency-Key was used with another body."""

    code = "idempotency-key-reused"


class IdempotencyKeyInFlight(Refusal):
    """A request with this Idempotency-Key is still being answered."""

    code = "idempotency-key-in-flight"
    retryable = True


class AdjacencyMismatch(Refusal):
    """The method is not offered under this scope's adjacency."""

    code = "adjacency-mismatch"


class BudgetExhausted(Refusal):
    """The job would pass the privacy budget."""

    code = "privacy-budget-exhausted"
    actor = "owner"


class DrawsExhausted(Refusal):
    """The job may draw more noise than the budget's proof has room for."""

    code = "draws-exhausted"
    actor = "owner"


class BudgetReserved(Refusal):
    """The job would fit if the present reservations were given back."""

    code = "privacy-budget-reserved"
    retryable = True


class ScopeFrozen(Refusal):
    """The owner or the auditor has frozen this scope."""

    code = "scope-frozen"
    actor = "owner"


class LedgerFrozen(Refusal):
    """The ledger is behind its witness: an operator must run `farthing reconcile`."""

    code = "ledger-frozen"
    actor = "operator"


class LedgerBusy(Refusal):
    """The ledger is busy; try again."""

    code = "ledger-busy"
    retryable = True


class DatabaseAway(LedgerBusy):
    """The database does not answer; try again, with the same idempotency key."""

    code = "database-away"
    actor = "operator"


class StaleAttempt(Refusal):
    """This attempt no longer holds the job: its lease was lost, or the job was cancelled or ended."""

    code = "stale-attempt"


class TooLarge(Refusal):
    """The upload passes a limit."""

    code = "too-large"


class UnsupportedMedia(Refusal):
    """This content type is not read here."""

    code = "unsupported-media-type"


class UnsupportedCoding(Refusal):
    """The body is encoded; bodies are read as they are, so that nothing unpacks to more than was sent."""

    code = "unsupported-content-coding"


class RateLimited(Refusal):
    """Too many requests."""

    code = "rate-limited"
    retryable = True


class TooManyAtOnce(Refusal):
    """Too many requests of this principal are being answered at this moment."""

    code = "too-many-at-once"
    retryable = True


class ServiceBusy(Refusal):
    """All places for requests of this kind are taken at this moment."""

    code = "service-busy"
    retryable = True
    actor = "operator"


class BodyTooSlow(Refusal):
    """The body of the request did not come in time."""

    code = "body-too-slow"
    retryable = True


class QuotaExceeded(Refusal):
    """The owner's files would need more disk than one owner may use here."""

    code = "disk-quota-exceeded"
    actor = "owner"


class DiskFull(Refusal):
    """The service has too little free disk."""

    code = "disk-full"
    retryable = True
    actor = "operator"


class GpuUnavailable(Refusal):
    """No worker with a GPU is at work."""

    code = "gpu-unavailable"
    retryable = True
    actor = "operator"


class ModelRetired(Refusal):
    """The retention time of this model has passed; its job, report and charges stay."""

    code = "model-retired"


class ModelRetracted(Refusal):
    """The job's submitter or an owner of the data took this model back; its job, report and charges stay."""

    code = "model-retracted"


class NotReady(Refusal):
    """The service is not ready."""

    code = "not-ready"
    retryable = True
    actor = "operator"


class Diverged(Refusal):
    """An iterate left the public radius; decided from noised values only."""

    code = "diverged"


class PrivacyInvariantError(AssertionError):
    """A condition of the guarantee does not hold: a fault of this code. Raised under `python -O` too.

    No handler may catch it and continue. An attempt that ends with it is charged its full price.
    """


def ensure(holds: bool, what: str) -> None:  # noqa: FBT001 - it reads as an assertion does
    """Raise where a condition of the guarantee does not hold.

    Args:
        holds: the condition.
        what: the condition in words.

    Raises:
        PrivacyInvariantError: the condition is false.
    """
    if not holds:
        raise PrivacyInvariantError(what)


class PeerLost(Exception):
    """Another site of a federated job has left, did not come in time, or sent an invalid message.

    It is no `Refusal`, because it answers no request: the attempt cannot go on. It reveals nothing about this site's
    records, and answers that were released before stay valid.
    """


class Misled(PeerLost):
    """Another site sent a statement that contradicts this site's own facts; no record was read since.

    Args:
        number: the index of that site among those that take part in the attempt, from 0.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def contradiction(pointer: str, detail: str) -> Invalid:
    """Return the refusal of one figure."""
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
