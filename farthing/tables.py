"""What the command line shows: one function for each answer of the service."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from farthing import federated, network_tables
from farthing.console import plain_table, site_name
from farthing.descriptions import Description
from farthing.estimate_views import Estimate, Excess, ExcessGoal, Goal, PredictedWidth, Prediction
from farthing.key_views import Key, Principal
from farthing.results import Coefficient, Comparison, Ellipsoid, Interval, OddsRatio, RateRatio, Summary
from farthing.views import Access, Cap, Dataset, Validation, Worker

RATIO_DIGITS = 6
"""Of ratios: those of a small unit are near 1, and are to be told from it."""


def _said(text: str) -> Text:
    return Text(text)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _figure(value: str | None) -> str:
    return "-" if value is None else value


def dataset(found: Dataset) -> RenderableType:
    """Show a dataset's public facts."""
    rows = [
        ("id", found.id),
        ("scope", _figure(found.scope)),
        ("site", site_name(found.site)),
        ("rows", "-" if found.rows is None else f"{found.rows:,}"),
        ("columns", str(len(found.columns))),
        ("fingerprint", _figure(found.fingerprint)),
    ]
    return plain_table(f"dataset {found.name}", rows)


def datasets(found: Sequence[Dataset]) -> RenderableType:
    """Show datasets, one a line."""
    rows = [
        (one.id, one.name, _figure(one.state), _figure(one.scope), "-" if one.rows is None else f"{one.rows:,}")
        for one in found
    ]
    return plain_table("", rows, left=("id", "name", "state", "scope"), right=("rows",))


def validation(found: Validation) -> RenderableType:
    """Show how the cells of each column were read."""
    names = ("clamped_low", "clamped_high", "rounded", "unknown", "unreadable", "missing", "filled")
    rows = [(one.name, *(f"{getattr(one, name):,}" for name in names)) for one in found.columns]
    right = ("too low", "too high", "rounded", "unknown", "unreadable", "missing", "filled")
    title = f"{found.rows:,} rows, {found.incomplete_rows:,} of them with a missing value; for the owner alone"
    return plain_table(title, rows, left=("column",), right=right)


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
    own = {name: value for name, value in plan.items() if name not in {"model", "inference", "resources", "extremes"}}
    own |= {"weights": (plan.get("model") or {}).get("weights"), "inference": plan.get("inference")}
    return [(name.replace("_", " "), _plain(value)) for name, value in own.items() if value is not None]


def estimate(found: Estimate) -> RenderableType:
    """Show price, plan and prediction."""
    cost = found.cost
    rows = [
        *([] if found.method is None else [("method", f"{found.method.title} ({found.method.source})")]),
        ("of the budget", f"{_figure(cost.percent)} %"),
        ("epsilon, alone", _figure(cost.epsilon_alone)),
        ("rho", _figure(cost.rho)),
        ("mu", _figure(cost.mu)),
        ("retry allowance", "-" if cost.retry_allowance is None else f"{_figure(cost.retry_allowance.percent)} %"),
        *([("if its worker is lost", found.if_lost)] if found.chunks == 1 and found.if_lost else []),
        ("fits", "yes" if found.fits else "no"),
        ("such jobs still fit", "-" if found.jobs_that_still_fit is None else str(found.jobs_that_still_fit)),
    ]
    parts: list[RenderableType] = [plain_table("price", rows), "", plain_table("plan", _plan(found.plan))]
    if found.bound is not None:
        bound = found.bound
        said = "vacuous: no better than what is known without training" if bound.vacuous else "informative"
        if not bound.vacuous and found.prediction is not None and not found.prediction.informative:
            said = "better than nothing; how wide intervals are hangs on what is not known yet"
        theory = [
            ("bounds", bound.quantity),
            ("value", _number(bound.value)),
            ("with probability", _number(bound.confidence)),
            ("without training", _number(bound.trivial)),
            ("verdict", said),
            ("source", bound.source),
        ]
        parts += ["", plain_table("theory", theory)]
    if found.excess is not None:
        parts += ["", _excess(found.excess)]
    if found.goal is not None:
        shown = _goal(found.goal) if isinstance(found.goal, Goal) else _excess_goal(found.goal)
        parts += ["", shown]
    if found.prediction is not None:
        parts += ["", *_prediction(found.prediction)]
    return Group(*parts, *(Text(f"Note: {note}") for note in found.notes))


def _goal(found: Goal) -> RenderableType:
    """Show what a wanted width takes."""
    rows = [
        ("coefficient", found.coefficient),
        ("wanted width", _number(found.at_most)),
        ("predicted", f"{_number(found.predicted)}, {'met' if found.met else 'not met'}"),
        ("at most", "-" if found.highest is None else _number(found.highest)),
        ("without privacy", _number(found.nonprivate_width)),
        *([] if found.power is None else [("found so often", f"{found.power:.2f}")]),
        *([] if found.detectable is None else [("smallest effect found", _number(found.detectable))]),
        ("smallest mu", "none: sampling alone is wider" if found.mu is None else found.mu),
        ("smallest n", "-" if found.units is None else f"{found.units:,}"),
    ]
    return plain_table("goal", rows)


def _excess(found: Excess) -> RenderableType:
    """Show the bounds on the excess risk from above and below, and what they are made of."""
    lower = found.lower or {}
    about = "" if lower.get("exact", True) else ", in order of magnitude"
    rows = [
        ("at most", _number(found.value)),
        ("without training", _number(found.trivial)),
        ("nobody beats", f"{_number(lower.get('value'))}{about}"),
        ("rounds", "-" if found.rounds is None else str(found.rounds)),
    ]
    rows += [(name.replace("_", " "), _number(value)) for name, value in (found.regimes or {}).items()]
    return plain_table("excess risk", rows)


def _excess_goal(found: ExcessGoal) -> RenderableType:
    """Show what a wanted excess risk takes."""
    rows = [
        ("wanted excess risk", _number(found.at_most)),
        ("promised", f"{_number(found.predicted)}, {'met' if found.met else 'not met'}"),
        ("smallest mu", "none is enough" if found.mu is None else found.mu),
        ("smallest rho", "-" if found.rho is None else found.rho),
        ("smallest n", "-" if found.units is None else f"{found.units:,}"),
    ]
    return plain_table("goal", rows)


def _prediction(found: Prediction) -> list[RenderableType]:
    """Show the predicted widths of the intervals."""
    rows = [
        (one.name, _number(one.width), _range(one), _number(one.nonprivate_width), f"{one.ratio:.2f}")
        for one in found.coefficients
    ]
    widths = plain_table(
        f"predicted widths of {100 * found.level:g} % intervals",
        rows,
        left=("coefficient",),
        right=("private", "between", "non-private", "ratio"),
    )
    useful = [
        ("at this n, from mu", found.useful_from.mu or "-"),
        ("at this mu, from n", "-" if found.useful_from.units is None else f"{found.useful_from.units:,}"),
    ]
    said: list[RenderableType] = []
    if found.spread:
        names = ", ".join(found.spread)
        said = [
            _said(
                f"{names}: taken as spread over the whole declared range. What fills less of its range has wider "
                'intervals; give its deviation in the job\'s "assume", or declare it with the column.'
            ),
            "",
        ]
    for one in found.flags:
        said += [_said(f"{one.when}: {one.flag}; all intervals would be withheld."), ""]
    return [widths, "", *said, plain_table("within twice the non-private width", useful)]


def _range(one: PredictedWidth) -> str:
    """Show between which ends a width may lie; without an upper end as far as anybody has said."""
    low = "-" if one.lowest is None else _number(one.lowest, 3)
    return f"{low} .. {'?' if one.highest is None else _number(one.highest, 3)}"


def _between(interval: tuple[float | None, float | None] | None, digits: int = 4) -> str:
    low, high = interval or (None, None)
    return "-" if low is None and high is None else f"[{_number(low, digits)}, {_number(high, digits)}]"


def description(found: Description) -> RenderableType:
    """Show every figure of a description on a line of its own."""
    rows = [
        (
            line["columns"],
            " ".join(part for part in (line["statistic"], line["of"]) if part),
            _number(line["estimate"]),
            _number(line["std_error"]),
            line["note"] or _between((line["lower"], line["upper"])),
        )
        for line in found.lines()
    ]
    title = f"description, n = {found.n:,}, model {found.model}"
    right = ("estimate", "std. error", f"{found.level:g}")
    said = [found.claim, *(f"Note: {note}" for note in found.notes)]
    return Group(plain_table(title, rows, left=("column", "figure"), right=right), *said)


def summary(found: Summary) -> RenderableType:
    """Show the coefficient table, or a network's layers."""
    if found.kind == "network":
        return network_tables.summary(found)
    levels = _shown_levels(found.levels or [found.level or 0.0])
    rows = [
        (
            one.name,
            _number(one.estimate),
            _number(one.std_error),
            _number(one.z),
            _number(one.p_value),
            *_bands(one, len(levels)),
        )
        for one in found.coefficients
    ]
    if found.scale is not None:
        scale = found.scale
        rows.append(("(residual scale)", _number(scale.estimate), _number(scale.std_error), "-", "-",
                     _between(scale.interval), *["-"] * (len(levels) - 1)))  # fmt: skip
    title = f"{found.optimizer}, n = {found.n:,}, model {found.model}"
    table = plain_table(title, rows, left=("coefficient",), right=("estimate", "std. error", "z", "p", *levels))
    said = federated.promises(found)
    if any(one.std_error is not None for one in found.coefficients):
        said += "; intervals count the noise" + (f" ({found.correction})" if found.correction else "")
    said += "".join(f"\n{one.name}: {', '.join(one.flags)}" for one in found.coefficients if one.flags)
    return Group(table, "", _said("\n".join([said, *found.notes])))


def _shown_levels(levels: Sequence[float]) -> list[str]:
    return [f"{100 * level:g} % interval" for level in levels]


def _bands(one: Interval | OddsRatio | RateRatio | Coefficient, levels: int) -> list[str]:
    """Return a line's intervals as cells, one for each level."""
    several = [band.interval for band in one.intervals] or [one.interval]
    return [_between(interval) for interval in several] + ["-"] * (levels - len(several))


def intervals(found: Sequence[Interval], levels: Sequence[float]) -> RenderableType:
    """Show each coefficient's interval, at each level."""
    names = _shown_levels(levels) or ["interval"]
    return plain_table("", [(one.name, *_bands(one, len(names))) for one in found], left=("coefficient",), right=names)


def ratios(found: Sequence[OddsRatio] | Sequence[RateRatio]) -> RenderableType:
    """Show odds or rate ratios with their intervals."""
    rows = [
        (
            one.name,
            _number(one.odds_ratio if isinstance(one, OddsRatio) else one.rate_ratio, RATIO_DIGITS),
            _between(one.interval, RATIO_DIGITS),
        )
        for one in found
    ]
    name = "rate ratio" if found and isinstance(found[0], RateRatio) else "odds ratio"
    return plain_table("", rows, left=("coefficient",), right=(name, "interval"))


def ellipsoid(found: Ellipsoid) -> RenderableType:
    """Show where some coefficients may be together."""
    centre = [
        (name, _number(middle), _number(row[at] ** 0.5))
        for at, (name, middle, row) in enumerate(zip(found.coefficients, found.centre, found.shape, strict=True))
    ]
    parts: list[RenderableType] = [
        plain_table("centre", centre, left=("coefficient",), right=("estimate", "std. error"))
    ]
    rows = [
        (
            f"{100 * one.level:g} %",
            "-" if one.inside is None else "inside" if one.inside else "outside",
            _number(one.radius),
            _number(one.volume),
            ", ".join(map(_number, one.half_axes)),
        )
        for one in found.regions
    ]
    parts += ["", plain_table("", rows, left=("level", "point"), right=("radius", "volume", "half axes"))]
    if found.point is not None:
        parts.append(_said(f"\npoint: chi-squared {found.point['statistic']:.4g}, p {found.point['p_value']:.4g}"))
    return Group(*parts, *([_said("\n" + "\n".join(found.notes))] if found.notes else []))


def comparison(found: Comparison) -> RenderableType:
    """Show two models side by side."""
    rows = [
        (
            one.name,
            *(
                _number((side or {}).get(name))
                for side in (one.first, one.second)
                for name in ("estimate", "std_error")
            ),
            _number(one.difference),
            _number(one.difference_in_std_errors),
            _number(one.p_value_bound),
            _number(one.width_ratio),
        )
        for one in found.coefficients
    ]
    right = ("first", "std. error", "second", "std. error", "difference", "in SE", "p at most", "width ratio")
    heads = [
        f"{name}: {one['model']}, {one['optimizer']}, {one['weights']}, epsilon {one['privacy']['epsilon']} at delta "
        f"{one['privacy']['delta']}"
        for name, one in zip(("first", "second"), found.models, strict=True)
    ]
    notes = [f"{name}: {note}" for name, one in zip(("first", "second"), found.models, strict=True)
             for note in one["notes"]]  # fmt: skip
    table = plain_table("", rows, left=("coefficient",), right=right)
    return Group(_said("\n".join(heads)), "", table, "", _said("\n".join([found.assumes, *notes])))


def workers(found: Sequence[Worker]) -> RenderableType:
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


def keys(found: Sequence[Key]) -> RenderableType:
    """Show API keys, one a line; who stopped one, or when it stops by itself, under `ends`."""
    rows = [
        (
            one.id,
            one.name or "-",
            one.role,
            one.principal,
            _figure(one.last_used_at),
            f"revoked {one.revoked_at}" if one.revoked_at else _figure(one.expires_at),
        )
        for one in found
    ]
    return plain_table("", rows, left=("key", "name", "role", "principal", "last used", "ends"))


def principals(found: Sequence[Principal]) -> RenderableType:
    """Show principals, one a line; since when one is disabled, and why, under `disabled`."""
    rows = [
        (one.id, one.name, one.role, f"{one.disabled_at}: {one.disabled_reason}" if one.disabled_at else "-")
        for one in found
    ]
    return plain_table("", rows, left=("principal", "name", "role", "disabled"))


def cap(one: Cap) -> str:
    """Say how much of a budget a principal may use."""
    if isinstance(one.budget_cap, str):
        return "all"
    return ", ".join(f"{name} {figure}" for name, figure in one.budget_cap.items())


def accesses(found: Sequence[Access]) -> RenderableType:
    """Show who may use a dataset, one a line, with what is used of each cap in per cent of it."""
    rows = [
        (one.principal, one.name, one.role, cap(one), one.used.spent, one.used.reserved, one.used.remaining)
        for one in found
    ]
    left = ("principal", "name", "role", "cap")
    return plain_table("", rows, left=left, right=("spent %", "reserved %", "left %"))
