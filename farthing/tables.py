"""The command line's tables: one function for each answer of the service."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from farthing.console import figure, number, of_100, per_cent, plain_table, site_name, visible
from farthing.results import Coefficient, Ellipsoid, Interval, OddsRatio, RateRatio
from farthing.schemas.budgets import AccessView, CapView
from farthing.schemas.datasets import Dataset, ValidationView
from farthing.schemas.drafts import SniffedView, reading_words, sniffed_words
from farthing.schemas.keys import KeyView, PrincipalStateView
from farthing.schemas.local import CheckView, DeclareView
from farthing.schemas.models import WeightsView
from farthing.schemas.service import WorkerView

RATIO_DIGITS = 6
"""Of ratios: those of a small unit are near 1, and have to differ from it in print."""


def _said(text: str) -> Text:
    return Text(text)


def dataset(found: Dataset) -> RenderableType:
    """Show a dataset's public facts."""
    rows = [
        ("id", found.id),
        ("scope", figure(found.scope)),
        ("site", site_name(found.site)),
        ("rows", "-" if found.rows is None else f"{found.rows:,}"),
        ("columns", str(len(found.columns))),
        ("fingerprint", figure(found.fingerprint)),
    ]
    return plain_table(f"dataset {found.name}", rows)


def datasets(found: Sequence[Dataset]) -> RenderableType:
    """Show datasets, one a line."""
    rows = [
        (one.id, one.name, figure(one.state), figure(one.scope), "-" if one.rows is None else f"{one.rows:,}")
        for one in found
    ]
    return plain_table("", rows, left=("id", "name", "state", "scope"), right=("rows",))


def validation(found: ValidationView | CheckView) -> RenderableType:
    """Show how the cells of each column were read."""
    names = ("clamped_low", "clamped_high", "rounded", "unknown", "unreadable", "missing", "filled")
    rows = [(one.name, *(f"{getattr(one, name):,}" for name in names)) for one in found.columns]
    right = ("too low", "too high", "rounded", "unknown", "unreadable", "missing", "filled")
    title = f"{found.rows:,} rows, {found.incomplete_rows:,} of them with a missing value; for the owner alone"
    return plain_table(title, rows, left=("column",), right=right)


def sniffed(found: SniffedView) -> RenderableType:
    """Show the reading that was taken of a draft's file, and each doubt."""
    return Group(*map(_said, sniffed_words(found)))


def checked(found: CheckView) -> RenderableType:
    """Show the treatment that a file would get: its reading, the counts of its cells, and misspelt values."""
    read = [] if found.reading is None else [f"Read as declared: {reading_words(found.reading)}."]
    words = [
        f"{visible(one.column)}: “{visible(one.text)}” in {one.cells:,} cells may mean “{visible(one.nearest)}”"
        for one in found.misspelt
    ]
    parts: list[RenderableType] = [*map(_said, read), *([sniffed(found.sniffed)] if found.sniffed else [])]
    parts += [validation(found), *map(_said, words)]
    if found.extremes is not None:
        rows = [
            (visible(one.column), figure(one.least), figure(one.most), visible(", ".join(one.undeclared)) or "-")
            for one in found.extremes
        ]
        title = "cells of single records"
        parts += ["", plain_table(title, rows, left=("column", "least", "most", "undeclared values"))]
    return Group(*parts)


def drafted(found: DeclareView) -> list[str]:
    """Say how the file of a draft was read, and which columns it leaves out."""
    read = [] if found.sniffed is None else sniffed_words(found.sniffed)
    return [*map(visible, read), *(f"“{visible(one.column)}” is left out: {one.reason}." for one in found.left_out)]


def _between(interval: tuple[float | None, float | None] | None, digits: int = 4) -> str:
    low, high = interval or (None, None)
    return "-" if low is None and high is None else f"[{number(low, digits)}, {number(high, digits)}]"


def _shown_levels(levels: Sequence[float]) -> list[str]:
    return [f"{100 * level:g} % interval" for level in levels]


def _bands(one: Interval | OddsRatio | RateRatio | Coefficient, levels: int) -> list[str]:
    """Return a line's intervals as cells, one for each level."""
    several = [band.interval for band in one.intervals] or [one.interval]
    return [_between(interval) for interval in several] + ["-"] * (levels - len(several))


def intervals(found: Sequence[Interval], levels: Sequence[float], notes: Sequence[str]) -> RenderableType:
    """Show each coefficient's interval, at each level, and the model's notes."""
    names = _shown_levels(levels) or ["interval"]
    rows = [(one.name, *_bands(one, len(names))) for one in found]
    return _noted([plain_table("", rows, left=("coefficient",), right=names)], notes)


def ratios(found: Sequence[OddsRatio] | Sequence[RateRatio], notes: Sequence[str]) -> RenderableType:
    """Show odds or rate ratios with their intervals, and the model's notes."""
    rows = [
        (
            one.name,
            number(one.odds_ratio if isinstance(one, OddsRatio) else one.rate_ratio, RATIO_DIGITS),
            _between(one.interval, RATIO_DIGITS),
        )
        for one in found
    ]
    name = "rate ratio" if found and isinstance(found[0], RateRatio) else "odds ratio"
    return _noted([plain_table("", rows, left=("coefficient",), right=(name, "interval"))], notes)


def _noted(parts: Sequence[RenderableType], notes: Sequence[str]) -> Group:
    """Put notes below what they are about."""
    return Group(*parts, *([_said("\n" + "\n".join(notes))] if notes else []))


def ellipsoid(found: Ellipsoid) -> RenderableType:
    """Show where some coefficients may be together."""
    centre = [
        (name, number(middle), number(row[at] ** 0.5))
        for at, (name, middle, row) in enumerate(zip(found.coefficients, found.centre, found.shape, strict=True))
    ]
    parts: list[RenderableType] = [
        plain_table("centre", centre, left=("coefficient",), right=("estimate", "std. error"))
    ]
    rows = [
        (
            f"{100 * one.level:g} %",
            "-" if one.inside is None else "inside" if one.inside else "outside",
            number(one.radius),
            number(one.volume),
            ", ".join(map(number, one.half_axes)),
        )
        for one in found.regions
    ]
    parts += ["", plain_table("", rows, left=("level", "point"), right=("radius", "volume", "half axes"))]
    if found.point is not None:
        parts.append(_said(f"\npoint: chi-squared {found.point['statistic']:.4g}, p {found.point['p_value']:.4g}"))
    return _noted(parts, found.notes)


def workers(found: Sequence[WorkerView]) -> RenderableType:
    """Show supervisors, one a line."""
    rows = [
        (
            one.name,
            site_name(one.site),
            ",".join(one.queues),
            "yes" if one.alive else "no",
            one.version,
            one.seen_at,
            str(one.slots),
            str(one.gpus),
        )
        for one in found
    ]
    left = ("worker", "site", "queues", "alive", "version", "last seen")
    return plain_table("", rows, left=left, right=("slots", "gpus"))


def keys(found: Sequence[KeyView]) -> RenderableType:
    """Show API keys, one a line; the time at which one was revoked, or ends by itself, under `ends`."""
    rows = [
        (
            one.id,
            one.name,
            one.role,
            one.principal,
            figure(one.last_used_at),
            f"revoked {one.revoked_at}" if one.revoked_at else figure(one.expires_at),
        )
        for one in found
    ]
    return plain_table("", rows, left=("key", "name", "role", "principal", "last used", "ends"))


def principals(found: Sequence[PrincipalStateView]) -> RenderableType:
    """Show principals, one a line; since when one is disabled, and why, under `disabled`."""
    rows = [
        (one.id, one.name, one.role, f"{one.disabled_at}: {one.disabled_reason}" if one.disabled_at else "-")
        for one in found
    ]
    return plain_table("", rows, left=("principal", "name", "role", "disabled"))


def cap(one: CapView) -> str:
    """Say how much of a budget a principal may use."""
    if isinstance(one.budget_cap, str):
        return "all"
    if "budget_share" in one.budget_cap:
        return per_cent(one.budget_cap["budget_share"])
    return ", ".join(f"{name} {figure}" for name, figure in one.budget_cap.items())


def accesses(found: Sequence[AccessView]) -> RenderableType:
    """Show who may use a dataset, one a line, with what is used of each cap in per cent of it."""
    rows = [
        (one.principal, one.name, one.role, cap(one), *map(of_100, (used.spent, used.reserved, used.remaining)))
        for one, used in ((one, one.used) for one in found)
    ]
    left = ("principal", "name", "role", "cap")
    return plain_table("", rows, left=left, right=("spent %", "reserved %", "left %"))


def pretrained(found: Sequence[WeightsView]) -> RenderableType:
    """Show weights, one a line."""
    rows = [(one.id, one.name, str(len(one.tensors)), f"{one.parameters:,}") for one in found]
    return plain_table("", rows, left=("id", "name"), right=("tensors", "parameters"))
