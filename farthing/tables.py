"""What the command line shows: one function for each answer of the service."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from farthing.views import Budget, Dataset, Entry, Estimate, Interval, Job, OddsRatio, Summary, Validation, Worker


def _table(title: str, rows: Sequence[Sequence[str]], *, left: Sequence[str] = (), right: Sequence[str] = ()) -> Table:
    """Return a plain table: text columns to the left, then numbers to the right; cells are never markup."""
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        show_header=bool(left or right),
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _facts(title: str, rows: Sequence[tuple[str, str]]) -> Table:
    return _table(title, rows)


def _said(text: str) -> Text:
    return Text(text)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _figure(value: str | None) -> str:
    return "-" if value is None else value


def dataset(found: Dataset) -> RenderableType:
    """Show a dataset's public facts."""
    rows = [
        ("id", found.id),
        ("scope", _figure(found.scope)),
        ("rows", "-" if found.rows is None else f"{found.rows:,}"),
        ("columns", str(len(found.columns))),
        ("digest", _figure(found.digest)),
    ]
    return _facts(f"dataset {found.name}", rows)


def datasets(found: Sequence[Dataset]) -> RenderableType:
    """Show datasets, one a line."""
    rows = [
        (one.id, one.name, _figure(one.state), _figure(one.scope), "-" if one.rows is None else f"{one.rows:,}")
        for one in found
    ]
    return _table("", rows, left=("id", "name", "state", "scope"), right=("rows",))


def validation(found: Validation) -> RenderableType:
    """Show how the cells of each column were read."""
    names = ("clamped_low", "clamped_high", "rounded", "unknown", "unreadable", "missing", "filled")
    rows = [(one.name, *(f"{getattr(one, name):,}" for name in names)) for one in found.columns]
    right = ("too low", "too high", "rounded", "unknown", "unreadable", "missing", "filled")
    title = f"{found.rows:,} rows, {found.incomplete_rows:,} of them with a missing value; for the owner alone"
    return _table(title, rows, left=("column",), right=right)


def _plain(value: Any) -> str:  # noqa: ANN401 - a plan's values are JSON
    """Write a planned value for people: short numbers, no braces."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _plan(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the settings that the planner filled: the optimizer's, then the weights and the inference."""
    own = {name: value for name, value in plan.items() if name not in {"model", "inference", "resources"}}
    own |= {"weights": (plan.get("model") or {}).get("weights"), "inference": plan.get("inference")}
    return [(name.replace("_", " "), _plain(value)) for name, value in own.items() if value is not None]


def estimate(found: Estimate) -> RenderableType:
    """Show price, plan and prediction."""
    cost = found.cost
    rows = [
        ("of the budget", f"{_figure(cost.percent)} %"),
        ("epsilon, alone", _figure(cost.epsilon_alone)),
        ("rho", _figure(cost.rho)),
        ("mu", _figure(cost.mu)),
        ("retry allowance", "-" if cost.retry_allowance is None else f"{_figure(cost.retry_allowance.percent)} %"),
        ("fits", "yes" if found.fits else "no"),
        ("such jobs still fit", str(found.jobs_that_still_fit)),
    ]
    parts: list[RenderableType] = [_facts("price", rows), "", _facts("plan", _plan(found.plan))]
    if found.bound is not None:
        bound = found.bound
        said = "vacuous: no better than what is known without training" if bound.vacuous else "informative"
        theory = [
            ("bounds", bound.quantity),
            ("value", _number(bound.value)),
            ("with probability", _number(bound.confidence)),
            ("without training", _number(bound.trivial)),
            ("verdict", said),
            ("source", bound.source),
        ]
        parts += ["", _facts("theory", theory)]
    return Group(*parts)


def _between(interval: tuple[float | None, float | None] | None) -> str:
    low, high = interval or (None, None)
    return "-" if low is None and high is None else f"[{_number(low)}, {_number(high)}]"


def summary(found: Summary) -> RenderableType:
    """Show the coefficient table."""
    level = "" if found.level is None else f"{100 * found.level:g} % interval"
    rows = [
        (
            one.name,
            _number(one.estimate),
            _number(one.std_error),
            _number(one.z),
            _number(one.p_value),
            _between(one.interval),
        )
        for one in found.coefficients
    ]
    title = f"{found.optimizer}, n = {found.n:,}, model {found.model}"
    table = _table(title, rows, left=("coefficient",), right=("estimate", "std. error", "z", "p", level))
    privacy = found.privacy
    promise = ", ".join(f"{name} {privacy[name]}" for name in ("mu", "rho", "epsilon", "delta") if privacy.get(name))
    said = f"{promise} under {privacy.get('adjacency')}; intervals count the noise ({found.correction})"
    if floored := found.flags.get("eigenvalues_floored"):
        said += f"\n{floored} eigenvalues of noised matrices were floored: intervals along them are wide"
    if slow := found.flags.get("slow_directions"):
        said += f"\n{slow} directions had not forgotten their start: intervals along them may be too short"
    return Group(table, "", _said(said))


def intervals(found: Sequence[Interval]) -> RenderableType:
    """Show each coefficient's interval."""
    return _table("", [(one.name, _between(one.interval)) for one in found], left=("coefficient",), right=("interval",))


def odds_ratios(found: Sequence[OddsRatio]) -> RenderableType:
    """Show odds ratios with their intervals."""
    rows = [(one.name, _number(one.odds_ratio), _between(one.interval)) for one in found]
    return _table("", rows, left=("coefficient",), right=("odds ratio", "interval"))


def jobs(found: Sequence[Job]) -> RenderableType:
    """Show jobs, one a line."""
    rows = [
        (
            one.id,
            one.state if one.error is None else f"{one.state} ({one.error.code})",
            str(one.optimizer.get("kind", "-")),
            one.model or "-",
            f"{one.progress.step}/{one.progress.steps}",
            f"{_figure(one.cost.spent.percent)} %",
        )
        for one in found
    ]
    return _table("", rows, left=("id", "state", "optimizer", "model"), right=("steps", "spent"))


def _kind(entry: Entry) -> str:
    """Return an entry's kind, and whether it pays again for a chunk that was lost."""
    return f"{entry.kind} again" if "repeats" in json.loads(entry.body) else entry.kind


def entries(found: Sequence[Entry]) -> RenderableType:
    """Show a ledger, one entry a line."""
    rows = [
        (
            str(one.seq),
            _kind(one),
            one.job or "-",
            "-" if one.chunk is None else str(one.chunk),
            one.created_at,
            one.hash,
        )
        for one in found
    ]
    return _table("", rows, left=("entry", "kind", "job", "chunk", "at", "hash"))


def workers(found: Sequence[Worker]) -> RenderableType:
    """Show supervisors, one a line."""
    rows = [
        (
            one.name,
            ",".join(one.queues),
            "yes" if one.alive else "no",
            one.version,
            one.seen_at,
            str(one.slots),
            str(one.gpus),
        )
        for one in found
    ]
    return _table("", rows, left=("worker", "queues", "alive", "version", "last seen"), right=("slots", "gpus"))


def cost(job: Job) -> RenderableType:
    """Show what a job spent."""
    spent = job.cost.spent
    figures = f"rho {_figure(spent.rho)}, mu {_figure(spent.mu)}"
    return _said(f"{job.id} spent {_figure(spent.percent)} % of the budget ({figures})")


def budget(found: Budget) -> RenderableType:
    """Show what is left."""
    columns = ("total", "spent", "reserved", "remaining")
    percent = found.percent
    rows = [("per cent", "100", percent.spent, percent.reserved, percent.remaining)]
    for name, figures in (("epsilon", found.epsilon), ("rho", found.rho or {})):
        total, spent, reserved, remaining = (_figure(figures.get(column)) for column in columns)
        rows.append((name, total, spent, reserved, remaining))
    table = _table(f"budget of scope {found.scope}", rows, left=("",), right=columns)
    said = f"delta {found.delta}, {found.adjacency}, {found.entries} entries, head {found.head}"
    if found.frozen is not None:
        said += f"\nfrozen: {found.frozen}"
    return Group(table, "", _said(said))
