"""What a plan of clipped descent says: the run, what is certified of it, what is not, and how sure one may be."""

from math import inf
from typing import Literal

from pydantic import ConfigDict, Field

from core.methods.clipped.one_pass.guarantee import Guarantee, Run
from core.privacy.amounts import format_figure, write_figure
from core.privacy.facts import Frozen
from public_planner.clipped.advice import Foreseen, PublicTail, foresee, tail_of, thumb
from public_planner.clipped.cases import case_of, private_clip, private_terms, small_private_clip
from public_planner.clipped.cautions import assumptions_of, warnings_of
from public_planner.clipped.geometry import Found, LossGeometry
from public_planner.clipped.order_level import (
    Scale,
    neighbourhood,
    order_step_size,
    order_terms,
    practical_step_size,
    privacy_cost,
)
from public_planner.clipped.request import ClippedPlanRequest
from public_planner.clipped.schemes import ACCOUNTANTS, Relation, Scheme, epsilon_spent, sensitivity

GROUPS = {
    "stat": ("variance",),
    "bias": ("bias",),
    "dp": ("noise_drift", "noise_length"),
    "det": ("smoothness", "travel", "jump", "jump_squared"),
}
"""Which caps stand for what."""


class Told(Frozen):
    """A part of an answer: a figure beyond any float is refused, not sent."""

    model_config = ConfigDict(allow_inf_nan=False)


class Terms(Told):
    """What a bound would be if only so much limited the step size; the largest of them is the bound."""

    stat: float = Field(description="the spread of gradients")
    bias: float = Field(description="what clipping moves their mean by")
    det: float = Field(description="a run without noise of any kind")
    dp: float = Field(description="the noise that privacy adds")


class Corollary(Told):
    """The best clip of a corollary, and what is left there, in orders."""

    clip: float
    bound: float
    terms: Terms | None


class Corollaries(Told):
    """What the corollaries say of this many steps at their own best clips, constants dropped."""

    private: Corollary | None = Field(description="clips of at least 4 slope, this noise; null: without privacy")
    private_small: Corollary | None = Field(
        description="clips of at most 4/3 slope: always more than the start's error"
    )
    unprivate: Corollary = Field(description="without privacy, a clip that grows with the steps: falls to zero")


class OrderLevel(Told):
    """The same with all constants one: for comparisons, never a certificate."""

    bound: float
    radius: float = Field(description="what is left of it after any number of steps")
    terms: Terms
    cost: float = Field(description="D, what privacy costs for each unit of clipping")
    corollaries: Corollaries


class Regime(Told):
    """Where the clip lies among the seven regimes."""

    number: int
    region: str
    best: str
    empty: bool = Field(description="its neighbourhood is never below half of what the start satisfies, in orders")
    comment: str


class PlannedPrivacy(Told):
    """What a run costs, by the accountant of its scheme."""

    scheme: Scheme
    adjacency: Relation
    sensitivity: float = Field(description="of a batch's mean clipped gradient, l2")
    accountant: str
    epsilon_spent: str = Field(description="rounded up, at most what was asked")
    delta: str
    compositions: int = Field(description="answers that are composed: one for a whole pass over disjoint batches")


class Unprivate(Told):
    """The best plan over the same batches and steps if nothing were private."""

    bound: float
    clip: float
    steps: int
    batch: int


class Solved(Told):
    """What was looked for, so that the bound is at most the target; the other two are null."""

    target: float
    units: int | None = Field(description="the least")
    epsilon: str | None = Field(description="the least")
    sigma: float | None = Field(description="the largest")


class ClippedPlan(Told):
    """A run of clipped descent; words are at the end."""

    object: Literal["plan"] = "plan"
    kind: Literal["clipped_sgd"] = "clipped_sgd"
    problem: Literal["convex", "nonconvex"]
    quantity: Literal["excess_risk", "squared_gradient"]
    step_size: float = Field(description="gamma; with a vacuous certificate safe, and of no use")
    practical_step_size: float | None = Field(description="a heuristic, where nothing is certified; else null")
    clip: float = Field(description="lambda, of each record's whole gradient")
    noise: float = Field(description="sigma_omega, on each coordinate of a batch's mean; the multiplier, clip/batch")
    multiplier: float = Field(description="z: noise on the sum of clipped gradients over the clip")
    steps: int = Field(description="K, noised updates")
    iterates: int = Field(description="N = K + 1, the start included")
    batch: int
    sampling_rate: float = Field(description="part of the records in a batch")
    units: int
    moment_order: float = Field(description="alpha that was used")
    moment_size: float
    active_cap: str | None = Field(description="what limits the step size; null: no certificate")
    caps: dict[str, float | None] = Field(description="step sizes by what limits them; null: nothing does")
    terms: Terms | None = Field(description="of the bound; null: no certificate")
    bound: float | None = Field(description="by the certificate's formula; null: none was asked")
    certified_bound: float | None = Field(description="the same where the scheme is covered by the proof; else null")
    certified_for: str
    confidence: float | None
    source: str
    trivial_bound: float = Field(description="what the start satisfies, untrained")
    vacuous: bool = Field(description="the certificate says no more than that")
    order: OrderLevel
    regime: Regime
    semi_analytic: Foreseen | None = Field(description="of public proxy gradients; null: none were sent")
    public_tail: PublicTail | None = Field(description="of public proxy gradients; null: none, or nothing to tell")
    privacy: PlannedPrivacy | None = Field(description="null: without privacy")
    without_privacy: Unprivate | None = Field(description="null: nothing is certified then either, or none was asked")
    trained_by: str | None = Field(description="the method that runs such a plan here; null: none does")
    solved: Solved | None
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]


_DIGITS = 12
TRAINED_BY: dict[Scheme, str] = {"one_pass": "certified_clipped_sgd", "poisson": "clipped_sgd"}


def describe(
    request: ClippedPlanRequest, filled: ClippedPlanRequest, geometry: LossGeometry, best: Found, without: Found | None
) -> ClippedPlan:
    """Return the answer to a request.

    Args:
        request: as it was sent.
        filled: with what it looked for.
        geometry: its problem.
        best: the run.
        without: the best run without privacy, where that was asked.
    """
    run, scale = best.run, geometry.scale
    found = geometry.guarantee(run)
    terms = order_terms(scale, run)
    covered = found is not None and filled.scheme != "poisson"
    bound = None if found is None else found.bound
    vacuous = bound is None or bound >= geometry.trivial
    assert filled.units is not None, "given or found"
    case = case_of(scale, run.sigma, run.clip)
    tail = None if filled.proxy is None else tail_of(filled.proxy)
    return ClippedPlan(
        problem=filled.problem,
        quantity="excess_risk" if geometry.convex else "squared_gradient",
        step_size=order_step_size(scale, run) if found is None else found.step_size,
        practical_step_size=practical_step_size(scale, run) if vacuous or not covered else None,
        clip=run.clip,
        noise=run.noise,
        multiplier=best.multiplier,
        steps=run.steps,
        iterates=run.iterates,
        batch=run.batch,
        sampling_rate=run.batch / filled.units,
        units=filled.units,
        moment_order=run.alpha,
        moment_size=run.sigma,
        active_cap=None if found is None else found.active_cap,
        caps={} if found is None else {name: None if cap == inf else cap for name, cap in found.caps.items()},
        terms=None if found is None else _terms(found),
        bound=bound,
        certified_bound=bound if covered else None,
        certified_for=found.certified_for if found is not None and covered else "nothing",
        confidence=found.confidence if found is not None and covered else None,
        source="orders of magnitude, all constants one" if found is None else found.source,
        trivial_bound=geometry.trivial,
        vacuous=vacuous or not covered,
        order=OrderLevel(
            bound=terms.bound,
            radius=neighbourhood(scale, run, noise_grows=filled.scheme != "one_pass"),
            terms=Terms(**terms.model_dump()),
            cost=privacy_cost(run),
            corollaries=_corollaries(scale, run),
        ),
        regime=Regime(number=case.number, region=case.region, best=case.best, empty=case.empty, comment=case.comment),
        semi_analytic=None
        if filled.proxy is None
        else foresee(filled.proxy, multiplier=best.multiplier, batch=run.batch, steps=run.steps, plan_clip=run.clip),
        public_tail=tail,
        privacy=_privacy(filled, best),
        without_privacy=None
        if without is None
        else Unprivate(bound=without.bound, clip=without.run.clip, steps=without.run.steps, batch=without.run.batch),
        trained_by=TRAINED_BY.get(filled.scheme),
        solved=_solved(request, filled),
        warnings=warnings_of(filled, geometry, best, found, tail),
        assumptions=assumptions_of(filled),
    )


def _corollaries(scale: Scale, run: Run) -> Corollaries:
    """Return the best clips by the corollaries, at a run's steps and noise for each unit of clip."""
    steps, cost, rate = max(run.steps, 1), privacy_cost(run), run.l8 / max(run.steps, 1)

    def at(clip: float, level: float, *, noised: bool) -> Corollary:
        terms = private_terms(scale, run.alpha, run.sigma, level, steps=steps, log_term=run.l8)
        if not noised:
            terms = terms.model_copy(update={"dp": 0.0})
        return Corollary(clip=clip, bound=terms.bound, terms=Terms(**terms.model_dump()))

    large = thumb(scale, run.alpha, run.sigma, cost)
    unprivate = private_clip(scale, run.alpha, run.sigma, rate)
    small = None
    if cost > 0:
        clip, error = small_private_clip(scale, run.alpha, cost)
        small = Corollary(clip=clip, bound=error, terms=None)
    return Corollaries(
        private=at(large, cost, noised=True) if large is not None and cost > 0 else None,
        private_small=small,
        unprivate=at(unprivate, rate, noised=False),
    )


def _terms(found: Guarantee) -> Terms:
    """Return the bound that each group of caps alone would leave."""

    def left(group: str) -> float:
        smallest = min(found.caps.get(name, inf) for name in GROUPS[group])
        return 0.0 if smallest == inf else found.bound_at(smallest)

    return Terms(stat=left("stat"), bias=left("bias"), det=left("det"), dp=left("dp"))


def _privacy(filled: ClippedPlanRequest, best: Found) -> PlannedPrivacy | None:
    """Return the price of a run; never above what was asked."""
    if filled.epsilon is None:
        return None
    assert filled.delta is not None, "refused before"
    spent = epsilon_spent(
        filled.scheme,
        filled.relation,
        multiplier=best.multiplier,
        fraction=best.cell.fraction,
        times=best.cell.steps,
        delta=float(filled.delta),
    )
    assert spent <= filled.epsilon, "multipliers are rounded up"
    return PlannedPrivacy(
        scheme=filled.scheme,
        adjacency=filled.relation,
        sensitivity=sensitivity(filled.relation) * best.run.clip / best.run.batch,
        accountant=ACCOUNTANTS[filled.scheme],
        epsilon_spent=format_figure(spent, "up", digits=_DIGITS),
        delta=write_figure(filled.delta),
        compositions=1 if filled.scheme == "one_pass" else best.run.steps,
    )


def _solved(request: ClippedPlanRequest, filled: ClippedPlanRequest) -> Solved | None:
    if request.find is None:
        return None
    assert request.target is not None, "comes with what is to be found"
    epsilon = None if filled.epsilon is None else write_figure(filled.epsilon)
    return Solved(
        target=request.target,
        units=filled.units if request.find == "units" else None,
        epsilon=epsilon if request.find == "epsilon" else None,
        sigma=filled.moments[0].size if request.find == "sigma" else None,
    )
