"""Dependencies of endpoints: the service's context, the caller, an idempotency key, a place in a list."""

from typing import Annotated, TypeVar

from fastapi import Depends, Header, Query, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from core.base.errors import FieldError, IdempotencyKeyMissing, Invalid
from core.base.patterns import Pattern
from core.service.context import Caller as Principal
from core.service.context import Context
from farthing.schemas.problems import Page

bearer = HTTPBearer(auto_error=False, description="An API key.")
MAX_PAGE = 100
T = TypeVar("T")


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Db = Annotated[Context, Depends(_context)]


async def _caller(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
) -> Principal:
    """Return the principal that was let in (`api.limits`)."""
    del credentials  # the OpenAPI document names the scheme by them
    found: Principal = request.state.caller
    return found


Caller = Annotated[Principal, Depends(_caller)]

REQUIRED = "x-required"
"""Marks, in the schema of a parameter, one that FastAPI takes for optional and that is not."""
_KEY_TEXT = "The client's own name for this request, up to 200 visible characters; sending it again is safe."
_KEY_HEADER = Header(alias="Idempotency-Key", description=_KEY_TEXT)
_NEEDED_KEY_HEADER = Header(alias="Idempotency-Key", description=_KEY_TEXT, json_schema_extra={REQUIRED: True})


def _checked(key: str) -> str:
    if not 1 <= len(key) <= 200 or not all("!" <= letter <= "~" for letter in key):  # noqa: PLR2004 - the header's text says so
        raise Invalid("Idempotency-Key must be 1 to 200 visible ASCII characters, such as a UUID.")
    return key


async def _required_key(key: Annotated[str | None, _NEEDED_KEY_HEADER] = None) -> str:
    if key is None:
        raise IdempotencyKeyMissing("Send an Idempotency-Key header with a value of your own, such as a UUID.")
    return _checked(key)


async def _optional_key(key: Annotated[str | None, _KEY_HEADER] = None) -> str | None:
    return None if key is None else _checked(key)


IdempotencyKey = Annotated[str, Depends(_required_key)]
MaybeIdempotencyKey = Annotated[str | None, Depends(_optional_key)]

_Place = Annotated[
    str, Pattern(r"^[0-9A-Za-z_]{0,60}$", "the `next` of the last page, as it came", "ds_01m7z047qwmg8dd4x4h9dm983j")
]
After = Annotated[_Place | None, Query(description="`next` of the last page")]
Limit = Annotated[int, Query(ge=1, le=10**9, description=f"at most {MAX_PAGE}; larger values are capped")]

LabelFilter = Annotated[str | None, Query(max_length=330, description="key:value, such as study:a")]


def pair_of(label: str | None) -> tuple[str, str] | None:
    """Return the key and the value that a label filter asks for; None where there is no filter.

    Raises:
        Invalid: it has no colon.
    """
    if label is None:
        return None
    name, colon, value = label.partition(":")
    if not colon:
        raise Invalid("A label filter is key:value.", FieldError("#query/label", "write it as study:a"))
    return name, value


def capped(limit: int) -> int:
    """Return how many items a page may have."""
    return min(limit, MAX_PAGE)


def page(items: list[T], limit: int, cursor: str = "id") -> Page[T]:
    """Return a page of at most `limit` of `items`, which holds one more where there is more."""
    shown = items[:limit]
    # The item beyond the page only proves that there is more; the next page begins after the last one shown.
    following = str(getattr(shown[-1], cursor)) if len(items) > limit else None
    return Page(data=shown, has_more=len(items) > limit, next=following)
