"""Tables of an estimate on the command line: price, plan, theory, predicted widths, and what a goal takes."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from farthing.console import figure, number, of_100, per_cent, plain_table
from farthing.schemas.curves import CurveView
from farthing.schemas.estimates import (
    EstimateCost,
    EstimateView,
    ExcessForecast,
    Forecast,
    RangedWidth,
    Reached,
    ReachedExcess,
)


def _plain(value: Any) -> str:  # noqa: ANN401 - a plan's values are JSON
    """Write a planned value for people: short numbers, no braces."""
    if isinstance(value, float):
        return number(value)
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
    if swept := _swept(plan):  # the settings of each stand in a table of their own
        own["candidates"] = len(swept)
    own |= {"weights": (plan.get("model") or {}).get("weights"), "inference": plan.get("inference")}
    return [(name.replace("_", " "), _plain(value)) for name, value in own.items() if value is not None]


def estimate(found: EstimateView) -> RenderableType:
    """Show price, plan and prediction."""
    rows = [
        ("method", f"{found.method.title} ({found.method.source})"),
        *([] if found.cost is None else _cost(found.cost)),
        *([("if its worker is lost", found.if_lost)] if found.chunks == 1 and found.if_lost else []),
        ("fits", "yes" if found.fits else "no"),
        ("such jobs still fit", str(found.jobs_that_still_fit)),
    ]
    parts: list[RenderableType] = [plain_table("price", rows), "", plain_table("plan", _plan(found.plan))]
    if swept := _swept(found.plan):
        parts += ["", _candidates(swept)]
    bound = found.bound
    said = "vacuous: no better than what is known without training" if bound.vacuous else "informative"
    if not bound.vacuous and found.prediction is not None and not found.prediction.informative:
        said = "better than nothing; widths depend on figures that are not known yet"
    theory = [
        ("bounds", bound.quantity),
        ("value", number(bound.value)),
        ("with probability", number(bound.confidence)),
        ("without training", number(bound.trivial)),
        ("verdict", said),
        ("source", bound.source),
    ]
    parts += ["", plain_table("theory", theory)]
    if found.excess is not None:
        parts += ["", _excess(found.excess)]
    if found.goal is not None:
        shown = _goal(found.goal) if isinstance(found.goal, Reached) else _excess_goal(found.goal)
        parts += ["", shown]
    if found.prediction is not None:
        parts += ["", *_prediction(found.prediction)]
    return Group(*parts, *(Text(f"Note: {note}") for note in found.notes))


def _swept(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of each candidate of a sweep; none of other jobs, some of which count candidates."""
    candidates = plan.get("candidates")
    if not isinstance(candidates, list):
        return []
    return [{**one["optimizer"], "ridge": one["ridge"]} for one in candidates]


def _candidates(swept: list[dict[str, Any]]) -> RenderableType:
    """Show the candidates of a sweep by place, with those settings that they do not share."""
    names = dict.fromkeys(name for one in swept for name in one)
    apart = [name for name in names if any(one.get(name) != swept[0].get(name) for one in swept)]
    rows = [
        (str(place), _plain({name.replace("_", " "): one.get(name) for name in apart}))
        for place, one in enumerate(swept)
    ]
    return plain_table("candidates", rows)


def _cost(found: EstimateCost) -> list[tuple[str, str]]:
    """Return the price of a job on one dataset."""
    return [
        ("of the budget", per_cent(found.budget_share)),
        ("epsilon, alone", found.epsilon_alone),
        ("rho", figure(found.rho)),
        ("mu", figure(found.mu)),
        ("retry allowance", per_cent(found.retry_allowance.budget_share)),
    ]


def description_price(found: EstimateView) -> RenderableType:
    """Show what a description would cost, how that is divided, and the noise on its counts in records."""
    noise = found.plan.get("figures") or {}
    rows = [(name, number(share), number(noise.get(f"{name}_noise"))) for name, share in found.plan["shares"].items()]
    divided = plain_table("", rows, left=("statistic",), right=("share of mu squared", "noise on a count"))
    plan = {name: value for name, value in found.plan.items() if name not in {"shares", "figures"}}
    return Group(estimate(found.model_copy(update={"plan": plan})), "", divided)


def _goal(found: Reached) -> RenderableType:
    """Show what a wanted width takes."""
    rows = [
        ("coefficient", found.coefficient),
        ("wanted width", number(found.at_most)),
        ("predicted", f"{number(found.predicted)}, {'met' if found.met else 'not met'}"),
        ("at most", "-" if found.highest is None else number(found.highest)),
        ("without privacy", number(found.nonprivate_width)),
        *([] if found.power is None else [("found so often", f"{found.power:.2f}")]),
        *([] if found.detectable is None else [("smallest effect found", number(found.detectable))]),
        ("smallest mu", "none: sampling alone is wider" if found.mu is None else found.mu),
        ("smallest n", "-" if found.units is None else f"{found.units:,}"),
    ]
    return plain_table("goal", rows)


def _excess(found: ExcessForecast) -> RenderableType:
    """Show the bounds on the excess risk from above and below, and what they are made of."""
    lower = found.lower
    about = "" if lower is None or lower.exact else ", in order of magnitude"
    rows = [
        ("at most", number(found.value)),
        ("without training", number(found.trivial)),
        ("nobody beats", f"{number(None if lower is None else lower.value)}{about}"),
        ("rounds", "-" if found.rounds is None else str(found.rounds)),
    ]
    rows += [(name.replace("_", " "), number(value)) for name, value in found.regimes or ()]
    return plain_table("excess risk", rows)


def _excess_goal(found: ReachedExcess) -> RenderableType:
    """Show what a wanted excess risk takes."""
    rows = [
        ("wanted excess risk", number(found.at_most)),
        ("promised", f"{number(found.predicted)}, {'met' if found.met else 'not met'}"),
        ("smallest mu", "none is enough" if found.mu is None else found.mu),
        ("smallest rho", "-" if found.rho is None else found.rho),
        ("smallest n", "-" if found.units is None else f"{found.units:,}"),
    ]
    return plain_table("goal", rows)


def _prediction(found: Forecast) -> list[RenderableType]:
    """Show the predicted widths of the intervals."""
    rows = [
        (one.name, number(one.width), _range(one), number(one.nonprivate_width), _ratio(one.ratio))
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
            Text(
                f"{names}: taken as spread over the whole declared range. A column that fills less of its range "
                'has wider intervals; give its deviation in the job\'s "assume", or declare it with the column.'
            ),
            "",
        ]
    if found.unknown_rate is not None:
        text = (
            f"{found.unknown_rate}: nobody has said what its mean is, so widths are known between two ends alone. Give "
            'base_rate in the job\'s "assume", or declare centre with the column.'
        )
        said += [Text(text), ""]
    for one in found.flags:
        said += [Text(f"{one.when}: {one.flag}; all intervals would be withheld."), ""]
    return [widths, "", *said, plain_table("within twice the non-private width", useful)]


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _range(one: RangedWidth) -> str:
    """Show between which ends a width may lie; without an upper end as far as anybody has said."""
    return f"{number(one.lowest, 3)} .. {'?' if one.highest is None else number(one.highest, 3)}"


def curve(found: CurveView) -> RenderableType:
    """Show predicted widths by privacy target, in widths without privacy; a star marks the asked one."""
    rows = [
        (
            f"{one.mu} *" if one.asked else one.mu,
            "yes" if one.fits else "no",
            one.epsilon_alone,
            of_100(one.budget_share),
            *(number(ratio, 3) for ratio in (one.ratio, one.lowest, one.highest)),
        )
        for one in found.points
    ]
    right = ("epsilon alone", "costs %", "width ratio", "lowest", "highest")
    return plain_table("", rows, left=("mu", "fits"), right=right)
