"""Identifiers: a prefix for the kind of thing, then 26 characters that sort by the time of creation.

The time is that of the creating machine's clock and is used for sorting only. 80 random bits make an identifier unique
and unguessable.
"""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: without i, l, o and u
LETTERS = 26  # of 5 bits each, for 128 bits
_RANDOM_BITS = 80


def new_id(prefix: str) -> str:
    """Return a fresh identifier such as ``job_01j9...``: 48 bits of milliseconds, then 80 random bits, in base 32."""
    number = (time.time_ns() // 1_000_000 % 2**48) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    digits = [_ALPHABET[number >> 5 * place & 31] for place in range(LETTERS - 1, -1, -1)]
    return f"{prefix}_{''.join(digits)}"
