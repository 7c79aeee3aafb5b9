"""Two lines of least squares from one set of answers: large residuals counted, and assumed to end where they were seen.

`counted` holds whatever large residuals there are, up to the target's declared bounds. `assumed_light` holds if no
record lies beyond the largest band of residuals that was seen. The job claims one of them beforehand. The other one
stands beside it.
"""

from collections.abc import Sequence
from typing import Any, Final

from core.inference import sections
from core.inference.checks import TailLine
from core.inference.released import Released
from core.inference.rendering import bounds, number
from farthing.schemas.documents import SectionView

FEW: Final = 0.5
"""Records, below which none is said to be hidden."""


def line_of(released: Released) -> TailLine | None:
    """Return the line that is not claimed; None where there is none, or no interval."""
    return None if released.checks is None or released.covariance is None else released.checks.tails


def words(released: Released) -> list[str]:
    """Return what the interval rests on, and what the noise could hide, a sentence each."""
    one = line_of(released)
    if one is None:
        return []
    of, seen = released.target, f"{one.largest:.4g}"
    counted = (
        f"Large residuals are counted: the intervals hold whatever residuals of {of} there are, up to its declared "
        "bounds."
    )
    if one.hidden < FEW:
        return [f"{counted} Some were seen up to these."]
    if one.tails == "assumed_light":
        first = (
            f"{counted} The second table, of the same answers, holds if no residual passes {seen}, up to which records "
            "were seen."
        )
    else:
        first = (
            f"Assumed: no residual of {of} passes {seen}, up to which records were seen. The intervals hold if that "
            "is true. The second table counts large residuals, up to the declared bounds."
        )
    hidden = (
        f"The noise could hide up to {one.hidden:,.0f} records beyond {seen}. The last column says by how much one of "
        "them moves a coefficient at most, if its features are ordinary; by up to "
        f"{one.times:.3g} times as much if they are extreme."
    )
    return [first, hidden]


def assumption(released: Released) -> str:
    """Return a sentence of a methods section on what the claimed intervals assume of large residuals, after a blank."""
    one = line_of(released)
    if one is None:
        return ""
    if one.tails == "assumed_light" or one.hidden < FEW:
        return " They hold whatever large residuals there are, up to the target's declared bounds."
    return f" They assume that no residual passes {one.largest:.4g}."


def block(released: Released, levels: Sequence[float], line: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a function
    """Return the line that is not claimed, as a summary has it; None where both are one, or there is none.

    Args:
        released: a model's row.
        levels: of the intervals.
        line: makes an estimate, its standard error and intervals from both and the levels.
    """
    one = line_of(released)
    if one is None or one.hidden < FEW:
        return None
    rows = zip(released.names, one.coefficients, one.std_errors, one.moves, strict=True)
    withheld = {released.names[place] for place in released.withheld}
    return {
        "claimed": "counted" if one.tails == "assumed_light" else "assumed_light",
        "tails": one.tails,
        "largest": one.largest,
        "hidden": one.hidden,
        "coefficients": [
            {"name": name, **line(estimate, None if name in withheld else error, levels), "moved_by": moved}
            for name, estimate, error, moved in rows
        ],
    }


def table(shown: dict[str, Any], levels: Sequence[float]) -> SectionView:
    """Return the line that is not claimed as a table.

    Args:
        shown: of `block`.
        levels: of the intervals.
    """
    if shown["tails"] == "assumed_light":
        caption = f"If no residual passes {shown['largest']:.4g}, which the answers do not show."
    else:
        caption = "Large residuals counted, up to the declared bounds."
    heads = ["", "coef", "std err", *(name for level in levels for name in bounds(level)), "one hidden record"]
    rows = []
    for one in shown["coefficients"]:
        several = one.get("intervals") or [one]
        ends = [number(end) for each in several for end in each["interval"] or (None, None)]
        ends += [""] * (2 * len(levels) - len(ends))
        rows.append([one["name"], number(one["estimate"]), number(one["std_error"]), *ends, number(one["moved_by"])])
    return sections.table("Large residuals", caption, heads, rows)
