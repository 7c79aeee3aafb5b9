"""Mailing: hands one mail to the SMTP server of the settings. Blocks for some seconds at most."""

import smtplib
import ssl
from contextlib import suppress

from core.base.settings import ServiceSettings
from core.service.letters import message
from core.service.parcels import Mail, SendingEnd

_FOR_GOOD = 500
"""An answer of SMTP from here on says that the same mail will be refused again."""


def send(settings: ServiceSettings, mail: Mail) -> SendingEnd:
    """Hand a mail to the server; return what came of it."""
    if settings.smtp_host is None:
        return SendingEnd(trouble="connection")
    try:
        server = _connected(settings)
        try:
            if settings.smtp_user:
                server.login(settings.smtp_user, settings.smtp_password or "")
            server.send_message(message(settings, mail.address, mail.subject, mail.text))
        finally:
            _leave(server)
    # Each class before its bases: TimeoutError and all errors of smtplib are OSErrors.
    except smtplib.SMTPRecipientsRefused as refused:
        codes = [code for code, _ in refused.recipients.values()]
        return SendingEnd(trouble="mail-refused", final=bool(codes) and min(codes) >= _FOR_GOOD)
    except TimeoutError:
        return SendingEnd(trouble="timeout")
    except smtplib.SMTPResponseException:
        return SendingEnd(trouble="mail-refused")
    except (smtplib.SMTPException, OSError, ValueError):
        return SendingEnd(trouble="connection")
    return SendingEnd()


def _leave(server: smtplib.SMTP) -> None:
    """End a connection. Its mail was taken or not by now, whatever the server says to the end."""
    with suppress(smtplib.SMTPException, OSError):
        server.quit()
    server.close()


def _connected(settings: ServiceSettings) -> smtplib.SMTP:
    """Return a connection, encrypted unless the settings say otherwise; a server without TLS is refused then."""
    host, port, seconds = settings.smtp_host or "", settings.smtp_port, settings.smtp_seconds
    if settings.smtp_tls == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=seconds, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port, timeout=seconds)
    if settings.smtp_tls == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server
