"""Summaries and comparisons as plain text, set as statistics packages set theirs.

Nothing of the day it is printed on is in it, so the same release always reads the same.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final
from unicodedata import category, combining, east_asian_width

from farthing.schemas.documents import Document

_NUMBER: Final = 11
"""Width of a column of numbers."""
_LEAST: Final = 78
"""Width of a page where names are short."""
Head = list[tuple[str, str]]


def text_of(document: Document) -> str:
    """Return a summary as text: a head in two columns, its tables, and its points below them.

    Paragraphs are left out: they are for a paper. A table has a heading where there are several.
    """
    shown = [one for one in document.sections if one.table is not None]
    made = [(one.title, columns([one.table.columns, *one.table.rows])) for one in shown if one.table is not None]
    width = max(_LEAST, *(wide(line) for _, lines in made for line in lines))
    rule = "=" * width
    body: list[str] = []
    for name, lines in made:
        body += [*([name, ""] if len(made) > 1 else []), lines[0], "-" * width, *lines[1:], rule]
    points = [text for one in document.sections for text in one.points]
    foot = [line for text in points for line in wrap(text, width, subsequent_indent="  ")]
    head = pairs([(fact.name, fact.value) for fact in document.facts], width)
    return "\n".join([centred(plain(document.title), width), rule, *head, rule, *body, *foot, ""])


def comparison_text(shown: Mapping[str, Any]) -> str:
    """Return two models side by side as text.

    Args:
        shown: the result of `comparison.compare`, with `model` and `job` in each of its models.
    """
    header = ["", "first", "std err", "second", "std err", "difference", "in SE", "P <=", "widths"]
    lines = columns([header, *[_compared(line) for line in shown["coefficients"]]])
    width = max(_LEAST, *(wide(line) for line in lines))
    head: list[str] = []
    for name, one in zip(("first", "second"), shown["models"], strict=True):
        privacy = one["privacy"]
        text = (
            f"{name}: {one['model']}, {one['optimizer']}, {one['loss']}, {one['weights']}, n = {one['n']:,} declared; "
        )
        head += wrap(plain(text + f"cost {promise_words(privacy)}"), width, subsequent_indent="  ")
    joint = shown["joint"]
    foot = [shown["assumes"]]
    if joint is not None:
        statistic, degrees = joint["statistic_bound"], joint["degrees_of_freedom"]
        exact = shown["relation"] == "different_people"
        said = f"= {statistic:.4g}, P = " if exact else f"at least {statistic:.4g}, P at most "
        foot.append(f"No difference at all: chi2({degrees}) {said}{joint['p_value_bound']:.3g}.")
    foot += [f"{name}: {note}" for name, one in zip(("first", "second"), shown["models"], strict=True)
             for note in one["notes"]]  # fmt: skip
    rule = "=" * width
    wrapped = [line for text in foot for line in wrap(plain(text), width, subsequent_indent="  ")]
    title = centred(f"Two {shown['kind']} models of {plain(shown['target'])}", width)
    return "\n".join([title, rule, *head, rule, lines[0], "-" * width, *lines[1:], rule, *wrapped, ""])


def declared(units: int, complete: Mapping[str, Any] | None = None) -> str:
    """Say how many records there are: those of an upload, and those that answers are made of where they were counted.

    Args:
        units: n.
        complete: `estimate`, `interval` and `level`; None: nobody counted them.
    """
    if complete is None:
        return f"{units:,} declared; excluded ones are not counted"
    low, high = complete["interval"]
    between = f"{100 * complete['level']:g} % interval {low:,.0f} to {high:,.0f}"
    return f"{units:,} declared, {complete['estimate']:,.0f} of them complete ({between}, counted with noise)"


def privacy_words(shown: Mapping[str, Any]) -> list[str]:
    """Return the promise and what it implies, a sentence each; of a federated model each site's own."""
    privacy, sites = shown["privacy"], shown.get("sites")
    if sites is None:
        return _promise_lines("Privacy", privacy)
    apart = "Each promise is to the people of that site's own scope; about a person in several, nothing is promised."
    least = f"Sites that stayed to the end promise at least {promise_words(privacy)} ({privacy['adjacency']})."
    said = [line for site in sites for line in _site_lines(site)]
    return ["Privacy, site by site:", *said, apart, least]


def _site_lines(site: Mapping[str, Any]) -> list[str]:
    """Return a site's promise, or why it is not shown."""
    name = f"Site {site['place']}"
    if site["scope"] is None:
        return [f"{name} ({site['state']}): for its own scope's owner, and who asked for the job, to see."]
    name += f" ({site['dataset']}, {site['state']}), to the people of {site['scope']}"
    return [f"{name}: was asked nothing."] if site["privacy"] is None else _promise_lines(name, site["privacy"])


def _promise_lines(name: str, privacy: Mapping[str, Any]) -> list[str]:
    said = [f"{name} ({privacy['label']}): {promise_words(privacy)}, adjacency {privacy['adjacency']}."]
    return said + [f"Under {relation}: {promise_words(one)}." for relation, one in privacy["implies"].items()]


def promise_words(promise: Mapping[str, Any]) -> str:
    """Return a promise in the currencies that state it."""
    mu = "" if promise["mu"] is None else f"mu {promise['mu']}, "
    return f"{mu}epsilon {promise['epsilon']} at delta {promise['delta']}"


def bounds(level: float) -> tuple[str, str]:
    """Return the names of an interval's ends: [0.025 and 0.975] at the level 0.95."""
    return f"[{(1 - level) / 2:.5g}", f"{(1 + level) / 2:.5g}]"


def number(value: float | None) -> str:
    """Return a number in at most ten places, four digits of it said; nothing for None."""
    return "" if value is None else f"{value:.4g}"


def p_words(value: float | None) -> str:
    """Return a p value to three places."""
    return "" if value is None else f"{value:.3f}"


def plain(text: str) -> str:
    """Return a name on one line: characters that break or reverse a line are shown as code points."""
    return "".join(f"\\u{ord(one):04x}" if category(one) in {"Cc", "Cf", "Zl", "Zp"} else one for one in text)


def wide(text: str) -> int:
    """Return how many places a terminal gives to a text."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in {"W", "F"} else 1 for one in text)


def centred(text: str, width: int) -> str:
    """Return a text in the middle of a line."""
    return " " * max((width - wide(text)) // 2, 0) + text


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines: names to the left, numbers to the right, each column as wide as it must be."""
    widths = [max(wide(row[at]) for row in rows) for at in range(len(rows[0]))]
    sizes = [widths[0] + 1, *(max(_NUMBER, size + 2) for size in widths[1:])]
    return [
        row[0] + " " * (sizes[0] - wide(row[0])) + "".join(
            " " * (size - wide(cell)) + cell for cell, size in zip(row[1:], sizes[1:], strict=True)
        )
        for row in rows
    ]  # fmt: skip


def _compared(line: Mapping[str, Any]) -> list[str]:
    """Return a line of a comparison as cells."""
    cells = [plain(line["name"])]
    for one in (line["first"], line["second"]):
        cells += ["", ""] if one is None else [number(one["estimate"]), number(one["std_error"])]
    ratio = line["width_ratio"]
    return [
        *cells,
        number(line["difference"]),
        # z turns a rounded -0.00 into 0.00.
        "" if line["difference_in_std_errors"] is None else f"{line['difference_in_std_errors']:z.2f}",
        p_words(line["p_value_bound"]),
        "" if ratio is None else f"{ratio:.2f}",
    ]


def pairs(facts: Head, width: int) -> list[str]:
    """Return facts in two columns, name to the left and value to the right of each; long ones on lines of their own."""
    half = (width - 3) // 2
    lines, waiting = [], ""
    for name, value in facts:
        text = f"{name}:" + " " * max(half - wide(name) - wide(value) - 1, 1) + value
        if wide(text) > half:
            lines += [waiting] * bool(waiting) + wrap(f"{name}: {value}", width, subsequent_indent="  ")
            waiting = ""
        elif waiting:
            lines.append(waiting + "   " + text)
            waiting = ""
        else:
            waiting = text
    return lines + [waiting] * bool(waiting)
