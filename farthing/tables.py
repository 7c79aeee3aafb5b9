"""What the command line shows: one function for each answer of the service."""

from rich.console import Group, RenderableType
from rich.table import Table

from farthing.views import Budget, Dataset, Estimate, Job, Summary


def _facts(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(name, value)
    return table


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


def estimate(found: Estimate) -> RenderableType:
    """Show price, plan and prediction."""
    cost = found.cost
    rows = [
        ("of the budget", f"{_figure(cost.percent)} %"),
        ("epsilon, alone", _figure(cost.epsilon_alone)),
        ("rho", _figure(cost.rho)),
        ("mu", _figure(cost.mu)),
        ("fits", "yes" if found.fits else "no"),
        ("such jobs still fit", str(found.jobs_that_still_fit)),
    ]
    plan = found.plan.get("optimizer", found.plan)
    parts: list[RenderableType] = [
        _facts("price", rows),
        "",
        _facts("plan", [(name, str(value)) for name, value in plan.items() if value is not None]),
    ]
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


def summary(found: Summary) -> RenderableType:
    """Show the coefficient table."""
    level = "" if found.level is None else f"{100 * found.level:g} % interval"
    title = f"{found.optimizer}, n = {found.n:,}, model {found.model}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("coefficient")
    for name in ("estimate", "std. error", "z", "p"):
        table.add_column(name, justify="right")
    table.add_column(level, justify="right")
    for line in found.coefficients:
        low, high = line.interval or (None, None)
        between = "-" if low is None else f"[{_number(low)}, {_number(high)}]"
        table.add_row(
            line.name, _number(line.estimate), _number(line.std_error), _number(line.z), _number(line.p_value), between
        )
    privacy = found.privacy
    promise = ", ".join(f"{name} {privacy[name]}" for name in ("mu", "rho", "epsilon", "delta") if privacy.get(name))
    said = f"{promise} under {privacy.get('adjacency')}; intervals count the noise ({found.correction})"
    return Group(table, "", said)


def cost(job: Job) -> RenderableType:
    """Show what a job spent."""
    spent = job.cost.spent
    return f"{job.id} spent {_figure(spent.percent)} % of the budget (rho {_figure(spent.rho)}, mu {_figure(spent.mu)})"


def budget(found: Budget) -> RenderableType:
    """Show what is left."""
    table = Table(title=f"budget of scope {found.scope}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("total", "spent", "reserved", "remaining"):
        table.add_column(name, justify="right")
    percent = found.percent
    table.add_row("per cent", "100", percent.spent, percent.reserved, percent.remaining)
    for name, figures in (("epsilon", found.epsilon), ("rho", found.rho or {})):
        table.add_row(name, *(_figure(figures.get(column)) for column in ("total", "spent", "reserved", "remaining")))
    said = f"delta {found.delta}, {found.adjacency}, {found.entries} entries, head {found.head}"
    return Group(table, "", said)
