"""The planner: fills every open field of a job from declared columns and public counts; no record is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, isclose, log2, sqrt

from core.catalogue.columns import Column
from core.catalogue.design import Design, make_design
from core.catalogue.jobs import Inference, JobSpec, Resources, Shares
from core.catalogue.method import Bound
from core.catalogue.methods import AnySettings
from core.catalogue.modelling import fill_model, make_facts
from core.catalogue.models import LinearModel, NetworkModel
from core.catalogue.noisy_newton import NoisyNewton, planned_shape
from core.catalogue.planning_rules import (
    LARGEST_FLOOR_PART,
    SLACK,
    fill,
    matrix_floor,
    matrix_sigma,
    required_curvature_bound,
)
from core.catalogue.questions import Curvature, Gradient
from core.errors import FieldError, Invalid, NotOfferedYet
from core.privacy.budget import Terms
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency, Facts, Frozen, parts_in

PLANNED_SHARES = Shares(estimate=0.85, curvature=0.08, score=0.07)
"""Of methods without a plan of their own for the matrices."""
LOGISTIC_RADIUS = 3.0
HUBER_RADIUS = 1.0
"""Plausible sizes of encoded slopes: log odds, or halves of the target's range, for half a column's range."""
CURVATURE_FLOOR_MULTIPLE = 0.9
SCORE_FLOOR = 1e-4
MOST_METHOD_CHUNKS = 97
STEPS_PER_BOUND = 2.0**21
"""The finest grid of the door's lattice: steps for one bound."""
LARGEST_NOISE_STEPS = 2.0**50
"""Integer noise is drawn up to this parameter."""
SMALLEST_SIGMA = 2.0**-20
"""A grid has at least 2^20 steps for one bound, and integer noise is drawn from half a step on."""
SMALLEST_BOUND, LARGEST_BOUND = 2.0**-100, 2.0**100


class PlannedJob(Frozen):
    """A job with nothing open, and everything that follows from it before a record is read."""

    spec: JobSpec
    design: Design
    facts: Facts
    schedule: tuple[Event, ...]
    """One event a chunk, in the order they are drawn, the inference last; at most 100."""
    bound: Bound


def plan_job(spec: JobSpec, *, columns: Sequence[Column], units: int, adjacency: Adjacency, terms: Terms) -> PlannedJob:
    """Fill what a job leaves open.

    Args:
        spec: the job as asked for.
        columns: of the dataset, as declared.
        units: n, public.
        adjacency: of the scope that pays.
        terms: of that scope's budget; an epsilon is meant at its delta.

    Raises:
        NotOfferedYet: networks, several datasets.
        Invalid: the model does not fit the columns, or given figures contradict each other; with JSON pointers.
    """
    _refuse_later_features(spec)
    assert not isinstance(spec.model, NetworkModel), "refused above"
    design = make_design(columns, spec.model)
    model = fill_model(spec.model, design)
    facts = make_facts(model, design, units, adjacency)
    mu = spec.privacy.total_mu(terms)
    asked = _as_printed(spec.optimizer, spec.inference)
    inference, estimate_mu = _planned_shares(spec.inference, mu, asked, facts)
    optimizer = asked.plan(facts, estimate_mu)
    _check_optimizer(optimizer, facts, estimate_mu, spec.inference)
    inference = _planned_floors(inference, optimizer, facts)
    if inference.intervals:
        radius = HUBER_RADIUS if isinstance(model, LinearModel) else LOGISTIC_RADIUS
        inference = fill(inference, plausible_radius=radius)
    target = next(iter(spec.privacy.model_dump(exclude_none=True)))
    pointer = f"/privacy/{target}" if spec.optimizer.mu is None else "/optimizer/mu"
    check_lattice(optimizer.asked(), facts, pointer)
    check_lattice(
        inference.questions(), facts, f"/privacy/{target}" if spec.inference.shares is None else "/inference/shares"
    )
    filled = spec.model_copy(
        update={
            "model": model,
            "optimizer": optimizer,
            "inference": inference,
            "resources": _planned_resources(spec.resources),
        }
    )
    schedule = (*chunks(optimizer.schedule(facts)), *(question.event() for question in inference.questions()))
    return PlannedJob(spec=filled, design=design, facts=facts, schedule=schedule, bound=optimizer.bound(facts))


def chunks(events: Sequence[Event], most: int = MOST_METHOD_CHUNKS) -> tuple[Event, ...]:
    """Cut a run of events into at most `most` chunks of equal length; each is paid whole, before it reads."""
    size = -(-len(events) // most)
    return tuple(compose(Counter(events[first : first + size])) for first in range(0, len(events), size))


def check_lattice(questions: Iterable[Gradient | Curvature], facts: Facts, pointer: str) -> None:
    """Refuse what the door's integer lattice cannot carry, before anything is charged.

    A bound C is cut into 2^20 to 2^21 steps, so that the sensitivity of the integer sum is at least 2^20 steps and at
    most 2 C with its margin, the summing's own error, and one rounding in each coordinate. Its product with sigma
    must stay within the integer noise's range. `pointer` names the figure that sets sigma.

    Raises:
        Invalid: too much or too little noise, or a bound on a unit's answer that is no ordinary number.
    """
    for question in questions:
        if not SMALLEST_BOUND <= question.bound(facts) <= LARGEST_BOUND:
            raise _contradiction("/model", "bounds a unit's gradient or Hessian by a figure too small or too large")
        error = (facts.units + 2.0) ** 2 * 2.0**-52
        roundings = (1 + parts_in(facts.units) * 2.0 ** -_part_bits(facts.units)) * (facts.dimension + 1)
        steps = STEPS_PER_BOUND * 1.01 * (2 + error) + roundings + 1
        if question.sigma * steps > LARGEST_NOISE_STEPS:
            raise _contradiction(pointer, "asks for more noise than integers carry; raise the privacy target")
        if question.sigma < SMALLEST_SIGMA:
            raise _contradiction(pointer, "asks for less noise than integers carry; lower the privacy target")


def _part_bits(units: int) -> int:
    """Return how much finer the lattice rounds parts of a sum, at least: their sum stays below 2^61 steps."""
    return max(0, min(20, 60 - ceil(log2(units * STEPS_PER_BOUND))))


def _refuse_later_features(spec: JobSpec) -> None:
    """Refuse what the interface has room for and this version does not run."""
    later = {
        "/datasets": spec.datasets is not None,
        "/model/kind": isinstance(spec.model, NetworkModel),
    }
    fields = [FieldError(pointer, "is not offered yet") for pointer, asked in later.items() if asked]
    if fields:
        raise NotOfferedYet(f"Not offered yet: {', '.join(field.pointer for field in fields)}.", *fields)


def _planned_resources(resources: Resources) -> Resources:
    """Settle where several processes run: on GPUs only where that is asked for, for most GPUs serve jobs of one."""
    if resources.processes > 1 and resources.served_by == "auto":
        return resources.model_copy(update={"device": "cpu"})
    return resources


def _as_printed(optimizer: AnySettings, inference: Inference) -> AnySettings:
    """Return the settings; the printed correction is one for the printed Newton's method, which has no memory."""
    if isinstance(optimizer, NoisyNewton) and inference.intervals and inference.correction == "printed":
        return fill(optimizer, memory=0.0)
    return optimizer


def _planned_shares(inference: Inference, mu: float, optimizer: AnySettings, facts: Facts) -> tuple[Inference, float]:
    """Fill the division of mu^2 and return it with the estimate's own mu."""
    if not inference.intervals:
        estimate_mu = optimizer.mu if optimizer.mu is not None else mu
        if estimate_mu > mu * (1 + SLACK):
            raise _contradiction("/optimizer/mu", "is more than the job's total; lower it or leave it out")
        return inference, estimate_mu
    shares, default = inference.shares, PLANNED_SHARES
    if isinstance(optimizer, NoisyNewton) and optimizer.memory != 0:
        shape = planned_shape(facts, mu)
        estimate = 1 - shape.final_part - shape.score_part
        default = Shares(estimate=estimate, curvature=shape.final_part, score=shape.score_part)
    if shares is None and optimizer.mu is not None:
        rest = 1 - (optimizer.mu / mu) ** 2
        if rest <= SLACK:
            raise _contradiction("/optimizer/mu", "leaves nothing for the intervals; lower it or leave it out")
        matrices = default.curvature + default.score
        shares = Shares(
            estimate=1 - rest, curvature=rest * default.curvature / matrices, score=rest * default.score / matrices
        )
    shares = shares or default
    estimate_mu = mu * sqrt(shares.estimate)
    if optimizer.mu is not None and not isclose(optimizer.mu, estimate_mu, rel_tol=SLACK):
        raise _contradiction("/optimizer/mu", "does not agree with the shares; leave one of the two out")
    sigmas = {
        "curvature_sigma": matrix_sigma(mu * sqrt(shares.curvature), inference.matrix_noise),
        "score_sigma": matrix_sigma(mu * sqrt(shares.score), inference.matrix_noise),
    }
    for name, value in sigmas.items():
        given = getattr(inference, name)
        if given is not None and not isclose(given, value, rel_tol=SLACK):
            raise _contradiction(f"/inference/{name}", "does not agree with the shares; leave it out")
    return fill(inference, shares=shares, **sigmas), estimate_mu


def _check_optimizer(optimizer: AnySettings, facts: Facts, estimate_mu: float, inference: Inference) -> None:
    """Refuse settings that contradict the rest of the job."""
    if isinstance(optimizer, NoisyNewton):
        _check_newton(optimizer, inference)
    if optimizer.start != "zeros" and len(optimizer.start) != facts.dimension:
        raise _contradiction("/optimizer/start", f"must have {facts.dimension} numbers, one for each parameter")
    assert optimizer.mu is not None, "planned"
    assert isclose(optimizer.mu, estimate_mu, rel_tol=10 * SLACK), "the estimate spends its share"


def _check_newton(optimizer: NoisyNewton, inference: Inference) -> None:
    """Refuse numbers of steps and shares that do not fit each other."""
    assert optimizer.averaged is not None, "planned"
    if optimizer.late_steps < 0:
        raise _contradiction("/optimizer/hessians", "is more than the steps there are; lower it")
    if optimizer.averaged > max(1, optimizer.late_steps):
        raise _contradiction("/optimizer/averaged", "is more than the steps after the last Hessian; lower it")
    if optimizer.last_gradient_share == 1 and optimizer.steps != 1:
        raise _contradiction("/optimizer/last_gradient_share", "leaves nothing for the earlier steps; lower it")
    if optimizer.late_steps and inference.intervals and inference.correction == "printed":
        raise _contradiction("/inference/correction", "is printed for Newton steps alone; ask for no others")


def _planned_floors(inference: Inference, optimizer: AnySettings, facts: Facts) -> Inference:
    """Fill the floors of both matrices of the sandwich from the noise they will have."""
    if not inference.intervals:
        return inference
    curvature, _ = inference.questions()
    precision = _precision(curvature, facts)
    if isinstance(optimizer, NoisyNewton) and optimizer.memory:
        precision += optimizer.matrix_deviations(facts)[-1] ** -2
    elif isinstance(optimizer, NoisyNewton):
        later = optimizer.newton_steps - optimizer.newton_steps // 2
        precision += later * _precision(optimizer.curvatures()[-1], facts)
    largest = LARGEST_FLOOR_PART * required_curvature_bound(facts)
    floor = matrix_floor(1 / sqrt(precision), facts.dimension, largest, CURVATURE_FLOOR_MULTIPLE)
    return fill(inference, curvature_floor=floor, score_floor=min(1 / facts.units, SCORE_FLOOR))


def _precision(question: Curvature, facts: Facts) -> float:
    """Return one over the variance of the noise on an entry of a matrix answer."""
    return (question.sigma * question.sensitivity(facts)) ** -2


def _contradiction(pointer: str, detail: str) -> Invalid:
    return Invalid(f"{pointer} {detail}.", FieldError(pointer, detail))
