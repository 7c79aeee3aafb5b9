"""The forms of what is signed, and of the keys that it is checked with: read strictly, and refused by field and fix."""

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

# Python's datetime cannot write a later year.
MOST_SECONDS: Final = 253_402_300_799
"""The end of the year 9999."""
_FIXES: Final = {
    "issuer": "the installation's name, as `farthing certificate keys` shows it",
    "keys": "a list of one key or more, as `farthing certificate keys` shows it",
    "kty": '"OKP"',
    "crv": '"Ed25519"',
    "x": "the 43 letters of a public key in base64url",
    "kid": "the key's thumbprint",
    "nbf": "whole seconds since 1970 as a number, or leave it out",
    "exp": "whole seconds since 1970 as a number, or leave it out",
}


class Form(BaseModel):
    """A part of what is read. A text is no number, and members that are not known here decide nothing."""

    model_config = ConfigDict(frozen=True, strict=True)


Count = Annotated[int, Field(ge=0)]
Time = Annotated[int, Field(ge=0, le=MOST_SECONDS)]
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS)]
Hash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class PublicKey(Form):
    """An Ed25519 public key as a JWK, and the time in which it signed, in seconds since 1970."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    x: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{43}$")]
    kid: str
    nbf: Time = 0
    exp: Time = MOST_SECONDS


class PublicKeys(Form):
    """An installation's keys."""

    issuer: str
    keys: Annotated[list[PublicKey], Field(min_length=1)]


class Place(Form):
    """An entry of a ledger; 0 is the place before the first."""

    seq: Count
    hash: Hash


class Head(Place):
    """Where a ledger stands."""

    scope: str


class Job(Form):
    """Which job, and what became of it."""

    id: str
    state: str
    error: str | None


class Kind(Form):
    """A part of the method, by name."""

    kind: str


class Method(Form):
    """The part of the method that is looked at."""

    optimizer: Kind


class Result(Form):
    """The release of a job."""

    model: str | None
    approval: str
    digest: str | None
    """Of the member `released` of its export."""
    export: str | None = None
    """Of all of its export as JSON; None where an earlier release signed it."""


class Client(Form):
    """One client's certificate, by its digest."""

    place: Count
    state: str
    certificate: Hash


class FederatedCertificate(Form):
    """A federated job's certificate, of the whole."""

    job: Job
    method: Method
    result: Result | None
    clients: list[Client]


class Dataset(Form):
    """The dataset that was read; with no entry, the ledger says nothing of it."""

    id: str
    fingerprint: str | None
    rows: Count | None
    entry: Place | None


class Scope(Form):
    """The budget that paid."""

    id: str
    unit: JsonValue
    adjacency: str
    units: Count
    epsilon: str
    delta: str
    orders: list[int]
    weights: list[str]
    caps_nano: list[int]


class Event(Form):
    """An event that was drawn; its other members are the ledger's."""

    # Kept, since `farthing certificate check` prints every member of an event.
    model_config = ConfigDict(extra="allow")

    kind: str


class Events(Form):
    """Events of the job, as runs: a count, and the event."""

    reserved: list[tuple[Count, Event]]
    charged: list[tuple[Count, Event]]


class Amounts(Form):
    """Nano-nats at each order."""

    reserved: list[int]
    spent: list[int]
    returned: list[int]
    corrected: list[int]


class Figures(Form):
    """A promise under one adjacency."""

    epsilon: str | None = None
    delta: str | None = None
    rho: str | None = None
    mu: str | None = None


class Promise(Form):
    """The promise of all charges together."""

    label: str
    zero_out: Figures | None
    replace_one: Figures | None


class Source(Form):
    """Our code."""

    version: str
    source: str


class Software(Form):
    """The software that computed."""

    farthing: Source
    python: str
    libraries: dict[str, str]


class Attempt(Form):
    """The software that computed an attempt; None: not known."""

    attempt: Count
    software: Software | None = Field(alias="with")


class Reconciled(Place):
    """A ledger entry of a reconciliation or of its acceptance, with the time in which payments may be missing."""

    kind: str
    since: Seconds | None = None
    until: Seconds | None = None

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.since is None) != (self.until is None):
            raise ValueError("give both since and until, or none")
        return self


class Ledger(Form):
    """Where the ledger says all this."""

    before: Place
    first: Place
    last: Place
    reconciled: list[Reconciled]


class Named(Form):
    """Digests that a job's entries name: of the job as it was stored, and of what it released; None: no entry says."""

    spec: Hash | None
    release: Hash | None


class Certificate(Form):
    """A job's certificate, or that of one client of a federated job."""

    job: Job
    method: Method
    result: Result | None
    dataset: Dataset
    scope: Scope
    events: Events
    nano_nats: Amounts
    promise: Promise
    software: list[Attempt]
    entries: Named | None = None
    """None: an earlier release signed it, and compared no digests."""
    uncovered: list[str] = []
    ledger: Ledger


Told = Head | Certificate | FederatedCertificate


def read_keys(keys: object) -> PublicKeys:
    """Return an installation's keys.

    Raises:
        ValueError: they are none; the text names the field and what to give.
    """
    try:
        return PublicKeys.model_validate(keys)
    except ValidationError as refused:
        raise ValueError(_named(refused)) from None


def read_told(content: bytes, kind: str, *, is_whole: bool) -> Told:
    """Return what was signed, by its form.

    Args:
        content: JSON.
        kind: certificate or head.
        is_whole: whether it is a federated job's certificate.

    Raises:
        ValueError: it has not this form; the text names the field.
    """
    form = Head if kind == "head" else FederatedCertificate if is_whole else Certificate
    try:
        told: Told = form.model_validate_json(content)
    except ValidationError as refused:
        raise ValueError(_named(refused)) from None
    return told


def _named(refused: ValidationError) -> str:
    """Return the first fault as the field's address and the fix."""
    fault = refused.errors(include_url=False, include_input=False, include_context=False)[0]
    address = "/" + "/".join(map(str, fault["loc"]))
    name = next((str(part) for part in reversed(fault["loc"]) if isinstance(part, str)), "")
    return f"{address}: give {_FIXES[name]}" if name in _FIXES else f"{address}: {fault['msg'].lower()}"
