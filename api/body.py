"""Routes behind the limits. They read JSON bodies strictly: limited bytes and values, finite numbers, valid text."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from math import isfinite
from typing import Annotated, Any, Final, get_args, get_origin

import anyio
from anyio import to_thread
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from api.cost import Cost, Work, cost_of
from core.base.errors import BodyTooSlow, FieldError, Invalid, TooLarge, UnsupportedCoding
from core.base.settings import ServiceSettings

_FEW_BYTES: Final = 4096
"""Bodies up to this many bytes are parsed on the event loop; a thread would take longer."""
RETRY_SECONDS: Final = 1
MAX_DEPTH: Final = 100


class _Look:
    """A walk through a parsed body: counts its values, and finds the first that no database could store.

    A pointer is made for that value alone: making one for each costs the square of the body's length.
    """

    def __init__(self, most_values: int) -> None:
        self._left = most_values
        self._most_values = most_values

    def find(self, value: object, depth: int = 0) -> tuple[list[str], str] | None:
        """Return the path of the first wrong value, the innermost part first, and its fault; mostly None.

        Raises:
            TooLarge: there are more values than `most_values`: numbers, texts, names, lists and objects together.
        """
        self._left -= 1
        if self._left < 0:
            text = f"The body holds more than {self._most_values} values, the most that this request may have."
            field = FieldError("", "send fewer values, in several requests")
            raise TooLarge(text, field, most_values=self._most_values)
        if isinstance(value, str):
            return ([], "text") if _is_odd(value) else None
        if isinstance(value, float):
            return None if isfinite(value) else ([], "number")
        if depth >= MAX_DEPTH and isinstance(value, list | dict):
            return [], "depth"
        for name, item in _items(value):
            if isinstance(name, str):
                self._left -= 1
                if _is_odd(name):
                    return [], "text"
            found = self.find(item, depth + 1)
            if found is not None:
                # RFC 6901: "~" comes first, or the one in "~1" would be escaped again.
                found[0].append(str(name).replace("~", "~0").replace("/", "~1"))
                return found
        return None


def _items(value: object) -> Iterator[tuple[int | str, object]]:
    if isinstance(value, list):
        yield from enumerate(value)
    elif isinstance(value, dict):
        yield from value.items()


def _is_odd(text: str) -> bool:
    """Tell whether a text has NUL or half of a surrogate pair in it."""
    if text.isascii():
        return "\0" in text
    return "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text)


def parse_json(raw: bytes, most_values: int) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value in `raw`.

    Raises:
        Invalid: it is not JSON, or holds NaN, infinities, NUL, lone surrogates or endless nesting.
        TooLarge: it has more than `most_values` values.
    """
    try:
        value = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid(f"The body is not JSON: see {where}.", FieldError("", f"{where}: {error.msg}")) from error
    # ValueError: bytes that are no UTF-8, or an integer of more digits than Python converts.
    except (ValueError, RecursionError) as error:
        raise Invalid("The body is not JSON in UTF-8.", FieldError("", "send a JSON object")) from error
    # json.loads takes NaN, infinities and lone surrogates, which databases refuse.
    found = _Look(most_values).find(value)
    if found is not None:
        parts, kind = found
        pointer = "".join(f"/{part}" for part in reversed(parts))[:200]
        if kind == "text":
            raise Invalid("Text must be valid Unicode without NUL.", FieldError(pointer, "remove the odd characters"))
        if kind == "depth":
            raise Invalid("The body is nested too deeply.", FieldError(pointer, f"at most {MAX_DEPTH} levels"))
        raise Invalid(f"There is no finite number at {pointer}.", FieldError(pointer, "send one; JSON has no NaN"))
    return value


async def read_small(request: Request, limit_bytes: int) -> bytes:
    """Return a body that must be small.

    Raises:
        TooLarge: it passes `limit_bytes`.
    """
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit_bytes:
            raise TooLarge(f"A request body may have {limit_bytes} bytes.", limit_bytes=limit_bytes)
        parts.append(part)
    return b"".join(parts)


class BoundedBody:
    """A body on its way in: its size, the time that it takes, and the longest pause in it are bounded."""

    def __init__(self, receive: Receive, most_bytes: int, work: Work, settings: ServiceSettings) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._pause_seconds = settings.body_seconds
        is_upload = work is Work.UPLOAD
        self._slowest = settings.upload_bytes_per_second if is_upload else 0
        self._begun = time.monotonic()
        self._until = self._begun + (settings.upload_seconds if is_upload else settings.body_seconds)
        self._bytes = 0
        self._ended = False

    async def receive(self) -> Message:
        """Return the next piece.

        Raises:
            TooLarge: there is more than this endpoint takes.
            BodyTooSlow: it did not come in time, or comes at less than the least rate.
        """
        # After the body only a disconnect is received, which may take as long as the answer does.
        if self._ended:
            return await self._receive()
        left = min(self._pause_seconds, self._until - time.monotonic())
        try:
            with anyio.fail_after(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            text = "The body of the request did not come in time."
            raise BodyTooSlow(text, retry_after_seconds=RETRY_SECONDS) from None
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._most_bytes > 0:
            raise TooLarge(f"A request body may have {self._most_bytes} bytes here.", limit_bytes=self._most_bytes)
        # One pause is allowed before the least rate counts, for a slow start.
        due = self._slowest * (time.monotonic() - self._begun - self._pause_seconds)
        if not self._ended and self._bytes < due:
            text = f"The body comes too slowly: at least {self._slowest} bytes a second are needed."
            raise BodyTooSlow(text, retry_after_seconds=RETRY_SECONDS)
        return message


def most_bytes(cost: Cost, settings: ServiceSettings) -> int:
    """Return how large a body may be; 0: none is read, so none is too large."""
    if cost.body_bytes is not None:
        return cost.body_bytes
    if cost.answered:
        return settings.max_predict_bytes
    if cost.work is Work.UPLOAD:  # the metadata and the boundaries of a form come on top of the file
        return settings.max_upload_bytes + settings.max_body_bytes
    return settings.max_body_bytes


def refuse_packed(request: Request) -> None:
    """Refuse a body that is encoded, whichever way: read as it stands it could mean something else."""
    said = ",".join(request.headers.getlist("content-encoding")).lower()
    if set(said.replace(" ", "").replace("\t", "").split(",")) - {"", "identity"}:
        raise UnsupportedCoding(
            "A body is sent as it is: leave Content-Encoding out. Parquet and Arrow may be compressed inside.",
            FieldError("#header/content-encoding", "send the body unpacked, without this header"),
        )


def length_of(request: Request) -> int | None:
    """Return how long the body is said to be: 0 where there is none, None where only its end will tell.

    Raises:
        Invalid: it is said twice and differently; the server has refused what is no number.
    """
    # The envelope has refused a request with both headers, so a length has no meaning here.
    if "transfer-encoding" in request.headers:
        return None
    said = set(request.headers.getlist("content-length"))
    if len(said) > 1:
        raise Invalid("Content-Length is given twice.", FieldError("#header/content-length", "send it once"))
    text = said.pop() if said else "0"
    # isdigit alone is true of superscripts, which int() refuses.
    return int(text) if text.isascii() and text.isdigit() else None


class StrictRequest(Request):
    """A request whose body was read and checked before anything else saw it."""

    async def load(self, cost: Cost, adapter: "TypeAdapter[Any] | None" = None) -> None:
        """Read the body, check it where it is JSON, and validate it, in a thread where it is long.

        Args:
            cost: of the endpoint.
            adapter: of the endpoint's body; the validated model then stands in the body's place.

        Raises:
            TooLarge, Invalid: as `parse_json`.
            RequestValidationError: it is not what the endpoint takes; at most `cost.errors` fields are named.
        """
        # Starlette's own caches, here and at `_json`: FastAPI then finds the body read and parsed.
        self._body = b"".join([part async for part in self.stream()])
        if not self._body:
            return
        if "json" not in self.headers.get("content-type", ""):
            told = FieldError("#header/content-type", "send Content-Type: application/json with a body of JSON")
            raise Invalid("The body is not said to be JSON.", told)
        if len(self._body) <= _FEW_BYTES:
            self._json = _read(self._body, cost, adapter)
        else:
            self._json = await to_thread.run_sync(_read, self._body, cost, adapter)


def _read(raw: bytes, cost: Cost, adapter: "TypeAdapter[Any] | None") -> Any:  # noqa: ANN401 - JSON, or what it makes
    value = parse_json(raw, cost.values)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[: cost.errors]
        wrong = [{**one, "loc": ("body", *one["loc"])} for one in found]
        raise RequestValidationError(wrong, body=value) from None


def _queries_of(dependant: Dependant) -> dict[str, bool]:
    """Return the names of the query parameters of an endpoint, and of all that it depends on, and which are lists."""
    found = {field.alias: _is_list(field.field_info.annotation) for field in dependant.query_params}
    for one in dependant.dependencies:
        found |= _queries_of(one)
    return found


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(_is_list(one) for one in get_args(annotation))


_METHODS: Final[defaultdict[str, set[str]]] = defaultdict(set)
"""By path, what all its routes together answer: a router asks the first of them alone."""


_OPERATIONS: Final[dict[Callable[..., Any], "StrictRoute"]] = {}


def operation_of(endpoint: Callable[..., Any]) -> "StrictRoute":
    """Return the route of an endpoint."""
    return _OPERATIONS[endpoint]


class StrictRoute(APIRoute):
    """A route behind the limits; making one whose endpoint declares no cost fails."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(*args, **kwargs)
        self.cost = cost_of(self.endpoint)
        _OPERATIONS.setdefault(self.endpoint, self)
        _METHODS[self.path] |= self.methods or set()
        self._queries = dict(sorted(_queries_of(self.dependant).items()))

    def work_of(self, request: Request) -> Work:
        """Return what a request of this route keeps busy: one that waits is a stream, whatever it is otherwise."""
        return Work.STREAM if self.cost.waits is not None and self.cost.waits(request.headers) else self.cost.work

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path is this route's, if the limits let it in."""
        if self.methods and scope["method"] not in self.methods:
            # Before the limits, so that a wrong method takes no place and needs no key.
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(_METHODS[self.path]))})
        request = Request(scope, receive)
        async with request.app.state.limits.admitted(request, self.cost, self.work_of(request)) as bounded:
            self._refuse_unknown(request)
            await super().handle(scope, bounded, send)

    def _refuse_unknown(self, request: Request) -> None:
        """Refuse query parameters that are not there, or given twice: a filter not heeded shows everything."""
        given = [name for name, _ in request.query_params.multi_items()]
        twice = [name for name, is_list in self._queries.items() if not is_list and given.count(name) > 1]
        if twice:
            fields = (FieldError(f"#query/{name}", "give it once") for name in twice)
            raise Invalid(f"The query has parameters twice: {', '.join(twice)}.", *fields)
        unknown = [name for name in dict.fromkeys(request.query_params) if name not in self._queries]
        if unknown:
            there = (
                f"there is no such parameter here, only {', '.join(self._queries)}"
                if self._queries
                else ("this address takes no parameters")
            )
            raise Invalid(
                f"The query has parameters that this address does not know: {', '.join(unknown[:5])[:200]}.",
                *(FieldError(f"#query/{name[:100]}", there) for name in unknown[: self.cost.errors]),
            )

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, given a strict request where the endpoint takes a body."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        cost = cost_of(self.endpoint)
        field = self.body_field.field_info
        adapter = TypeAdapter[Any](Annotated[field.annotation, field])  # type: ignore[arg-type] # made at run time

        async def strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            await strict.load(cost, adapter)
            return await handle(strict)

        return strictly
