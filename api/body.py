"""Routes behind the gate. They read JSON bodies strictly: limited bytes and values, finite numbers, valid text."""

import json
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from math import isfinite
from typing import Annotated, Any, Final, get_args, get_origin

from anyio import to_thread
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from api.cost import Cost, Work, cost_of
from api.gate import Gate
from api.scan import MAX_DEPTH, scan
from core.base.errors import FieldError, Invalid, TooLarge

_FEW_BYTES: Final = 4096
"""Bodies up to this many bytes are parsed on the event loop; a thread would take longer."""


def _wrong(value: object) -> tuple[str, str] | None:
    """Return the pointer to the first value that no database could store, and what is wrong; most bodies have none.

    A pointer is made for that value alone: making one for each costs the square of the body's length.
    """
    found = _find(value, 0)
    if found is None:
        return None
    parts, text = found
    return "".join(f"/{part}" for part in reversed(parts)), text


def _find(value: object, depth: int) -> tuple[list[str], str] | None:
    """Look a value through; return its path, the innermost part first, and what is wrong."""
    if isinstance(value, str):
        return ([], "text") if _is_odd(value) else None
    if isinstance(value, float):
        return None if isfinite(value) else ([], "number")
    if depth > MAX_DEPTH:
        return [], "depth"
    for name, item in _items(value):
        if isinstance(name, str) and _is_odd(name):
            return [], "text"
        found = _find(item, depth + 1)
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
    scan(raw, most_values)
    try:
        value = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid(f"The body is not JSON: see {where}.", FieldError("", f"{where}: {error.msg}")) from error
    # ValueError: bytes that are no UTF-8, or an integer of more digits than Python converts.
    except (ValueError, RecursionError) as error:
        raise Invalid("The body is not JSON in UTF-8.", FieldError("", "send a JSON object")) from error
    # json.loads takes NaN, infinities and lone surrogates, which databases refuse.
    found = _wrong(value)
    if found is not None:
        pointer, kind = found
        pointer = pointer[:200]
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
    """A route behind the gate; making one whose endpoint declares no cost fails."""

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
        """Answer a request whose path is this route's, if the gate lets it in."""
        if self.methods and scope["method"] not in self.methods:
            # Before the gate, so that a wrong method takes no place and needs no key.
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(_METHODS[self.path]))})
        request = Request(scope, receive)
        gate: Gate = request.app.state.gate
        async with gate.admitted(request, self.cost, self.work_of(request)) as bounded:
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
