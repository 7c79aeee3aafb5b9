"""The compiled functions and the types of their arguments: what a header is to C. Each C file says what they do."""

from typing import Final

from core.native.library import ADDRESS, FLOAT, INTEGER, Signature

DECIDE: Final = Signature("farthing_decide", ADDRESS, INTEGER, INTEGER, *2 * [ADDRESS], INTEGER, *3 * [ADDRESS])
SETTLE: Final = Signature("farthing_settle", ADDRESS, INTEGER, INTEGER, *3 * [ADDRESS], INTEGER, *4 * [ADDRESS])
TELL: Final = Signature("farthing_tell", ADDRESS, ADDRESS, INTEGER, INTEGER, FLOAT, ADDRESS)
"""Of `noise.c`."""

TRUNCATE: Final = Signature("farthing_truncate", ADDRESS, INTEGER, FLOAT, ADDRESS, INTEGER)
MOVE: Final = Signature("farthing_move", ADDRESS, ADDRESS, INTEGER, ADDRESS)
"""Of `parts.c`."""
