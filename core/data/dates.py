"""Dates in texts: ISO 8601 always, and the forms that a column declares.

Both readers of cells take their patterns from here. A time of day behind a date is not looked at. Years have four
digits, for two say no century. Two forms that one text could have, with different days, are refused together.
"""

import re
from datetime import date
from typing import Annotated, Final

from pydantic import AfterValidator, Field

ISO_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"
"""A date, perhaps with a time of day, which is not looked at."""
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ISO: Final = "%Y-%m-%d"
_FORM: Final = re.compile(r"(%[Ymdb]|[-./, ])+")
_PARTS: Final = {"%Y": "year", "%m": "month", "%d": "day", "%b": "name"}
MOST_FORMS: Final = 8


def _readable(form: str) -> str:
    """Refuse a form that is no date, or an ambiguous one."""
    if _FORM.fullmatch(form) is None:
        raise ValueError(
            "must be made of %d, %m or %b (Jan to Dec) and %Y, with points, dashes, slashes, commas or blanks between"
        )
    if sorted(re.findall("%.", form)) not in (["%Y", "%d", "%m"], ["%Y", "%b", "%d"]):
        raise ValueError("must have a day, %d, a month, %m or %b, and a year, %Y, once each")
    if form != form.strip():
        raise ValueError("remove the blanks at the ends; cells are compared without them")
    return form


def _tell_apart(forms: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse two forms that one text could have."""
    seen = {_shape(_ISO): _ISO}
    for form in forms:
        other = seen.get(_shape(form), form)
        if other != form:
            raise ValueError(f"a text of `{form}` may be one of `{other}` too: declare the one that the file has")
        seen[_shape(form)] = form
    if len(set(forms)) < len(forms):
        raise ValueError("name each form once")
    return forms


def are_distinct(forms: tuple[str, ...]) -> bool:
    """Tell whether no text can have two of these forms, or one of them and ISO 8601."""
    return len({_shape(form) for form in (_ISO, *forms)}) > len(forms)


def _shape(form: str) -> str:
    """Return the outline of a form's texts: two forms with one outline may share a text."""
    number = "99" if _is_packed(form) else "9"
    return re.sub("%[md]", number, form).replace("%Y", "9999")


def _is_packed(form: str) -> bool:
    """Tell whether two parts touch, so that each of them must have its full width."""
    return re.search("%.%", form) is not None


DateForms = Annotated[
    tuple[Annotated[str, Field(max_length=30), AfterValidator(_readable)], ...],
    Field(
        max_length=MOST_FORMS,
        description="forms of dates in texts beside ISO 8601, such as %d.%m.%Y; %b is an English month, Jan to Dec",
        exclude_if=lambda given: not given,  # as columns were before there were any
    ),
    AfterValidator(_tell_apart),
]


def pattern_of(form: str) -> str:
    """Return the regular expression of a form, for Python and RE2, with its parts as named groups."""
    number = "[0-9]{2}" if _is_packed(form) else "[0-9]{1,2}"
    ways = {"%Y": "[0-9]{4}", "%m": number, "%d": number, "%b": f"(?i:{'|'.join(MONTHS)})"}
    parts = [
        f"(?P<{_PARTS[part]}>{ways[part]})" if part in ways else re.escape(part) for part in re.findall("%.|.", form)
    ]
    return f"^{''.join(parts)}(?:[T ]|$)"


def parse_date(text: str, forms: tuple[str, ...]) -> date | None:
    """Return the date that a text without blanks around it says; None: it says none."""
    if re.match(ISO_DATE, text) is not None:
        return _date(int(text[:4]), int(text[5:7]), int(text[8:10]))
    for form in forms:
        found = re.match(pattern_of(form), text)
        if found is not None:
            parts = found.groupdict()
            month = MONTHS.index(parts["name"].lower()) + 1 if "name" in parts else int(parts["month"])
            return _date(int(parts["year"]), month, int(parts["day"]))
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
