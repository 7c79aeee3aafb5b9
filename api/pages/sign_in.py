"""Sign in and out: by key or one-time link, here or everywhere; and the colours that a browser keeps."""

from http import HTTPStatus
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from api.authenticator import SESSION_COOKIE
from api.cost import CHANGE, PUBLIC, READ
from api.deps import Db
from api.errors import status_of
from api.pages.rendering import THEME_COOKIE, THEMES, render
from api.pages.routes import FormFields, PageRoute, own_path, page, see_other, value_of
from core.access.audit import Line
from core.access.sessions import LONGEST_SECONDS
from core.base.errors import Forbidden, Unauthenticated
from core.service import audit, sign_ins
from core.service.context import Caller, Context

router = APIRouter(route_class=PageRoute)
_YEAR_SECONDS: Final = 365 * 86_400
_ENDED: Final = ("You were signed out", "A session ends after 30 minutes without use. Sign in to go on where you were.")
_LOST: Final = (
    "This browser did not keep the session",
    "Beyond this machine the console needs https: the cookie of a session is not sent without it.",
)
Next = Annotated[str, Query(max_length=2000)]
Flag = Annotated[int, Query(ge=0, le=1)]


@page(router, "/sign-in", cost=PUBLIC)
def show_sign_in(
    request: Request,
    next_path: Annotated[str, Query(alias="next", max_length=2000)] = "/",
    ended: Flag = 0,
    lost: Flag = 0,
) -> Response:
    """Show the form that takes a key."""
    notice = _LOST if lost else _ENDED if ended else None
    return render(request, "sign_in.html", {"next": own_path(next_path), "notice": notice, "error": ""})


@page(router, "/sign-in", cost=PUBLIC, method="POST")
def sign_in(request: Request, form: FormFields, db: Db) -> Response:
    """Begin a session with a key."""
    path = own_path(value_of(form, "next") or "/")
    try:
        token, caller = sign_ins.by_key(db, value_of(form, "key"))
    except (Unauthenticated, Forbidden) as refusal:
        return _refused(request, refusal, path)
    return _begun(request, db, token, caller, path)


@page(router, "/sign-in/link", cost=PUBLIC, method="POST")
def sign_in_by_link(request: Request, form: FormFields, db: Db) -> Response:
    """Begin a session with a one-time link."""
    path = own_path(value_of(form, "next") or "/")
    try:
        token, caller = sign_ins.by_link(db, value_of(form, "link"))
    except (Unauthenticated, Forbidden) as refusal:
        return _refused(request, refusal, path)
    return _begun(request, db, token, caller, path)


def _refused(request: Request, refusal: Unauthenticated | Forbidden, path: str) -> Response:
    request.state.code = refusal.code
    status = status_of(type(refusal))
    return render(request, "sign_in.html", {"next": path, "notice": None, "error": refusal.detail}, status=status)


def _begun(request: Request, context: Context, token: str, caller: Caller, path: str) -> Response:
    """Give the browser its cookie, and leave a line in the audit log."""
    old = request.cookies.get(SESSION_COOKIE)
    # The cookie is replaced, so nobody could end the old session from this browser any more.
    if old:
        sign_ins.end(context, old)
    line = Line(caller.id, "POST /sign-in", caller.key_id, HTTPStatus.OK, None, request.state.request_id)
    # The envelope audits operations of the API alone, and this page stands for none.
    audit.record(context, line)
    answer = see_other(f"/sign-in/done?next={quote(path, safe='')}" if path != "/" else "/sign-in/done")
    return with_session(request, answer, token)


def with_session(request: Request, answer: Response, token: str) -> Response:
    """Return an answer that gives the browser the cookie of a session."""
    answer.set_cookie(
        SESSION_COOKIE,
        token,
        max_age=LONGEST_SECONDS,
        httponly=True,
        samesite="lax",
        secure=not is_plain_loopback(request),
    )
    return answer


@page(router, "/sign-in/done", cost=PUBLIC)
def go_on(request: Request, next_path: Annotated[str, Query(alias="next", max_length=2000)] = "/") -> Response:
    """Go on to the page that was asked for, or say that the browser has kept no session."""
    if hasattr(request.state, "caller"):
        return see_other(own_path(next_path))
    return see_other("/sign-in?lost=1")


@page(router, "/sign-out", cost=READ)
def show_sign_out(request: Request) -> Response:
    """Ask which sessions shall end."""
    return render(request, "sign_out.html")


@page(router, "/sign-out", cost=CHANGE, method="POST")
def sign_out(request: Request, db: Db) -> Response:
    """End this session."""
    sign_ins.end(db, request.cookies[SESSION_COOKIE])
    return _ended()


@page(router, "/sign-out/everywhere", cost=CHANGE, method="POST")
def sign_out_everywhere(request: Request, db: Db) -> Response:
    """End all sessions of this principal."""
    caller: Caller = request.state.caller
    sign_ins.end_all(db, caller)
    line = Line(caller.id, "POST /sign-out/everywhere", caller.key_id, HTTPStatus.OK, None, request.state.request_id)
    audit.record(db, line)
    return _ended()


def _ended() -> Response:
    answer = see_other("/sign-in")
    answer.delete_cookie(SESSION_COOKIE)
    answer.headers["Clear-Site-Data"] = '"storage"'
    return answer


@page(router, "/theme", cost=CHANGE, method="POST")
def choose_theme(form: FormFields) -> Response:
    """Keep the colours that were chosen in this browser."""
    theme = value_of(form, "theme")
    answer = see_other(own_path(value_of(form, "next") or "/"))
    if theme in THEMES:
        answer.set_cookie(THEME_COOKIE, theme, max_age=_YEAR_SECONDS, samesite="lax", httponly=True)
    else:
        answer.delete_cookie(THEME_COOKIE)
    return answer


def is_plain_loopback(request: Request) -> bool:
    """Say whether a browser reaches the service on its own machine and without TLS, where none is needed."""
    if "https" in {request.url.scheme, request.headers.get("x-forwarded-proto", "")}:
        return False
    host = request.url.hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
