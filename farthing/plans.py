"""Plans from public figures, as the service answers them, and how the command line shows them."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from farthing.views import View


class PlannedPrivacy(View):
    """What a planned run would cost."""

    scheme: str
    adjacency: str
    accountant: str
    epsilon_spent: str
    delta: str
    compositions: int


class Solved(View):
    """What was looked for; the other two are None."""

    target: float
    units: int | None = None
    epsilon: str | None = None
    sigma: float | None = None


class Plan(View):
    """A run of clipped descent, what is certified of it, and what is not."""

    kind: str
    quantity: str
    step_size: float
    practical_step_size: float | None = None
    clip: float
    noise: float
    multiplier: float
    steps: int
    batch: int
    units: int
    active_cap: str | None = None
    caps: dict[str, float | None]
    certified_bound: float | None = None
    certified_for: str
    confidence: float | None = None
    source: str
    trivial_bound: float
    vacuous: bool
    order: dict[str, Any]
    privacy: PlannedPrivacy | None = None
    without_privacy: dict[str, Any] | None = None
    trained_by: str | None = None
    solved: Solved | None = None
    warnings: list[str]
    assumptions: list[str]


class EscapePlan(View):
    """A run of Gauss-PSGD, or of a certificate, and what is looked for; with a vacuous one nothing can be certified."""

    kind: str
    units: int
    settings: dict[str, Any] | None = None
    figures: dict[str, float | int | None]
    alpha: float | None = None
    trivial: float
    confidence: float | None = None
    source: str
    vacuous: bool
    because: str | None = None
    privacy: dict[str, Any]
    solved: dict[str, Any] | None = None


AnyPlan = Plan | EscapePlan


def read_plan(answer: Mapping[str, Any]) -> AnyPlan:
    """Return the service's answer, by its kind."""
    return (Plan if answer["kind"] == "clipped_sgd" else EscapePlan).model_validate(answer)


def shown(found: AnyPlan) -> RenderableType:
    """Return a plan as tables: the run, what is certified of it, its price, and words of caution."""
    return _escape(found) if isinstance(found, EscapePlan) else _clipped(found)


def _escape(found: EscapePlan) -> RenderableType:
    """Return the settings that would run, and what is looked for with them."""
    asked = ("batch", "difference_batch", "rounds", "round_steps", "error_radius", "escape_distance", "step_size")
    run = [(name.replace("_", " "), _number(found.settings[name])) for name in asked if found.settings is not None]
    looked = [
        ("gradient of at most", _number(found.alpha)),
        ("without training", _number(found.trivial)),
        ("no curvature below minus", _number(found.figures.get("gamma_star"))),
        ("a round leaves it with", _number(found.figures.get("chance_of_escape_per_round"))),
        ("with probability", _number(found.confidence)),
        ("verdict", f"vacuous: {found.because}" if found.vacuous else "informative"),
        ("source", found.source),
    ]
    price = [(name.replace("_", " "), str(value)) for name, value in found.privacy.items()]
    parts: list[RenderableType] = [_facts(f"plan of {found.kind} for {found.units:,} units", run), ""]
    parts += [_facts("what is looked for", looked), "", _facts("privacy", price)]
    if found.solved is not None:
        parts += ["", _facts("found", [(name, str(value)) for name, value in found.solved.items() if value])]
    return Group(*parts)


def _clipped(found: Plan) -> RenderableType:
    run = [
        ("batch", f"{found.batch:,} of {found.units:,}"),
        ("steps", f"{found.steps:,}"),
        ("clip", _number(found.clip)),
        (
            "step size",
            _number(found.step_size) + ("" if found.active_cap is None else f", limited by {found.active_cap}"),
        ),
        ("practical step size", _number(found.practical_step_size)),
        ("noise", f"{_number(found.noise)}, multiplier {_number(found.multiplier)}"),
        ("trained by", found.trained_by or "nothing here"),
    ]
    certified = [
        ("bound", _number(found.certified_bound)),
        ("of", f"{found.quantity.replace('_', ' ')} of {found.certified_for}"),
        ("with probability", _number(found.confidence)),
        ("without training", _number(found.trivial_bound)),
        ("verdict", "vacuous: no better than what is known without training" if found.vacuous else "informative"),
        ("without privacy", _number((found.without_privacy or {}).get("bound"))),
        ("orders of magnitude", f"{_number(found.order.get('bound'))}, {_number(found.order.get('radius'))} stays"),
        ("source", found.source),
    ]
    parts: list[RenderableType] = [_facts("plan", run), "", _facts("certificate", certified)]
    if found.privacy is not None:
        price = [
            ("epsilon", f"{found.privacy.epsilon_spent} at delta {found.privacy.delta}"),
            ("relation", found.privacy.adjacency),
            ("accountant", found.privacy.accountant),
        ]
        parts += ["", _facts("privacy", price)]
    if found.solved is not None:
        wanted = found.solved
        rows = [
            (name, str(value)) for name in ("units", "epsilon", "sigma") if (value := getattr(wanted, name)) is not None
        ]
        parts += ["", _facts("found", [*rows, ("for a bound of", _number(wanted.target))])]
    parts += ["", *(Text(f"Note: {warning}.") for warning in found.warnings)]
    return Group(*parts)


def _facts(title: str, rows: list[tuple[str, str]]) -> Table:
    """Return names and values; cells are never markup."""
    table = Table(
        title=Text(title), title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0), pad_edge=False
    )
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
