"""Addresses of webhooks: read, resolved once, and refused where they are not public.

A name is resolved when a webhook is made, and again for each delivery. The delivery connects to the very address that
was checked, so a name that answers otherwise a moment later (DNS rebinding) leads nowhere else.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from core.base.errors import FieldError, Invalid
from core.base.settings import ServiceSettings

LONGEST: Final = 2_000
RESOLVE_SECONDS: Final = 5.0
_HOST: Final = re.compile(r"[0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_REST: Final = re.compile(r"[!-~]*")
_PORTS: Final = {"https": 443, "http": 80}
_NAT64: Final = tuple(ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48"))
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""The addresses that IPv6 gives to the internet: Python takes addresses of a site (fec0::/10) for public."""
_RELAYS: Final = ipaddress.IPv4Network("192.88.99.0/24")
"""Of 6to4, given up by RFC 7526."""
Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
NOT_PUBLIC: Final = "This webhook's address is not a public one, or its name is not known."


@dataclass(frozen=True)
class WebhookPlace:
    """Parts of a webhook's address."""

    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    authority: str
    """Of the header Host."""
    target: str
    """Path and query."""


def place_of(url: str, settings: ServiceSettings) -> WebhookPlace:
    """Return the parts of a webhook's address.

    Raises:
        Invalid: it is no address of https, or holds a login or a fragment; or http, where that is not set.
    """
    schemes = ("https", "http") if settings.webhook_http else ("https",)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _invalid("write it as https://name/path") from None
    authority = parts.netloc
    host = authority if port is None else authority.rpartition(":")[0]
    # Some parsers read a backslash as a slash, and would connect to another host than was checked.
    if len(url) > LONGEST or not _REST.fullmatch(url) or "\\" in url:
        raise _invalid(f"write at most {LONGEST} visible ASCII characters")
    if parts.scheme not in schemes or not url.startswith(f"{parts.scheme}://{authority}"):
        raise _invalid(f"begin it with {' or '.join(f'{one}://' for one in schemes)}")
    if "@" in authority or "#" in url:
        raise _invalid("leave out the login and what stands behind #")
    if not _HOST.fullmatch(host) or port == 0:
        raise _invalid("give a name or an address, and a port from 1 to 65535 if any")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookPlace(parts.scheme, host.strip("[]"), port or _PORTS[parts.scheme], authority, target)


def _invalid(fix: str) -> Invalid:
    return Invalid("This is no address of a webhook.", FieldError("/url", fix))


def refuse_closed(url: str, settings: ServiceSettings) -> None:
    """Refuse the address of a webhook that could get no delivery.

    Raises:
        Invalid: it is none, its name is not known, or it is not public.
    """
    place = place_of(url, settings)
    if pick(resolve(place), settings) is None:
        fix = "use a public address, or ask the operator to set FARTHING_WEBHOOK_NETWORKS"
        raise Invalid(NOT_PUBLIC, FieldError("/url", fix))


def resolve(place: WebhookPlace, seconds: float = RESOLVE_SECONDS) -> list[str]:
    """Return the addresses of a place; none where its name is not known, or not within some seconds.

    Blocks. The resolver cannot be stopped, so a thread of its own waits for it.
    """
    found = list[str]()

    def look() -> None:
        try:
            answers = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # UnicodeError: of the codec for labels that are empty or too long
            return
        found.extend(str(answer[4][0]) for answer in answers)

    thread = threading.Thread(target=look, name="resolve", daemon=True)
    thread.start()
    thread.join(seconds)
    # A copy, for a thread that was not waited for may still add to the list.
    return list(dict.fromkeys(found))


def pick(addresses: Sequence[str], settings: ServiceSettings) -> str | None:
    """Return the address to connect to; None where there is none, or one of them may not be reached.

    Args:
        addresses: all addresses of a name.
        settings: they name networks that are allowed though they are not public.
    """
    allowed = [ipaddress.ip_network(one.strip()) for one in settings.webhook_networks.split(",") if one.strip()]
    # One closed address closes the name: a resolver gives its addresses in any order.
    if not addresses or not all(_is_open(one, allowed) for one in addresses):
        return None
    return addresses[0]


def _is_open(text: str, allowed: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    # A zone names a link of this very machine.
    if address.version == 6 and address.scope_id is not None:  # noqa: PLR2004 - IPv6
        return False
    plain = _plain(address)
    # Tunnelled IPv4 is reached by a relay of others: only the operator's own networks admit it.
    return (plain == address and _is_public(address)) or any(plain in network for network in allowed)


def _plain(address: Ip) -> Ip:
    """Return the IPv4 address that an IPv6 one stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_public(address: Ip) -> bool:
    if address in _RELAYS or (isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST):
        return False
    closed = (
        address.is_private,
        address.is_loopback,
        address.is_link_local,
        address.is_multicast,
        address.is_reserved,
        address.is_unspecified,
    )
    return address.is_global and not any(closed)
