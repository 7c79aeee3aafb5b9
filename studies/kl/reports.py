"""Rows, controls and log-log figures that the experiments on the KL condition share."""

from collections.abc import Sequence
from dataclasses import replace

from core.methods.base import Spec
from studies.inference.charts import Axis, Series, line_chart
from studies.inference.results import Row
from studies.kl.runs import Slope, permuted, slope

ROOM = 1.5
"""Axes go so much beyond the data."""


def with_options(settings: Spec, **options: object) -> Spec:
    """Return settings with some fields changed, validated again."""
    return type(settings).model_validate(settings.model_dump(exclude_none=True) | options)


def control(what: str, *, fails: bool) -> Row:
    """Return a row of a control that must fail: 1 where it does."""
    return Row(f"control: {what}", 1.0, float(fails), 0.0)


def fitted(what: str, reference: float, x: Sequence[float], y: Sequence[float], band: float) -> tuple[Row, Slope]:
    """Return a row of a slope beside its theory, its residual in the name, and the slope."""
    found = slope(x, y)
    return Row(f"{what} (largest residual {found.residual:.2f})", reference, found.value, band), found


def shuffled(what: str, reference: float, x: Sequence[float], y: Sequence[float], band: float) -> Row:
    """Return the control of a slope: with n permuted it must leave the band."""
    away = abs(slope(x, permuted(y)).value - reference) > band
    return control(f"{what}, n permuted, leaves the band", fails=away)


def log_log(title: str, across: str, up: str, series: Sequence[Series]) -> str:
    """Return an SVG with both axes logarithmic."""
    drawn = [replace(one, marks=not one.dashed) for one in series]
    x = [value for one in drawn for value in one.x]
    y = [value for one in drawn for value in one.y]
    return line_chart(
        title,
        Axis(across, min(x) / ROOM, max(x) * ROOM, logarithmic=True),
        Axis(up, min(y) / ROOM, max(y) * ROOM, logarithmic=True),
        drawn,
    )
