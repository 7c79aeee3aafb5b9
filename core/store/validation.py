"""What decoding did to the cells of each column. For the data's owner alone: these counts are private."""

from pydantic import Field

from core.privacy.facts import Frozen


class ColumnReport(Frozen):
    """Counts of cells of one declared column; of an array column, of arrays in which some number is such."""

    name: str
    clamped_low: int = Field(default=0, description="below the lower bound, now the lower bound")
    clamped_high: int = Field(default=0, description="above the upper bound, now the upper bound")
    rounded: int = Field(default=0, description="not whole in an integer column, now the nearest whole number")
    unknown: int = Field(default=0, description="categories that are not declared, now `other`")
    unreadable: int = Field(default=0, description="neither empty nor a missing code, but not of this type: missing")
    missing: int = Field(default=0, description="empty, a missing code or unreadable, before `fill`")
    filled: int = Field(default=0, description="missing cells that took `fill`")

    def plus(self, other: "ColumnReport") -> "ColumnReport":
        """Return the counts of both."""
        counts = {key: value + getattr(other, key) for key, value in self if key != "name"}
        return ColumnReport(name=self.name, **counts)


class ValidationReport(Frozen):
    """The owner's report on an upload."""

    rows: int
    incomplete_rows: int = Field(
        description="rows with a value still missing in some declared column; a null record for models that use it"
    )
    columns: tuple[ColumnReport, ...]
