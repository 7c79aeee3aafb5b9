"""The compiled functions and the types of their arguments, like a C header. Each C file says what they do."""

from ctypes import c_float
from typing import Final

from core.native.library import ADDRESS, FLOAT, INTEGER, Signature

DRAW: Final = Signature("farthing_draw", ADDRESS, ADDRESS, INTEGER, ADDRESS, INTEGER, ADDRESS, ADDRESS)
"""Of `noise.c`."""

TELL: Final = Signature("farthing_tell", ADDRESS, ADDRESS, INTEGER, INTEGER, FLOAT, ADDRESS, INTEGER)
TELL_OPEN: Final = Signature("farthing_tell_open", ADDRESS, FLOAT, ADDRESS, ADDRESS, INTEGER, INTEGER, FLOAT)
"""Of `tell.c`."""

TRUNCATE: Final = Signature("farthing_truncate", ADDRESS, INTEGER, FLOAT, ADDRESS, INTEGER)
SQUARES: Final = Signature("farthing_squares", ADDRESS, INTEGER, INTEGER, ADDRESS)
"""Of `parts.c`."""

FUSES: Final = Signature("farthing_fuses")
MARGINS: Final = Signature("farthing_margins", ADDRESS, *3 * [INTEGER], ADDRESS, ADDRESS)
SUM: Final = Signature("farthing_sum", ADDRESS, INTEGER, INTEGER, *7 * [ADDRESS], INTEGER)
DIFFERENCE: Final = Signature(
    "farthing_difference", ADDRESS, INTEGER, INTEGER, *5 * [ADDRESS], FLOAT, FLOAT, ADDRESS, ADDRESS, INTEGER
)
OUTER: Final = Signature(
    "farthing_outer", ADDRESS, *3 * [INTEGER], *5 * [ADDRESS], FLOAT, INTEGER, *3 * [ADDRESS], INTEGER
)
ROUND: Final = Signature("farthing_round", ADDRESS, INTEGER, FLOAT, ADDRESS)
_TABLE: Final = (ADDRESS, INTEGER, INTEGER, INTEGER)
SINGLE_MARGINS: Final = Signature(
    "farthing_single_margins", *_TABLE, INTEGER, ADDRESS, ADDRESS, INTEGER, *4 * [ADDRESS]
)
SINGLE_SUM: Final = Signature(
    "farthing_single_sum", *_TABLE, ADDRESS, INTEGER, *3 * [ADDRESS], FLOAT, FLOAT, c_float, FLOAT, ADDRESS, ADDRESS
)
"""Of `rows.c`."""

GROUPS: Final = Signature("farthing_groups", ADDRESS, INTEGER, INTEGER, ADDRESS, INTEGER, *4 * [ADDRESS])
SETTLE_GROUPS: Final = Signature("farthing_settle_groups", ADDRESS, INTEGER, *5 * [ADDRESS], INTEGER)
UNITS: Final = Signature("farthing_units", ADDRESS, ADDRESS, *3 * [INTEGER], ADDRESS, INTEGER, ADDRESS, ADDRESS)
SHUFFLE: Final = Signature("farthing_shuffle", ADDRESS, INTEGER, ADDRESS, ADDRESS)
"""Of `samples.c`."""
