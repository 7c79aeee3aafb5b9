"""The forest plot of a model: each coefficient's effect for a public step, with intervals at two levels.

The effect of a number is drawn for a step that follows from its declaration alone: the power of ten nearest to a tenth
of its declared range. Effects of categories, binary columns and intercepts are drawn as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any, Final

from core.inference import check_words, results
from core.inference.released import Released

TENTHS_OF_HALF: Final = 5.0
"""A feature's scale is half of its declared range: a fifth of that is a tenth of the range."""
SECOND_LEVEL: Final = 0.8
"""Of the plot's narrower intervals."""


@dataclass(frozen=True)
class Effect:
    """A coefficient as it is drawn, in the units of its step."""

    name: str
    step: float | None
    """The change of the column that is drawn; None: the coefficient itself."""
    is_intercept: bool
    middle: float
    ends: tuple[tuple[float, float], ...]
    """Its intervals, the widest first; empty where they are withheld or there are none."""
    is_withheld: bool
    flags: tuple[str, ...]
    """Reasons for which its interval is withheld."""
    notes: tuple[str, ...]
    """Remarks on a coefficient that has an interval."""


def plot_levels(levels: Sequence[float]) -> list[float]:
    """Return the two levels of the plot: the first one shown, and another one of those shown or SECOND_LEVEL."""
    other = next((level for level in levels[1:] if level != levels[0]), None)
    if other is None:
        other = SECOND_LEVEL if levels[0] > SECOND_LEVEL else (1 + levels[0]) / 2
    return [levels[0], other]


def effects(released: Released, levels: Sequence[float]) -> list[Effect]:
    """Return what is drawn of each coefficient, in the order of the table.

    Args:
        released: a model's row.
        levels: as `results.asked` returned them; the plot has the first, and a second that `plot_levels` chooses.
    """
    lines = results.table(released, plot_levels(levels))
    features = list(released.design.features) * (len(released.levels) or 1)
    drawn = []
    for place, (line, feature) in enumerate(zip(lines, features, strict=True)):
        is_number = feature.column is not None and feature.level is None and not feature.factors
        flags, notes = check_words.of_coefficient(released, place)
        step = 10.0 ** round(log10(feature.scale / TENTHS_OF_HALF)) if is_number else None
        drawn.append(
            Effect(
                name=line["name"],
                step=step,
                is_intercept=feature.column is None,
                middle=line["estimate"] * (step or 1.0),
                ends=_ends(line, step or 1.0),
                is_withheld=place in released.withheld,
                flags=tuple(flags),
                notes=tuple(notes),
            )
        )
    return drawn


def _ends(line: dict[str, Any], step: float) -> tuple[tuple[float, float], ...]:
    """Return the ends of a coefficient's intervals times a step, the widest first."""
    several = sorted(line.get("intervals") or [], key=lambda one: one["level"], reverse=True)
    return tuple((one["interval"][0] * step, one["interval"][1] * step) for one in several)
