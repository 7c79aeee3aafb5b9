"""Order of a page's table: read from the address, and written into the links of the table's head and foot."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query

from core.base.errors import FieldError, Invalid
from core.db.sorting import AGE, NEWEST, Order

Sort = Annotated[
    str, Query(max_length=20, description="a column of the table; with a minus before it, from the last to the first")
]
_LARGEST_FIRST: Final = (AGE, "records")
"""Columns that are sorted downwards by their first link."""


@dataclass(frozen=True)
class Sorting:
    """The order of a table, and the addresses of the same table otherwise."""

    path: str
    given: Mapping[str, str]
    """Its filters, which every link keeps."""
    order: Order

    @property
    def words(self) -> str:
        """The order in words, where the head of no column says it."""
        if self.order.by != AGE:
            return ""
        return "newest first" if self.order.descending else "oldest first"

    @property
    def next(self) -> str:
        """The name of the next page."""
        return {"newest first": "Older", "oldest first": "Newer"}.get(self.words, "Next")

    def direction(self, column: str) -> str:
        """Return how a column is sorted, as `aria-sort` says it; nothing where another one is."""
        if column != self.order.by:
            return ""
        return "descending" if self.order.descending else "ascending"

    def link(self, column: str) -> str:
        """Return the address of the table by a column; by the present one, the other way round."""
        down = not self.order.descending if column == self.order.by else column in _LARGEST_FIRST
        return self._address(Order(column, down))

    def after(self, row: str | None = None) -> str:
        """Return the address of the page after a row; of the first page without one."""
        return self._address(self.order, {"after": row} if row else {})

    @property
    def sent(self) -> str:
        """The order as the address writes it; nothing for the usual one."""
        return _written(self.order)

    def _address(self, order: Order, place: Mapping[str, str] | None = None) -> str:
        sort = _written(order)
        asked = {**self.given, **({"sort": sort} if sort else {}), **(place or {})}
        return f"{self.path}?{urlencode(asked)}" if asked else self.path


def _written(order: Order) -> str:
    return "" if order == NEWEST else f"{'-' * order.descending}{order.by}"


def sorting(path: str, given: Mapping[str, str], sort: str, columns: Collection[str]) -> Sorting:
    """Return the order that an address asks for.

    Raises:
        Invalid: the table has no such column.
    """
    by = sort.removeprefix("-")
    if not sort:
        return Sorting(path, given, NEWEST)
    if by not in columns:
        raise Invalid("The list is not sorted by that.", FieldError("#query/sort", f"one of {', '.join(columns)}"))
    return Sorting(path, given, Order(by, sort.startswith("-")))
