"""The document of a model with coefficients, which a text, a PDF and a page show."""

from collections.abc import Mapping
from typing import Any

from core.inference import sections, tails
from core.inference.rendering import Head, bounds, declared, number, p_words, privacy_words
from farthing.schemas.documents import Document


def document(shown: Mapping[str, Any]) -> Document:
    """Return a summary as a document.

    Args:
        shown: the result of `results.summary`, with `model`, `job` and `method`.
    """
    levels = shown["levels"]
    ends = [name for level in levels for name in bounds(level)]
    lines = list(shown["coefficients"])
    if shown["scale"] is not None:
        lines.append({"name": "(residual scale)", **shown["scale"]})
    rows = [["", "coef", "std err", "z", "P>|z|", *ends], *(_row(line, len(levels)) for line in lines)]
    # A correction is named of methods without checks alone.
    kind = "unchecked intervals" if shown["correction"] else "intervals"
    said = f"; {kind} at {' and '.join(f'{100 * level:g}' for level in levels)} %"
    if not with_intervals(shown):
        rows, said = [row[:2] for row in rows], ""
    table = sections.table("Coefficients", f"In the units of the declared columns{said}.", rows[0], rows[1:])
    beside = [] if shown.get("tails") is None else [tails.table(shown["tails"], levels)]
    return sections.document(shown["title"], _head(shown), [table, *beside], _foot(shown), shown["methods"])


def with_intervals(shown: Mapping[str, Any]) -> bool:
    """Say whether a summary has standard errors, and all that follows from them."""
    return any(line["std_error"] is not None for line in shown["coefficients"])


def _head(shown: Mapping[str, Any]) -> Head:
    """Return the facts at the head of a summary, in the order to read them."""
    return [
        ("Target", shown["target"]),
        ("Records", declared(shown["n"], shown.get("complete"))),
        ("Method", shown["optimizer"].replace("_", " ")),
        ("Steps", f"{shown['steps']:,} ({shown['status']})"),
        ("Loss", shown["loss"]),
        *([("Correction", shown["correction"])] if with_intervals(shown) and shown["correction"] else []),
        ("Weights", shown["weights"]),
        ("Parameters", str(len(shown["coefficients"]) + (shown["scale"] is not None))),
    ]


def _foot(shown: Mapping[str, Any]) -> list[str]:
    """Return what stands below the table: the promise, what it implies, and what to be wary of, flags included."""
    method = shown["method"]
    said = [f"Method: {method['title']}. Source: {method['source']}.", *_sweep(shown), *privacy_words(shown)]
    flags = shown["flags"]
    if with_intervals(shown) and shown["correction"]:
        said.append(
            f"Eigenvalues floored: {flags['curvature_floored']} of the Hessian, {flags['score_floored']} of the "
            f"scores, {flags['optimizer_floored']} in the last step. Slow directions: {flags['slow_directions']}."
        )
    said += [f"Note: {note}" for note in shown["notes"]]
    said.append(f"Model {shown['model']}, job {shown['job']}.")
    return said


def _sweep(shown: Mapping[str, Any]) -> list[str]:
    found = sweep_words(shown)
    return [f"Sweep: {found[0]}", *found[1:]] if found else []


def sweep_words(shown: Mapping[str, Any]) -> list[str]:
    """Return a candidate that a sweep released, with its settings, its noised score and the way it was priced."""
    found = shown.get("sweep")
    if found is None:
        return []
    count, priced = found["candidates"], f"Priced by {found['way']}."
    if found["candidate"] is None:
        return [f"No run of the {count} candidates was drawn, or each that was drawn failed. {priced}"]
    settings = {**found["optimizer"], "ridge": found["ridge"]}
    # Words, such as where runs start, are alike for all candidates of any sweep.
    fixed = {name for name, value in settings.items() if value is None or isinstance(value, str)} - {"kind"}
    named = [f"{name.replace('_', ' ')} {_setting(settings[name])}" for name in settings if name not in fixed]
    scored = f"{found['score']:.4g}, with noise of standard deviation {found['score_scale']:.2g}"
    won = f"Candidate {found['candidate']} of {count}, numbered from 0, has the least mean error of those trained"
    return [
        f"{won}, {scored}. The least of several is too small on average. {priced}",
        f"Its settings: {', '.join(named)}.",
    ]


def _setting(value: Any) -> str:  # noqa: ANN401 - JSON
    """Return a setting in a few digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _row(line: Mapping[str, Any], levels: int) -> list[str]:
    """Return a line of the table as cells."""
    several = line.get("intervals") or [line]
    ends = [number(end) for one in several for end in one["interval"] or (None, None)]
    # A withheld interval is one pair of empty ends, for any number of levels.
    ends += [""] * (2 * levels - len(ends))
    return [
        line["name"],
        number(line["estimate"]),
        number(line["std_error"]),
        "" if line.get("z") is None else f"{line['z']:z.3f}",
        p_words(line.get("p_value")),
        *ends,
    ]
