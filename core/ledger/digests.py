"""Digests of rows beside the chain: an entry names one, and each reader of the row compares it.

They are over the stored value as canonical JSON. A later release translates older names as it reads; no migration
rewrites what a digest was made of.
"""

from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field

from core.base.canonical import canonical

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


def digest_of(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Return the digest of a stored value: `sha256:` and 64 hexadecimal digits.

    Numbers that are whole count as integers: of 1e22 and of -0.0 one database keeps the text, another the number.
    """
    return "sha256:" + sha256(canonical(_plain(value)).encode("ascii")).hexdigest()


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
