"""Request bodies of the HTTP interface; problems, pages and views are declared in `farthing.schemas`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, PlainValidator
from pydantic_core import PydanticCustomError

from core.base.patterns import Pattern, identifier
from core.base.settings import ADDRESS
from core.privacy.amounts import BudgetCap
from core.service.parted_uploads import LEAST_PART_BYTES, MOST_PART_BYTES
from farthing.schemas.notices import KINDS, NoticeKind

Reason = Annotated[str, Field(min_length=3, max_length=500)]
Role = Literal["owner", "analyst", "auditor", "admin"]
LARGEST = 1e100
"""Of numbers that people send: their squares are floats too."""
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
OneLevel = Annotated[float, Field(gt=0.5, lt=1)] | None


class Body(BaseModel):
    """A request body: closed to unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NewKey(Body):
    """A principal and its first key."""

    name: str = Field(min_length=1, max_length=200)
    role: Role
    expires_in_seconds: Annotated[int, Field(ge=1, le=10 * 366 * 86400)] | None = None
    principal: Annotated[str, identifier("pr")] | None = Field(
        default=None, description="an existing principal who gets one more key; default: a new one"
    )


class NewInvitation(Body):
    """An invitation of a colleague, who becomes a new principal."""

    role: Role
    note: str = Field(min_length=1, max_length=200, description="for whom it is, in words")
    dataset: Annotated[str, identifier("ds")] | None = Field(
        default=None, description="a dataset of the own, to which an analyst gets access"
    )
    budget_cap: BudgetCap | None = Field(default=None, description="with a dataset: the part of its budget")


class Acceptor(Body):
    """A colleague who accepts an invitation."""

    token: str = Field(min_length=1, max_length=200)
    name: str = Field(min_length=1, max_length=200, description="as others shall read it")


Kinds = Annotated[list[NoticeKind], Field(min_length=1, max_length=len(KINDS))]


class NewWebhook(Body):
    """A webhook: an address to which events are posted."""

    url: str = Field(min_length=1, max_length=2_000, description="https://..., public")
    kinds: Kinds = Field(default=list(KINDS), description="of events; default: all")


class NewEmail(Body):
    """An email address, and what is mailed there."""

    address: Annotated[
        str,
        Field(max_length=254),
        Pattern(f"^{ADDRESS}$", "one email address in ASCII, without a name", "ann@example.com"),
    ]
    kinds: Kinds = Field(default=list(KINDS), description="of events; default: all")


class MailCode(Body):
    """The code that confirms an email address."""

    code: Annotated[str, Pattern(r"^[0-9]{8}$", "the eight digits of the mail", "01234567")]


MediaType = Literal[
    "text/csv",
    "application/vnd.apache.parquet",
    "application/vnd.apache.arrow.file",
    "application/vnd.apache.arrow.stream",
    "application/x-npz",
    "application/octet-stream",
]


class NewUpload(Body):
    """A file that will come in parts."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"bytes": 2_000_000_000, "media_type": "text/csv"}]})

    bytes: Annotated[int, Field(ge=1, le=2**50, description="size of the whole file")]
    media_type: MediaType = Field(
        default="application/octet-stream", description="of the file; octets: the service looks at it"
    )
    part_bytes: Annotated[int, Field(ge=LEAST_PART_BYTES, le=MOST_PART_BYTES)] | None = Field(
        default=None, description="size of each part but the last, which has the rest; default: 8 MiB"
    )


class AccessRequest(Body):
    """The part of a scope's budget that a principal may use through a dataset."""

    budget_cap: BudgetCap = Field(description='a part of the budget, such as {"budget_share": "0.1"}, or "all"')


class WithReason(Body):
    """Why."""

    reason: Reason


class MaybeReason(Body):
    """Why, for who wants to say it."""

    reason: Reason | None = None


class NewRemoval(Body):
    """A record to remove."""

    row: Annotated[
        int, Field(ge=1, le=2**53, strict=True, description="of the file; 1 is the first row of data, below the names")
    ]


class Acceptance(Body):
    """An owner's word that a scope goes on although entries of its ledger may be missing."""

    entry: Annotated[int, Field(ge=1, le=2**62, description="the number of the entry that says so")]
    reason: Reason


class Adjustment(Body):
    """An owner's compensating entry for a job whose records were never opened."""

    job: Annotated[str, identifier("job")]
    reason: Reason


def _row(value: object) -> dict[str, Any]:
    """Return a row as it came; the first cell that is none is named, and no error is made of any other."""
    if not isinstance(value, dict):
        raise PydanticCustomError("row_type", "must be an object")
    for name, cell in value.items():
        if isinstance(cell, dict):
            text = "must be a number, a text, true, false, null, or an array's numbers as a list"
            raise PydanticCustomError("cell_type", text, {"field": name})
    return value


Row = Annotated[
    dict[str, Any],
    PlainValidator(_row, json_schema_input_type=dict[str, str | int | float | bool | list[Any] | None]),
]


class PredictRows(Body):
    """Rows in the units of the declared columns."""

    # Without FailFast ten thousand wrong rows would make as many errors before any is cut off.
    rows: Annotated[list[Row], FailFast()] = Field(
        min_length=1, max_length=10_000, description="an array's numbers as nested lists, or as one list"
    )
    level: OneLevel = Field(default=None, description="also give each mean's standard error and its interval")


class WaldRequest(Body):
    """A joint test that some coefficients, or linear combinations of them, equal given values."""

    coefficients: list[str] | None = Field(default=None, min_length=1, max_length=1000)
    hypotheses: list[dict[str, Number]] | None = Field(default=None, min_length=1, max_length=1000)
    values: list[Number] | None = Field(default=None, description="default: zeros")


class ContrastRequest(Body):
    """A linear combination of coefficients: name to weight."""

    weights: dict[str, Number] = Field(min_length=1, max_length=1000)
    level: OneLevel = None
    value: Number = Field(default=0.0, description="the tested value")
    alternative: Literal["two_sided", "greater", "less"] = "two_sided"
    margin: Annotated[float, Field(gt=0, le=LARGEST)] | None = Field(
        default=None, description="also test that it lies within so much of `value` (two one-sided tests)"
    )
    method: Literal["pointwise", "scheffe"] = Field(
        default="pointwise", description="scheffe: the interval holds together with those of all combinations"
    )


class RegionRequest(Body):
    """Coefficients to see together, and a point to place among them."""

    coefficients: list[str] = Field(min_length=1, max_length=500)
    levels: list[Annotated[float, Field(gt=0.5, lt=1)]] = Field(
        default=[], max_length=10, description="default: the job's own"
    )
    point: dict[str, Number] | None = Field(default=None, description="a value for each coefficient")


class SignedText(Body):
    """A certificate, or a signed head, as the service gave it."""

    certificate: str = Field(min_length=1, max_length=2**20, description="a JWS in compact form")
