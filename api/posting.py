"""Posting: sends one request to a webhook, at the very address that was checked, within some seconds.

The name is resolved once. The connection goes to that address, while the header Host and the name in TLS stay those of
the webhook. No proxy of the environment is used and no redirection is followed. Only the head of the answer is read,
so its body can be as long as it likes.
"""

import ssl
from functools import cache

import anyio
import httpx
from anyio import to_thread

from core.base.errors import Invalid
from core.base.settings import ServiceSettings
from core.service.addresses import WebhookPlace, pick, place_of, resolve
from core.service.parcels import Post, SendingEnd, now

_REDIRECTS = range(300, 400)


async def post(settings: ServiceSettings, parcel: Post) -> SendingEnd:
    """Post an event; return what came of it.

    Args:
        settings: limits, and networks that are open.
        parcel: the request.
    """
    try:
        with anyio.fail_after(settings.webhook_seconds):
            return await _post(settings, parcel)
    except TimeoutError:
        return SendingEnd(trouble="timeout")
    except httpx.TimeoutException:
        return SendingEnd(trouble="timeout")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return SendingEnd(trouble="connection")


async def _post(settings: ServiceSettings, parcel: Post) -> SendingEnd:
    try:
        place = place_of(parcel.url, settings)
    except Invalid:  # the setting that allowed it has changed
        return SendingEnd(trouble="address")
    # The system's resolver cannot be interrupted: at the deadline its thread is left behind, still counted.
    found = await to_thread.run_sync(resolve, place, abandon_on_cancel=True, limiter=_resolving())
    address = pick(found, settings)
    if address is None:
        return SendingEnd(trouble="address" if found else "connection")
    async with httpx.AsyncClient(verify=_trust(), trust_env=False, follow_redirects=False) as client:
        answer = await client.send(_request(settings, place, address, parcel), stream=True)
        await answer.aclose()
    if answer.is_success:
        return SendingEnd(answer.status_code)
    return SendingEnd(answer.status_code, "redirect" if answer.status_code in _REDIRECTS else "answer")


def _request(settings: ServiceSettings, place: WebhookPlace, address: str, parcel: Post) -> httpx.Request:
    """Return a request that goes to an address and speaks of a name."""
    # An IPv6 address stands in brackets within a URL.
    shown = f"[{address}]" if ":" in address else address
    return httpx.Request(
        "POST",
        f"{place.scheme}://{shown}:{place.port}{place.target}",
        headers={"host": place.authority, **parcel.headers(now())},
        content=parcel.body,
        extensions={"sni_hostname": place.host, "timeout": httpx.Timeout(settings.webhook_seconds).as_dict()},
    )


@cache
def _trust() -> ssl.SSLContext:
    """Return the authorities that are trusted: SSL_CERT_FILE's, or else those that come with httpx."""
    return httpx.create_ssl_context()


@cache
def _resolving() -> anyio.CapacityLimiter:
    """Return the limit of names that are resolved at a time; requests have threads of their own."""
    return anyio.CapacityLimiter(16)
