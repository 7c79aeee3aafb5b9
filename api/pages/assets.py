"""Assets: stylesheets, the font, icons and scripts, under an address that changes with their content."""

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from markupsafe import Markup

from api.body import StrictRoute
from api.cost import META, costs
from core.base.errors import NotFound

FOLDER: Final = Path(__file__).parent / "assets"
KINDS: Final = frozenset({".css", ".js", ".svg", ".woff2"})
_LONG: Final = "public, max-age=31536000, immutable"
_LOADED: Final = re.compile(r"/\*.*?\*/|@font-face\s*\{.*?\}|(?<=\n)\s+", re.DOTALL)
_SYMBOL: Final = re.compile(r'<symbol id="i-([^"]+)"[^>]*>(.*?)</symbol>', re.DOTALL)
router = APIRouter(route_class=StrictRoute)


@dataclass(frozen=True)
class Asset:
    """A file as it is sent, and packed where that pays."""

    content: bytes
    packed: bytes | None
    kind: str


@lru_cache(maxsize=1)
def _all() -> dict[str, Asset]:
    """Return all assets by their path below the folder, read once."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            content = path.read_bytes()
            # WOFF2 is packed already. Gzip would write the time, and each process send other bytes.
            packed = None if path.suffix == ".woff2" else gzip.compress(content, mtime=0)
            kind = mimetypes.types_map.get(path.suffix, "font/woff2")
            found[path.relative_to(FOLDER).as_posix()] = Asset(content, packed, kind)
    return found


@lru_cache(maxsize=1)
def _digest() -> str:
    digest = hashlib.sha256()
    for name, asset in _all().items():
        digest.update(f"{name} {len(asset.content)}\n".encode() + asset.content)
    return digest.hexdigest()[:16]


def address(name: str) -> str:
    """Return where an asset is; raises KeyError for one that is not there."""
    return f"/assets/{_digest()}/{name if name in _all() else _all()[name]}"


@lru_cache(maxsize=1)
def style() -> Markup:
    """Return the console's stylesheet for a file of its own, without the font, which would have to be loaded."""
    whole = "".join(_all()[name].content.decode() for name in ("tokens.css", "components.css"))
    return Markup(_LOADED.sub("", whole).strip())  # noqa: S704 - a stylesheet of ours


@lru_cache
def drawing(icon: str) -> Markup:
    """Return what an icon is drawn of, for a file of its own; raises KeyError for one that is not there."""
    found = dict(_SYMBOL.findall(_all()["icons.svg"].content.decode()))
    return Markup(found[icon])  # noqa: S704 - a drawing of ours


@router.get("/assets/{digest}/{name:path}", include_in_schema=False)
@costs(META)
async def get_asset(
    digest: Annotated[str, InPath(max_length=16)], name: Annotated[str, InPath(max_length=100)], request: Request
) -> Response:
    """Send an asset; browsers keep it, since another content has another address."""
    # A look into a dictionary: no path in an address can lead out of the folder.
    found = _all().get(name)
    if found is None:
        raise NotFound("There is no such asset.")
    # An old page may ask with an old digest: the new content must not be kept under that address.
    headers = {"Cache-Control": _LONG if digest == _digest() else "no-store", "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, media_type=found.kind, headers=headers | {"Content-Encoding": "gzip"})
    return Response(found.content, media_type=found.kind, headers=headers)
