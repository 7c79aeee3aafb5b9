"""Rendering: one template environment, and the shell around each page with navigation and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from api.authenticator import SESSION_COOKIE
from api.pages import assets, charts
from api.pages.routes import csrf_token, own_path
from core.service import overview
from core.service.context import Caller
from farthing.schemas import figures

THEME_COOKIE: Final = "farthing_theme"
THEMES: Final = ("light", "dark")
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'; img-src 'self'"
)
ROLES: Final = {"owner": "Data owner", "analyst": "Analyst", "auditor": "Auditor", "admin": "Admin"}


@dataclass(frozen=True)
class Place:
    """An entry of the navigation."""

    name: str
    title: str
    path: str
    icon: str
    roles: frozenset[str]


def _place(name: str, title: str, path: str, icon: str, *roles: str) -> Place:
    return Place(name, title, path, icon, frozenset(roles))


PLACES: Final = (
    _place("home", "Home", "/", "home", "owner", "analyst", "auditor", "admin"),
    _place("datasets", "Datasets", "/datasets", "data", "owner", "analyst", "auditor", "admin"),
    _place("jobs", "Jobs", "/jobs", "job", "owner", "analyst", "auditor", "admin"),
    _place("models", "Models", "/models", "model", "owner", "analyst", "auditor"),
    _place("methods", "Methods", "/methods", "seal", "analyst"),
    _place("approvals", "Approvals", "/approvals", "approve", "owner"),
    _place("invitations", "Invitations", "/invitations", "plus", "owner", "admin"),
    _place("people", "People", "/people", "people", "admin"),
    _place("audit", "Audit log", "/audit", "ledger", "owner", "auditor", "admin"),
    _place("service", "Service", "/service", "server", "auditor", "admin"),
    _place("docs", "The API", "/docs", "file", "owner", "analyst", "auditor", "admin"),
)


def _time(text: str | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, with the absolute one beside it for the pointer and for machines."""
    if text is None:
        return Markup("")
    at = figures.moment(text)
    shown = figures.ago(at, now or datetime.now(UTC))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, figures.long_time(at), shown)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "per_cent": figures.per_cent,
        "left": figures.left_per_cent,
        "number": figures.number,
        "bytes": figures.size,
        "time": _time,
        "width": charts.width_of,
    }
    made.globals |= {
        "asset": assets.address,
        "style": assets.style,
        "drawing": assets.drawing,
        "bar": charts.bar,
        "gauge": charts.gauge,
        "is_low": charts.is_low,
    }
    return made


_TEMPLATES: Final = _environment()
template = _TEMPLATES.get_template


def render(
    request: Request,
    template: str,
    facts: Mapping[str, Any] | None = None,
    *,
    at: str | None = None,
    status: int = HTTPStatus.OK,
) -> HTMLResponse:
    """Return a page.

    Args:
        request: that it answers; its caller decides what stands in the shell.
        template: file name.
        facts: for the template.
        at: the place of the navigation that it belongs to.
        status: of the answer.
    """
    text = _TEMPLATES.get_template(template).render(_shell(request, at) | dict(facts or {}))
    return as_page(text, status)


def fragment(request: Request, template: str, facts: Mapping[str, Any]) -> str:
    """Return a part of a page, without the shell; its icons are where the page's are."""
    return _TEMPLATES.get_template(template).render({"csrf": csrf_token(request), **facts})


def _shell(request: Request, at: str | None) -> dict[str, Any]:
    """Return what the shell shows."""
    caller: Caller | None = getattr(request.state, "caller", None)
    theme = request.cookies.get(THEME_COOKIE, "")
    return {
        "caller": caller,
        "who": caller.id if caller else "",
        "role": ROLES[caller.role] if caller else "",
        "places": [place for place in PLACES if caller and caller.role in place.roles],
        "at": at,
        "overview": overview.of(request.app.state.context, caller) if caller else None,
        "host": request.headers.get("host", ""),
        "theme": theme if theme in THEMES else "",
        "csrf": csrf_token(request),
        "path": request.url.path,
        "today": figures.long_date(datetime.now(UTC)),
    }


def as_page(text: str, status: int = HTTPStatus.OK) -> HTMLResponse:
    """Return a page of HTML that loads nothing from elsewhere and runs no script but ours."""
    headers = {
        "Content-Security-Policy": POLICY,
        "Cache-Control": "private, no-store",
        # "no-referrer" would send `Origin: null` with our own forms, as foreign ones may (decision 81).
        "Referrer-Policy": "same-origin",
    }
    return HTMLResponse(text, status_code=status, headers=headers)


def problem_page(request: Request, status: int, code: str, detail: str, *, retryable: bool) -> Response:
    """Return the page of a refusal; where nobody is signed in, the way to the sign-in."""
    if status == HTTPStatus.UNAUTHORIZED:
        return _to_sign_in(request)
    nowhere = status == HTTPStatus.NOT_FOUND
    title = "There is nothing here" if nowhere else "This could not be done"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and code == "internal-error":
        title, detail = "Something broke here, and not in your request", "Try again."
    facts = {"title": title, "detail": detail, "request_id": request.state.request_id, "retryable": retryable}
    try:
        return render(request, "problem.html", facts, status=status)
    except Exception:  # noqa: BLE001 - the shell needs the database, and that may be what is away
        return as_page(_TEMPLATES.get_template("bare_problem.html").render(facts), status)


def _to_sign_in(request: Request) -> Response:
    """Send the browser to the sign-in, and back to the page after it; of a form, to the page that it stood on."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method not in {"GET", "HEAD"}:
        # A form's own address may answer no GET, so the page that held it is meant.
        parts = urlsplit(request.headers.get("referer", ""))
        path = parts.path + (f"?{parts.query}" if parts.query else "")
    ended = "&ended=1" if SESSION_COOKIE in request.cookies else ""
    address = f"/sign-in?next={quote(own_path(path or '/'), safe='')}{ended}"
    # The browser follows a redirection for htmx, which would put the sign-in into the page's middle.
    if request.headers.get("hx-request") == "true":
        return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": address})
    return RedirectResponse(address, status_code=HTTPStatus.SEE_OTHER)
