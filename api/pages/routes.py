"""Routes of pages: signed in by cookie, guarded against forged forms, audited as the API operation they stand for."""

import hashlib
import hmac
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from api.authenticator import SESSION_COOKIE
from api.body import StrictRoute, operation_of, read_small
from api.cost import Cost, costs
from core.base.errors import FieldError, Forbidden, Invalid

FORM_BYTES: Final = 256_000
MOST_FIELDS: Final = 2_000
CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "X-CSRF-Token"
_PERSON: Final = b"farthing form"
_SAFE: Final = frozenset({"GET", "HEAD"})
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Form = dict[str, list[str]]


@dataclass(frozen=True)
class Deed:
    """The API operation that a page stands for: the audit log has one line for both."""

    method: str
    route: str
    status: int

    def path(self, parameters: Mapping[str, str]) -> str:
        """Return the operation's path with a page's parameters; one that the page has elsewhere keeps its name."""
        return self.route.format_map(_Kept(parameters))


class _Kept(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


_DEEDS: Final[dict[Callable[..., Any], Deed]] = {}
_STREAMED: Final[set[Callable[..., Any]]] = set()


def page(
    router: APIRouter,
    path: str,
    *,
    api: Callable[..., Any] | None = None,
    cost: Cost | None = None,
    method: str = "GET",
    streamed: bool = False,
    form_bytes: int = FORM_BYTES,
) -> Callable[[Endpoint], Endpoint]:
    """Declare a page: a decorator.

    Args:
        router: takes the route; its `route_class` is `PageRoute`.
        path: of the page, with the parameters of the operation that it stands for under the same names.
        api: the endpoint of the API whose use case the page calls; the same roles may see it, at the same cost.
        cost: of a page that stands for no operation, such as the sign-in.
        method: GET or POST.
        streamed: the endpoint reads the body itself, as it comes; the form's token is in a header then.
        form_bytes: the longest form.
    """

    def declare(endpoint: Endpoint) -> Endpoint:
        allowed = cost
        if api is not None:
            operation = operation_of(api)
            # A set has no order; min takes the same method in every process.
            done = Deed(min(operation.methods or {"GET"}), operation.path, operation.status_code or HTTPStatus.OK)
            _DEEDS[endpoint] = done
            # A page has no JSON to count, and holds no request open.
            allowed = cost or replace(operation.cost, values=0, waits=None)
        if allowed is None:
            raise TypeError(f"{path} names neither an operation of the API nor a cost")
        if streamed:
            _STREAMED.add(endpoint)
        else:
            allowed = replace(allowed, body_bytes=0 if method in _SAFE else form_bytes)
        costs(allowed)(endpoint)
        router.add_api_route(
            path, endpoint, methods=[method], include_in_schema=False, response_class=HTMLResponse, response_model=None
        )
        return endpoint

    return declare


class PageRoute(StrictRoute):
    """A route of a page: refusals become pages, and no unsafe request passes without the form's token."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path is this page's."""
        request = Request(scope, receive)
        # Set before the limits are checked: they take the session's cookie of a page, and else a key alone.
        request.state.is_page = True
        deed = _DEEDS.get(self.endpoint)
        if deed is not None:
            request.state.deed = deed
        await super().handle(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which reads and checks the form of an unsafe request first."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            if request.method not in _SAFE:
                refuse_foreign(request)
                request.state.form = (
                    {} if self.endpoint in _STREAMED else await _read_form(request, self.cost.body_bytes or 0)
                )
                # Without a session there is nothing to misuse, and no cookie of which a token could be made.
                if self.cost.roles:
                    _refuse_forged(request)
            return await handle(request)

        return guarded


async def _form_of(request: Request) -> Form:
    form: Form = request.state.form
    return form


FormFields = Annotated[Form, Depends(_form_of)]


def csrf_token(request: Request) -> str:
    """Return the token that forms of this session carry: a hash of its cookie, which no other site can read."""
    cookie = request.cookies.get(SESSION_COOKIE, "")
    return hashlib.blake2b(cookie.encode(), digest_size=24, person=_PERSON).hexdigest()


def refuse_foreign(request: Request) -> None:
    """Refuse an unsafe request that another site's page began.

    Raises:
        Forbidden: the browser names another origin.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:  # what the browser itself says; a proxy may have changed the name of the host
        foreign = site not in {"same-origin", "none"}
    else:
        foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign:
        raise Forbidden("This form was sent from a page of another site.")


def _refuse_forged(request: Request) -> None:
    given = request.headers.get(CSRF_HEADER) or next(iter(request.state.form.get(CSRF_FIELD, ())), "")
    # Bytes, since compare_digest takes no text beyond ASCII, which a forged form may hold.
    if not hmac.compare_digest(given.encode(), csrf_token(request).encode()):
        raise Forbidden("This form belongs to a session that has ended. Open the page again and send it once more.")


async def _read_form(request: Request, most: int) -> Form:
    """Return the fields of a form.

    Raises:
        Invalid: it is no form, or has too many fields.
        TooLarge: it is too long.
    """
    raw = await read_small(request, most)
    if not raw:
        return {}
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Invalid("A page takes the fields of its form.", FieldError("#header/content-type", "send the form"))
    fields: Form = {}
    try:
        # Without errors="strict" bad bytes would be replaced in silence; browsers end lines with CR LF.
        for name, value in parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"):
            fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    except ValueError:
        raise Invalid("The form cannot be read.", FieldError("", "send it as the page has it")) from None
    if any("\0" in text for name, values in fields.items() for text in (name, *values)):
        raise Invalid("Text must be valid Unicode without NUL.", FieldError("", "remove the odd characters"))
    return fields


def value_of(form: Form, name: str) -> str:
    """Return a field's value without spaces around it; empty where the form has none."""
    return form.get(name, [""])[0].strip()


def see_other(path: str) -> RedirectResponse:
    """Send the browser to another page after a deed, so that a reload repeats nothing."""
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


def own_path(text: str) -> str:
    """Return a path of this service as it was given, or the home page's where it leads elsewhere."""
    parts = urlsplit(text)
    # Browsers read a backslash as a slash, so "/\\" would lead to another host.
    if not text.startswith("/") or text.startswith(("//", "/\\")) or parts.netloc or parts.scheme:
        return "/"
    return quote(text, safe="/?=&%#-._~:,+") if text.isascii() and "\\" not in text else "/"
