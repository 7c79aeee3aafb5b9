"""Figures as people read them: the one place that writes a share of a budget, a number or a time as text."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

NO_BREAK: Final = "\N{NO-BREAK SPACE}"
MINUS: Final = "\N{MINUS SIGN}"
_SMALLEST_P: Final = 1e-4
_STEPS: Final = ((60, "second"), (3600, "minute"), (86_400, "hour"), (30 * 86_400, "day"))


def per_cent(share: str) -> str:
    """Write a share of a budget in per cent, with all the digits that it has.

    Args:
        share: a decimal from 0 to 1, such as ``0.183559``.

    Returns:
        ``18.3559 %``, with a no-break space and a real minus.
    """
    return _grouped(Decimal(share) * 100) + f"{NO_BREAK}%"


def left_per_cent(share: str) -> str:
    """Write what is left of a budget in per cent with one digit, rounded down.

    A cap of one half is 0.499999 on the ledger's grid: less than a thousandth of a per cent is no digit down.
    """
    return _short(f"{Decimal(share) + Decimal('1e-5'):f}", ROUND_FLOOR)


def spent_per_cent(share: str) -> str:
    """Write what is spent of a budget in per cent with one digit, rounded up."""
    return _short(share, ROUND_CEILING)


def _short(share: str, rounding: str) -> str:
    percent = (Decimal(share) * 100).quantize(Decimal("0.1"), rounding)
    return f"{percent:f}{NO_BREAK}%".replace("-", MINUS)


def statistic(value: float | None) -> str:
    """Write an estimate with four digits and a real minus; None is empty."""
    if value is None:
        return ""
    text, mark, exponent = f"{value:.4g}".partition("e")
    # Python writes e-05, and people e-5.
    return (f"{text}e{int(exponent)}" if mark else text).replace("-", MINUS)


def interval_words(ends: Sequence[float] | None) -> str:
    """Write the ends of an interval; empty where there is none."""
    return "" if ends is None else f"[{statistic(ends[0])}, {statistic(ends[1])}]"


def p_words(value: float | None) -> str:
    """Write a p value with four digits; empty where there is none."""
    if value is None:
        return ""
    if value < _SMALLEST_P:
        return f"<{NO_BREAK}{_SMALLEST_P:.4f}".replace("0.", ".")
    return f"{value:.4f}".removeprefix("0")


def level_words(level: float) -> str:
    """Write the level of an interval in per cent."""
    return f"{100 * level:g}{NO_BREAK}%"


def number(value: str | float | Decimal | None) -> str:
    """Write a number with commas between thousands and a real minus; None is empty."""
    if value is None:
        return ""
    return _grouped(value if isinstance(value, Decimal) else Decimal(str(value)))


def _grouped(value: Decimal) -> str:
    """Write a decimal in full, with commas and without an exponent or zeros at its end."""
    text = f"{value:,f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def size(count: int) -> str:
    """Write a number of bytes in the largest unit that it fills."""
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.1f}\N{NO-BREAK SPACE}{unit}"
    return f"{count}\N{NO-BREAK SPACE}bytes"


def moment(text: str) -> datetime:
    """Read a time as the API writes it."""
    return datetime.fromisoformat(text)


def long_time(at: datetime) -> str:
    """Write a time in full, in UTC."""
    at = at.astimezone(UTC)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def long_date(at: datetime) -> str:
    """Write a date in full, with its weekday."""
    return f"{at:%A} {at.day} {at:%B %Y}"


def short_date(at: datetime, now: datetime) -> str:
    """Write a date, with its year where that is not the present one."""
    return f"{at.day} {at:%b}" if at.year == now.year else f"{at.day} {at:%b %Y}"


def ago(at: datetime, now: datetime) -> str:
    """Write how long ago a time is, or how soon it comes; older than a month, its date."""
    seconds = (now - at).total_seconds()
    ahead, seconds = seconds < 0, abs(seconds)
    if seconds < 10:  # noqa: PLR2004 - nobody reads seconds
        return "now"
    for i, (limit, unit) in enumerate(_STEPS):
        if seconds < limit:
            # A unit is as long as the limit of the unit before it.
            count = int(seconds // (1 if i == 0 else _STEPS[i - 1][0]))
            words = f"{count} {unit}{'' if count == 1 else 's'}"
            return f"in {words}" if ahead else f"{words} ago"
    return short_date(at, now)
