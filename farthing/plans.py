"""Plans from public figures, as the service answers them, and how the command line shows them."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from farthing.console import number, plain_table
from farthing.results import Answer as View


class PlannedPrivacy(View):
    """The cost of a planned run."""

    scheme: str
    """Way of making batches, such as one_pass or poisson."""
    adjacency: str
    """Relation of neighbouring data."""
    accountant: str
    """Which one it was reckoned by."""
    epsilon_spent: str
    """Rounded up, at most what was asked."""
    delta: str
    """At which it holds."""
    compositions: int
    """Answers that are composed: one for a whole pass over disjoint batches."""


class Solved(View):
    """The figure that was looked for; the other two are None."""

    target: float
    """The bound that was wanted."""
    units: int | None = None
    """The least; None: not looked for."""
    epsilon: str | None = None
    """The least; None: not looked for."""
    sigma: float | None = None
    """The largest; None: not looked for."""


class Plan(View):
    """A run of clipped descent, what is certified of it, and what is not."""

    kind: str
    """clipped_sgd."""
    quantity: str
    """The bounded quantity: excess_risk or squared_gradient."""
    step_size: float
    """With a vacuous certificate safe, and of no use."""
    practical_step_size: float | None = None
    """A heuristic; None where something is certified."""
    clip: float
    """Of each record's whole gradient."""
    noise: float
    """On each coordinate of a batch's mean gradient."""
    multiplier: float
    """Noise on the sum of clipped gradients, over the clip."""
    steps: int
    """Noised updates."""
    batch: int
    """Records in one."""
    units: int
    """That take part."""
    active_cap: str | None = None
    """The cap that limits the step size; None: no certificate."""
    caps: dict[str, float | None]
    """Step sizes by what limits them; None: nothing does."""
    certified_bound: float | None = None
    """Of `quantity`; None where the scheme is not covered by the proof."""
    certified_for: str
    """Which iterate or mean it is about, and under what."""
    confidence: float | None = None
    """Probability with which it holds; None: no certificate."""
    source: str
    """Paper and theorem."""
    trivial_bound: float
    """The bound that the start satisfies, untrained."""
    vacuous: bool
    """Whether the certificate says no more than that."""
    order: dict[str, Any]
    """The same with all constants one: for comparisons, never a certificate."""
    privacy: PlannedPrivacy | None = None
    """Its cost; None: without privacy."""
    without_privacy: dict[str, Any] | None = None
    """The best plan if nothing were private; None: nothing is certified then either, or none was asked."""
    trained_by: str | None = None
    """The method that runs it here; None: none does."""
    solved: Solved | None = None
    """The figure that was looked for; None: none was."""
    warnings: list[str]
    """In sentences."""
    assumptions: list[str]
    """In sentences."""


class EscapePlan(View):
    """A run of Gauss-PSGD, or of a certificate, and the goal; with a vacuous one nothing can be certified."""

    kind: str
    """gauss_psgd or certify."""
    units: int
    """That take part."""
    settings: dict[str, Any] | None = None
    """Filled, as a job would run them; None: none would do."""
    figures: dict[str, float | int | None]
    """alpha, gamma_star, p_round and what they rest on; None where one does not exist."""
    alpha: float | None = None
    """The largest length of gradients that are looked for, or the amount added to a measured norm; None: none can
    be."""
    trivial: float
    """The bound that every gradient satisfies untrained."""
    confidence: float | None = None
    """Probability with which it holds; None: no theorem covers these figures."""
    source: str
    """Paper and theorem."""
    vacuous: bool
    """Whether nothing can be certified."""
    because: str | None = None
    """Why it is vacuous; None: it is not."""
    privacy: dict[str, Any]
    """Its cost: mu, epsilon, delta."""
    solved: dict[str, Any] | None = None
    """The figures that were looked for; None: none were."""


AnyPlan = Plan | EscapePlan


def read_plan(answer: Mapping[str, Any]) -> AnyPlan:
    """Return the service's answer, by its kind."""
    return (Plan if answer["kind"] == "clipped_sgd" else EscapePlan).model_validate(answer)


def shown(found: AnyPlan) -> RenderableType:
    """Return a plan as tables: the run, what is certified of it, its price, and words of caution."""
    return _escape(found) if isinstance(found, EscapePlan) else _clipped(found)


def _escape(found: EscapePlan) -> RenderableType:
    """Return the settings that would run, and the goal with them."""
    asked = ("batch", "difference_batch", "rounds", "round_steps", "error_radius", "escape_distance", "step_size")
    filled = found.settings or {}
    run = [(name.replace("_", " "), number(filled[name])) for name in asked if filled.get(name) is not None]
    gradient = found.settings is not None and found.settings.get("claims") == "gradient"
    looked = [
        ("added to the measured norm" if gradient else "gradient of at most", number(found.alpha)),
        ("without training", number(found.trivial)),
        *_curvature(found) * (not gradient),
        ("with probability", number(found.confidence)),
        ("verdict", f"vacuous: {found.because}" if found.vacuous else "informative"),
        ("source", found.source),
    ]
    price = [(name.replace("_", " "), str(value)) for name, value in found.privacy.items()]
    parts: list[RenderableType] = [plain_table(f"plan of {found.kind} for {found.units:,} units", run), ""]
    parts += [plain_table("the goal", looked), "", plain_table("privacy", price)]
    if found.solved is not None:
        parts += ["", plain_table("found", [(name, str(value)) for name, value in found.solved.items() if value])]
    return Group(*parts)


def _curvature(found: EscapePlan) -> list[tuple[str, str]]:
    """Return what rounds look for beside the gradient, and how surely."""
    return [
        ("no curvature below minus", number(found.figures.get("gamma_star"))),
        ("a round leaves it with", number(found.figures.get("chance_of_escape_per_round"))),
    ]


def _clipped(found: Plan) -> RenderableType:
    run = [
        ("batch", f"{found.batch:,} of {found.units:,}"),
        ("steps", f"{found.steps:,}"),
        ("clip", number(found.clip)),
        (
            "step size",
            number(found.step_size) + ("" if found.active_cap is None else f", limited by {found.active_cap}"),
        ),
        ("practical step size", number(found.practical_step_size)),
        ("noise", f"{number(found.noise)}, multiplier {number(found.multiplier)}"),
        ("trained by", found.trained_by or "nothing here"),
    ]
    certified = [
        ("bound", number(found.certified_bound)),
        ("of", f"{found.quantity.replace('_', ' ')} of {found.certified_for}"),
        ("with probability", number(found.confidence)),
        ("without training", number(found.trivial_bound)),
        ("verdict", "vacuous: no better than what is known without training" if found.vacuous else "informative"),
        ("without privacy", number((found.without_privacy or {}).get("bound"))),
        ("orders of magnitude", f"{number(found.order.get('bound'))}, {number(found.order.get('radius'))} stays"),
        ("source", found.source),
    ]
    parts: list[RenderableType] = [plain_table("plan", run), "", plain_table("certificate", certified)]
    if found.privacy is not None:
        price = [
            ("epsilon", f"{found.privacy.epsilon_spent} at delta {found.privacy.delta}"),
            ("relation", found.privacy.adjacency),
            ("accountant", found.privacy.accountant),
        ]
        parts += ["", plain_table("privacy", price)]
    if found.solved is not None:
        wanted = found.solved
        rows = [
            (name, str(value)) for name in ("units", "epsilon", "sigma") if (value := getattr(wanted, name)) is not None
        ]
        parts += ["", plain_table("found", [*rows, ("for a bound of", number(wanted.target))])]
    parts += ["", *(Text(f"Note: {warning}.") for warning in found.warnings)]
    return Group(*parts)
