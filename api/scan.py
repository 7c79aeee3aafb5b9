"""A look at JSON before it is parsed: counts its values and the depth of their nesting, in linear time.

Everything that parsing makes is in proportion to these two numbers, so a body that passes is one that can be afforded.
The scan reads a piece at a time and stops at the first piece that passes a limit.
"""

import re
from itertools import accumulate
from typing import Final

from core.base.errors import FieldError, Invalid, TooLarge

MAX_DEPTH: Final = 100
_PIECE_BYTES: Final = 2**15
_TEXT: Final = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def scan(raw: bytes, most_values: int) -> None:
    """Refuse a body that has too many values or is nested too deeply; text that is no JSON may pass.

    Args:
        raw: the body.
        most_values: numbers, texts, names of fields, lists and objects together.

    Raises:
        TooLarge: it has more.
        Invalid: it has more than `MAX_DEPTH` levels.
    """
    # Commas and colons count the values after a first one, so the count begins at 1.
    values, texts, depth, position, end = 1, 0, 0, 0, len(raw)
    while position < end:
        quote = raw.find(b'"', position, position + _PIECE_BYTES)
        stop = min(position + _PIECE_BYTES, end) if quote < 0 else quote
        outside = raw[position:stop]
        values += outside.count(b",") + outside.count(b":") + outside.count(b"[") + outside.count(b"{")
        # Texts without commas between are no JSON, but each costs a turn of this loop.
        if max(values, texts) > most_values:
            text = f"The body holds more than {most_values} values, the most that this request may have."
            raise TooLarge(text, FieldError("", "send fewer values, in several requests"), most_values=most_values)
        steps = outside.translate(_STEPS, _NO_BRACKETS)
        if steps:
            levels = list(accumulate((1 if step == 1 else -1 for step in steps), initial=depth))
            depth = levels[-1]
            if max(levels) > MAX_DEPTH:
                raise Invalid("The body is nested too deeply.", FieldError("", f"at most {MAX_DEPTH} levels"))
        position = stop
        if quote >= 0:
            texts += 1
            match = _TEXT.match(raw, quote + 1)
            # Past the closing quote. A quote within a text is escaped, so the pattern has not ended there.
            position = end if match is None else match.end() + 1
