"""Letters: the words of mails. They hold identifiers and a link, and never a name that somebody chose."""

from collections.abc import Mapping
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from typing import Final

from core.base.settings import ServiceSettings
from farthing.schemas.notices import TITLES

_PATHS: Final = (
    ("model", "/approvals"),
    ("job", "/jobs/{}"),
    ("worker", "/service"),
    ("scope", "/datasets"),
)
"""The page of the console for the first of these that an event names."""
_FOOT: Final = "You chose to get this mail. Change that at {}"
_NOWHERE: Final = "the console, at /you/email."


def of_event(settings: ServiceSettings, kind: str, data: Mapping[str, str], at: str) -> tuple[str, str]:
    """Return subject and text of a mail about an event.

    Args:
        settings: with the address of the console.
        kind: of the event.
        data: identifiers of what it is about.
        at: its time, RFC 3339.
    """
    # A worker's name is somebody's choice, and no mail holds one.
    shown = [f"{name} {value}" for name, value in data.items() if name != "worker"]
    path = next((path.format(data[name]) for name, path in _PATHS if name in data), "/")
    lines = [f"{TITLES[kind]}.", "", *shown, at, "", *([_link(settings, path), ""] if settings.console_url else [])]
    foot = _FOOT.format(_link(settings, "/you/email")) if settings.console_url else _FOOT.format(_NOWHERE)
    return f"Farthing: {TITLES[kind]}", "\n".join([*lines, foot, ""])


def of_code(settings: ServiceSettings, code: str) -> tuple[str, str]:
    """Return subject and text of the mail that confirms an address."""
    where = _link(settings, "/you/email") if settings.console_url else "the console, or to `farthing email confirm`"
    lines = [
        f"{code} is the code that confirms this address. It holds for an hour.",
        f"Give it to {where}",
        "",
        "If you did not ask for it, ignore this mail: nothing else is sent to you.",
        "",
    ]
    return "Farthing: confirm this address", "\n".join(lines)


def message(settings: ServiceSettings, address: str, subject: str, text: str) -> EmailMessage:
    """Return a mail, whose fields no line break can end: the library refuses one.

    Args:
        settings: with the sender.
        address: of a form that was checked when it was set.
        subject: one line.
        text: plain.

    Raises:
        ValueError: a field holds a line break.
    """
    made = EmailMessage(policy=SMTP)
    made["From"] = settings.mail_from
    made["To"] = address
    made["Subject"] = subject
    made["Date"] = formatdate()
    # Without a domain the library takes the name of this host, and every mail would show it.
    made["Message-ID"] = make_msgid(domain=settings.mail_from.rpartition("@")[2])
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(text)
    return made


def _link(settings: ServiceSettings, path: str) -> str:
    return settings.console_url.rstrip("/") + path
