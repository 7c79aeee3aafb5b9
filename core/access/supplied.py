"""Which secrets an operator may choose as a key: those long and varied enough that nobody finds them by trying.

Keys that the service makes carry 256 random bits. One that an operator supplies (`FARTHING_ADMIN_KEY`) can be anything,
so it is measured before it is stored. The measure looks at the text alone, with repetitions removed. It is the lesser
of two figures: the entropy of its letters and that of the steps from each letter to the next. "abab..." has few
letters, "abcdef..." has few steps. No such measure sees a sentence out of a book: draw the key by chance.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log2
from typing import Final

from core.base.errors import Invalid

LEAST_LETTERS: Final = 22
"""Of a drawn base64 text they carry 128 bits."""
LEAST_BITS: Final = 56.0
"""By the measure above; 22 drawn letters of base64 measure 88, give or take 3, and 24 drawn hexadecimal digits 83."""
MOST_LETTERS: Final = 200
OURS: Final = "frt_"
"""The first letters of keys that the service makes."""
_FIX: Final = "Draw one with `openssl rand -base64 32`, or leave it out: the first start then makes one."


def refuse_weak(secret: str) -> None:
    """Refuse a secret that somebody might find by trying; the text never repeats it.

    Raises:
        Invalid: it is too short, too long, too regular, or could not be sent or found as a key.
    """
    if not LEAST_LETTERS <= len(secret) <= MOST_LETTERS:
        raise Invalid(
            f"FARTHING_ADMIN_KEY has {len(secret)} letters: give it {LEAST_LETTERS} to {MOST_LETTERS}. {_FIX}"
        )
    if not all("!" <= letter <= "~" for letter in secret):
        raise Invalid(f"FARTHING_ADMIN_KEY holds a blank, or a letter outside ASCII. {_FIX}")
    if secret.startswith(OURS):
        raise Invalid(f"FARTHING_ADMIN_KEY begins with {OURS}, as keys do that the service makes itself. {_FIX}")
    found = estimated_bits(secret)
    if found < LEAST_BITS:
        raise Invalid(
            f"FARTHING_ADMIN_KEY is too regular, or has too few different letters: its entropy is estimated at "
            f"{found:.0f} bits, and {LEAST_BITS:.0f} are needed. {_FIX}"
        )


def estimated_bits(secret: str) -> float:
    """Return the estimated entropy of a text in bits, as the module says."""
    once = secret[: _period(secret)]
    steps = [ord(after) - ord(before) for before, after in pairwise(once)]
    return min(_entropy_bits(once), _entropy_bits(steps))


def _period(text: str) -> int:
    """Return the length of the shortest text whose repetition begins with this one."""
    return next(size for size in range(1, len(text) + 1) if text[size:] == text[: len(text) - size])


def _entropy_bits(letters: Sequence[object]) -> float:
    """Return the number of letters times the entropy of their frequencies."""
    total = len(letters)
    return sum(count * log2(total / count) for count in Counter(letters).values())
