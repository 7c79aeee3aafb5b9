"""JSON bodies, read strictly: at most so many bytes, finite numbers only, and text that every database can store."""

import json
from collections.abc import Callable, Coroutine
from math import isfinite
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from core.errors import FieldError, Invalid, TooLarge

_MAX_DEPTH = 100


def _check(value: object, path: str = "", depth: int = 0) -> None:
    """Refuse text with NUL or lone surrogates, infinite numbers and absurd nesting, naming the field."""
    if depth > _MAX_DEPTH:
        raise Invalid("The body is nested too deeply.", FieldError(path[:200], f"at most {_MAX_DEPTH} levels"))
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise Invalid("Text must be valid Unicode without NUL.", FieldError(path, "remove the odd characters"))
    elif isinstance(value, float):
        if not isfinite(value):
            raise Invalid(f"There is no finite number at {path}.", FieldError(path, "send one; JSON has no NaN"))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{path}/{index}", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, path, depth + 1)
            _check(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", depth + 1)


def parse_json(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return the JSON value in `raw`.

    Raises:
        Invalid: it is not JSON, or holds NaN, infinities, NUL, lone surrogates or endless nesting.
    """
    try:
        value = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Invalid(f"The body is not JSON: see {where}.", FieldError("", f"{where}: {error.msg}")) from error
    except (ValueError, RecursionError) as error:
        raise Invalid("The body is not JSON in UTF-8.", FieldError("", "send a JSON object")) from error
    _check(value)
    return value


class StrictRequest(Request):
    """A request whose body was read and checked before anything else saw it."""

    async def load(self, limit_bytes: int) -> None:
        """Read the body, at most `limit_bytes`, and check it when it is JSON."""
        parts: list[bytes] = []
        size = 0
        async for part in self.stream():
            size += len(part)
            if size > limit_bytes:
                raise TooLarge(f"A request body may have {limit_bytes} bytes.", limit_bytes=limit_bytes)
            parts.append(part)
        self._body = b"".join(parts)
        if self._body:
            if "json" not in self.headers.get("content-type", ""):
                told = FieldError("#header/content-type", "send Content-Type: application/json with a body of JSON")
                raise Invalid("The body is not said to be JSON.", told)
            self._json = parse_json(self._body)


class StrictRoute(APIRoute):
    """A route whose JSON bodies are read by `StrictRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, given a strict request where the endpoint takes a body."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            await strict.load(request.app.state.context.settings.max_body_bytes)
            return await handle(strict)

        return strictly
