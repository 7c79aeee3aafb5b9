"""A dataset as its owner declares it: everything public about it, before a record is read."""

from typing import Annotated, Final

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from core.base.errors import FieldError, Invalid, NotOfferedYet
from core.base.patterns import identifier
from core.base.validation_errors import field_errors
from core.data.columns import Columns, Unit, UserColumn
from core.data.reading import SNIFF, Reading
from core.privacy.amounts import BudgetRequest
from core.privacy.budget import Terms
from core.privacy.facts import Adjacency, Frozen

ScopeId = Annotated[str, identifier("sc")]
Statement = Annotated[str, StringConstraints(min_length=3, max_length=500, strip_whitespace=True)]
Title = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]


_LEAST_STATEMENT: Final = 20
"""Letters of a reason why records are other people's than those of an earlier upload."""
UNPUBLISHED = {"distinct_because", "seal", "accept_excluded"}
"""Fields that are not kept with a dataset's public facts: an owner may have had to give them, by their records."""


class DeclaredColumns(Frozen):
    """Columns, and the relation of neighbouring data, as their owner declares them."""

    columns: Columns
    adjacency: Adjacency = Adjacency.ZERO_OUT

    @field_validator("columns", mode="before")
    @classmethod
    def _present_names(cls, columns: object) -> object:
        """Refuse the name that stored columns may still have."""
        for place, column in enumerate(columns) if isinstance(columns, list) else ():
            if isinstance(column, dict) and "typical" in column:
                raise PydanticCustomError(
                    "renamed", "there is no such field here; give centre in its place", {"field": f"{place}/typical"}
                )
        return columns


class Declaration(DeclaredColumns):
    """The public facts of data that are not uploaded yet, as an upload's metadata has them."""

    rows: Annotated[int, Field(strict=True, gt=0, description="number of records that the file will have")]
    budget: BudgetRequest

    def terms(self) -> Terms:
        """Return the terms that a scope of these data would have.

        Raises:
            Invalid: as `BudgetRequest.terms`; pointers start at a body whose field `declaration` this is.
        """
        try:
            return self.budget.terms(self.rows)
        except Invalid as refusal:
            fields = [FieldError(f"/declaration{one.pointer}", one.detail) for one in refusal.fields]
            raise Invalid(refusal.detail, *fields) from refusal


class Metadata(DeclaredColumns):
    """The body of POST /v1/datasets, or the part `metadata` of its multipart form.

    A dataset opens a scope of its own with `budget`, or joins the owner's `scope`; then unit and adjacency are that
    scope's, and naming others is refused by the one who knows it.
    """

    name: Title
    unit: Unit = "record"
    budget: BudgetRequest | None = Field(default=None, description="opens a scope; exactly one of budget and scope")
    scope: ScopeId | None = Field(default=None, description="a scope of yours to join; exactly one of budget and scope")
    accept_delta: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="with scope: its delta may be above a tenth of 1/n of this dataset; with budget it is said there",
    )
    rows: Annotated[int, Field(strict=True, gt=0)] | None = Field(
        default=None, description="number of records in the file; a file with another number is refused"
    )
    reading: Reading | None = Field(
        default=None,
        description="the form of a CSV file; without it UTF-8 with commas and decimal points. Of a draft it may be "
        '"sniff": the file is looked at, the draft says what was taken, and sealing declares that',
        examples=[{"separator": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"}],
        exclude_if=lambda given: given is None,  # as declarations were before there was any
    )
    approval: bool = Field(default=False, description="the owner approves each release before anybody else sees it")
    distinct_because: Statement | None = Field(
        default=None,
        description=(
            "the reason, in your words, that these are other people than in your earlier uploads. Needed where "
            "over half of the rows are in another scope's upload, or where that is unknown. Nobody else reads it"
        ),
    )

    seal: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="false makes a draft: you alone see it and its report, replace its file, mend its declaration and "
        "then seal it; it has no scope, budget or job before that",
    )
    accept_excluded: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="upload the file although more than 5 % of its rows have a missing or unreadable cell and are "
        "excluded; nobody else sees it",
    )

    @model_validator(mode="after")
    def _seal_accepts(self) -> "Metadata":
        if self.accept_excluded and not self.seal:
            raise PydanticCustomError(
                "accepted_by_sealing", "leave it out: sealing the draft accepts its rows", {"field": "accept_excluded"}
            )
        return self

    @model_validator(mode="after")
    def _sniffs_drafts_alone(self) -> "Metadata":
        if self.reading == SNIFF and self.seal:
            raise PydanticCustomError(
                "sniffed_by_owner",
                'declare it, or give "seal" false: only the owner of a draft can say that a found reading is right',
                {"field": "reading"},
            )
        return self

    @model_validator(mode="after")
    def _one_budget(self) -> "Metadata":
        if self.budget is None and self.scope is None:
            raise PydanticCustomError(
                "missing_budget",
                "give a budget, such as {example}, or the scope to join",
                {"example": '{"epsilon": "3", "delta": "1e-6"}', "field": "budget"},
            )
        if self.budget is not None and self.scope is not None:
            raise PydanticCustomError(
                "two_budgets", "leave out either budget or scope: a scope has its budget already", {"field": "scope"}
            )
        if self.budget is not None and self.accept_delta:
            raise PydanticCustomError(
                "accepted_elsewhere", "say it in the budget: budget.accept_delta", {"field": "accept_delta"}
            )
        return self


def refuse_unkept(metadata: Metadata, most_rows: int) -> None:
    """Refuse metadata that no file could make good, by themselves.

    Args:
        metadata: of an upload.
        most_rows: of a file whose number of rows is not declared.

    Raises:
        NotOfferedYet: user-level units.
        Invalid: a statement that gives no reason, or a budget that cannot be kept.
    """
    if metadata.distinct_because is not None and len(metadata.distinct_because) < _LEAST_STATEMENT:
        fix = f"say in {_LEAST_STATEMENT} letters or more why these are other people, so that an auditor can judge it"
        raise Invalid("This statement is too short to give a reason.", FieldError("/distinct_because", fix))
    if isinstance(metadata.unit, UserColumn):
        raise NotOfferedYet("User-level units are not offered yet.", FieldError("/unit", 'use "record"'))
    if metadata.budget is not None:
        if metadata.rows is None:  # its delta is held against the number of records once they are there
            metadata.budget.plan(most_rows)
        else:
            metadata.budget.terms(metadata.rows)


def parse_metadata(body: object) -> Metadata:
    """Return the metadata in a parsed JSON value.

    Raises:
        Invalid: it is not valid; each field at fault is named by a JSON pointer, with what to do about it.
    """
    if not isinstance(body, dict):
        raise Invalid("The metadata must be a JSON object.", FieldError("", "send an object with name and columns"))
    try:
        return Metadata.model_validate(body)
    except ValidationError as error:
        fields = field_errors(error.errors(include_url=False, include_input=False), body)
        named = ", ".join(dict.fromkeys(field.pointer or "the body" for field in fields[:3]))
        raise Invalid(f"The metadata is not valid at {named}.", *fields) from None
