"""Problems and pages: the envelopes of refusals and of lists."""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from farthing.schemas.provenance import Drawn, Operational

T = TypeVar("T")


class Wrong(BaseModel):
    """One wrong field."""

    pointer: str = Field(description="JSON pointer into the request body")
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details; further members hold facts, such as what a refused job would have needed."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="stable; programs branch on it")
    retryable: bool
    actor: Literal["client", "owner", "operator"] = Field(
        description="the person who can act: client, owner or operator"
    )
    errors: list[Wrong]
    request_id: str


class Page(BaseModel, Generic[T]):
    """A page of a list; pass `next` as `after` to go on."""

    object: Literal["list"] = "list"
    data: list[T]
    has_more: Operational[bool]
    next: Drawn[str | None] = None
