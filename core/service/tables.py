"""Tables as statistics packages print them, in plain text."""

from typing import Any

_WIDTH = 12


def coefficient_table(summary: dict[str, Any]) -> str:
    """Return a summary as text: what was fitted, one line a coefficient, and what it cost."""
    title = f"{summary['kind'].capitalize()} regression of {summary['target']}, differentially private"
    level = 100 * summary["level"]
    head = ["coef", "std err", "z", "P>|z|", f"[{(100 - level) / 200:.4g}", f"{(100 + level) / 200:.4g}]"]
    lines = [_line(row) for row in summary["coefficients"]]
    first = max(len("no coefficients"), *(len(row["name"]) for row in summary["coefficients"])) + 2
    table = [f"{'':<{first}}" + "".join(f"{name:>{_WIDTH}}" for name in head)]
    for row, cells in zip(summary["coefficients"], lines, strict=True):
        table.append(f"{row['name']:<{first}}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells))
    width = max(len(title), *(len(line) for line in table))
    privacy = summary["privacy"]
    facts = [
        f"Model: {summary['model']}    Job: {summary['job']}",
        f"Method: {summary['optimizer']}    Records: {summary['n']}    Correction: {summary['correction']}",
        f"Privacy: epsilon {privacy['epsilon']} at delta {privacy['delta']}, adjacency {privacy['adjacency']}",
        f"Eigenvalues floored: {summary['flags']['eigenvalues_floored']}",
    ]
    return "\n".join([title.center(width), "=" * width, *facts, "=" * width, table[0], "-" * width, *table[1:],
                      "=" * width, ""])  # fmt: skip


def _line(row: dict[str, Any]) -> list[str]:
    low, high = row["interval"] or (None, None)
    p_value = "" if row["p_value"] is None else f"{row['p_value']:.3f}"
    return [_number(row["estimate"]), _number(row["std_error"]), _number(row["z"]), p_value, _number(low),
            _number(high)]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
