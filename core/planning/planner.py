"""The planner: fills every open field of a job from declared columns and public counts; no record is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import ceil, log2

from core.base.errors import contradiction
from core.data.columns import Column
from core.methods.base import Request
from core.methods.kl.repeats import Repeats
from core.models.description import DescriptionModel
from core.models.design import Design, make_design
from core.models.kinds import AnyModel, LinearModel, NetworkModel, RegressionModel
from core.models.modelling import fill_model, make_facts
from core.models.reference import check_assumed
from core.planning.choices import choose
from core.planning.completion import Completed, complete
from core.planning.describing import (
    described,
    description_design,
    description_facts,
    refuse_for_descriptions,
)
from core.planning.job import JobSpec, PlannedSpec, Resources
from core.planning.networks import (
    clip_of,
    fill_network,
    network_facts,
    refuse_for_networks,
    refuse_wide_draws,
)
from core.planning.refusals import refuse_unbounded
from core.privacy.arithmetic import fill
from core.privacy.budget import Terms
from core.privacy.calibration import Fits, allowed
from core.privacy.draws import MOST_RUNS, SAMPLE_DRAWS, JobDraws
from core.privacy.events import Event, compose
from core.privacy.facts import Adjacency, Facts, Frozen, parts_in
from core.queries.gradients import Question
from core.queries.sampling import PoissonSampling, StreamSampling
from farthing.schemas.estimates import Bound

LOGISTIC_RADIUS = 3.0
HUBER_RADIUS = 1.0
"""Plausible sizes of encoded slopes: log odds, or halves of the target's range, for half a column's range."""
MOST_METHOD_CHUNKS = 97
STEPS_PER_BOUND = 2.0**21
"""The finest grid of the oracle's lattice: steps for one bound."""
LARGEST_NOISE_STEPS = 2.0**50
"""Integer noise is drawn up to this parameter."""
SMALLEST_SIGMA = 2.0**-20
"""A grid has at least 2^20 steps for one bound, and integer noise is drawn from half a step on."""
SMALLEST_BOUND, LARGEST_BOUND = 2.0**-100, 2.0**100


class PlannedJob(Frozen):
    """A job with nothing open, and everything that follows from it before a record is read."""

    spec: PlannedSpec
    design: Design
    facts: Facts
    schedule: tuple[Event, ...]
    """One event a chunk, in the order they are drawn, the inference last; at most 100."""
    bound: Bound

    @cached_property
    def price(self) -> Event:
        """One event for everything that it draws."""
        return composed(self.schedule)

    @cached_property
    def draws(self) -> JobDraws:
        """The most that it may draw of noise and samples, in the units of `core.privacy.draws`."""
        optimizer, facts = self.spec.optimizer, self.facts
        points = max(1, len(self.spec.models))
        widest = max(question.draws(facts.dimension, points) for question in optimizer.questions())
        sampling = optimizer.sampling(facts)
        sampled = SAMPLE_DRAWS if isinstance(sampling, PoissonSampling) else 0
        once = optimizer.most_asked(facts) * (widest + sampled)
        matrices = sum(question.draws(facts.dimension) + sampled for question in self._after())
        skips = isinstance(sampling, StreamSampling) and sampling.skips(len(self.schedule) - self.matrices)
        # What a stream has lost is read by nobody again: all its attempts together are one run.
        return JobDraws(run=once + matrices, runs=1 if skips and not matrices else MOST_RUNS)

    @property
    def matrices(self) -> int:
        """Number of matrices that are asked for after the estimate."""
        return len(self._after())

    def _after(self) -> tuple[Question, ...]:
        return () if self.spec.optimizer.has_covariance else self.spec.inference.questions()


def composed(schedule: Iterable[Event]) -> Event:
    """Return one event for what some chunks draw."""
    return compose(Counter(schedule))


def plan_job(spec: JobSpec, *, columns: Sequence[Column], units: int, adjacency: Adjacency, terms: Terms) -> PlannedJob:
    """Fill what a job leaves open.

    Args:
        spec: the job as asked for.
        columns: of the dataset, as declared.
        units: n, public.
        adjacency: of the scope that pays.
        terms: of that scope's budget; an epsilon is meant at its delta.

    Raises:
        Invalid: the model does not fit the columns, or given figures contradict each other; with JSON pointers.
    """
    _check_models(spec)
    refuse_for_descriptions(spec)
    asked = _asked(spec)
    spec.optimizer.refuse(asked)
    begun = {"optimizer": spec.optimizer.with_request(asked), "model": spec.optimizer.model_of(spec.model)}
    spec = spec.model_copy(update=begun)
    design, model, facts = describe(spec, columns=columns, units=units, adjacency=adjacency)
    spec = spec.model_copy(update={"optimizer": spec.optimizer.with_model(model, design)})
    mu, fits = spec.privacy.total_mu(terms), allowed(spec.privacy, terms)
    if isinstance(model, NetworkModel | DescriptionModel):
        optimizer, inference = complete(spec.optimizer.calibrated(facts, fits), spec.inference, mu, facts)
    else:
        optimizer, inference = _completed(spec, design, model, facts, mu, fits)
    # Exactly one currency is given: the field that a refusal names.
    target = next(iter(spec.privacy.model_dump(exclude_none=True)))
    pointer = f"/privacy/{target}" if spec.optimizer.mu is None else "/optimizer/mu"
    check_lattice(optimizer.questions(), facts, pointer)
    matrices = () if optimizer.has_covariance else inference.questions()
    check_lattice(matrices, facts, f"/privacy/{target}" if spec.inference.shares is None else "/inference/shares")
    sampling = optimizer.sampling(facts)
    # What a stream loses is never read again.
    skipped = isinstance(sampling, StreamSampling) and sampling.skips(len(chunks(optimizer.schedule(facts))))
    closed = {
        "model": model,
        "optimizer": optimizer,
        "inference": inference,
        "resources": _planned_resources(spec.resources),
        # Assumptions serve predictions and plans, never a fit.
        "assume": None,
        "retry_allowance": 0 if skipped else spec.retry_allowance,
    }
    filled = PlannedSpec.model_construct(spec.model_fields_set | closed.keys(), **{**vars(spec), **closed})
    return _priced(filled, design, facts)


def read_planned(spec: PlannedSpec, *, columns: Sequence[Column], units: int, adjacency: Adjacency) -> PlannedJob:
    """Return what follows from a stored job, in which nothing is open; arguments as of `plan_job`.

    Raises:
        Invalid: the columns are not those that the job was planned for.
    """
    design, _, facts = describe(spec, columns=columns, units=units, adjacency=adjacency)
    return _priced(spec, design, facts)


def _priced(spec: PlannedSpec, design: Design, facts: Facts) -> PlannedJob:
    """Put beside a planned job what it draws and promises."""
    matrices = () if spec.optimizer.has_covariance else spec.inference.questions()
    schedule = (*chunks(spec.optimizer.schedule(facts)), *(question.event() for question in matrices))
    return PlannedJob(spec=spec, design=design, facts=facts, schedule=schedule, bound=spec.optimizer.bound(facts))


def _check_models(spec: JobSpec) -> None:
    """Refuse a number of models that the method is not about, and one that is named twice.

    Raises:
        Invalid: with JSON pointers.
    """
    least, most = spec.optimizer.about
    count, kind = len(spec.models), spec.optimizer.kind
    if not least <= count <= most:
        taken = f"{least}" if least == most else f"{least} to {most}"
        raise contradiction("/models", f"names {count}: {kind} is about {taken if most else 'no'} released models")
    for place, name in enumerate(spec.models):
        if name in spec.models[:place]:
            raise contradiction(f"/models/{place}", f"names {name} again; name each model once")


def _asked(spec: JobSpec) -> Request:
    """Return the facts about the job that a method receives."""
    return Request(spec.model, spec.inference, len(spec.models), spec.resources.processes)


def _completed(spec: JobSpec, design: Design, model: RegressionModel, facts: Facts, mu: float, fits: Fits) -> Completed:
    """Return a regression's settings and inference with nothing open.

    Raises:
        Invalid: as `plan_job` does.
    """
    if spec.assume is not None:
        check_assumed(spec.assume, design, model)
    refuse_unbounded(spec.optimizer, spec.inference, model, facts)
    steady = spec.optimizer.with_inference(spec.inference).steady(model, design, facts)
    asked = steady.calibrated(facts, fits)
    radius = HUBER_RADIUS if isinstance(model, LinearModel) else LOGISTIC_RADIUS
    inference = fill(spec.inference, plausible_radius=radius)
    found = choose(asked, inference, mu, facts, (design, model, spec.assume))
    if found.inference.intervals:
        return found
    kept = found.inference.model_copy(update={"plausible_radius": spec.inference.plausible_radius})
    return found._replace(inference=kept)


def describe(
    spec: JobSpec, *, columns: Sequence[Column], units: int, adjacency: Adjacency
) -> tuple[Design, AnyModel, Facts]:
    """Return how a job's rows are encoded, its filled model, and what is public of its records, whatever it is worth.

    Raises:
        Invalid: as `plan_job` does.
    """
    if isinstance(spec.model, DescriptionModel):
        chosen = described(columns, spec.model)
        named = spec.model.model_copy(update={"columns": tuple(column.name for column in chosen)})
        return description_design(chosen), named, description_facts(chosen, units, adjacency)
    if isinstance(spec.model, NetworkModel):
        refuse_for_networks(spec)
        design = make_design(columns, spec.model)
        network = fill_network(spec.model, design)
        facts = network_facts(network, design, units, adjacency, clip_of(spec))
        refuse_wide_draws(spec, facts)
        return design, network, facts
    design = make_design(columns, spec.model)
    model = fill_model(spec.model, design)
    facts = make_facts(model, design, units, adjacency, spec.optimizer.start or "zeros")
    return design, model, spec.optimizer.with_facts(facts, design)


def chunks(events: Sequence[Event], most: int = MOST_METHOD_CHUNKS) -> tuple[Event, ...]:
    """Cut a run of events into at most `most` chunks of equal length; each is paid whole, before it reads."""
    # Rounded up: there are then no more than `most` chunks.
    size = -(-len(events) // most)
    return tuple(compose(_counted(events[first : first + size])) for first in range(0, len(events), size))


def _counted(events: Sequence[Event]) -> Counter[Event]:
    """Return how often each event comes; of a million equal ones at once."""
    return events.counted() if isinstance(events, Repeats) else Counter(events)


def check_lattice(questions: Iterable[Question], facts: Facts, pointer: str) -> None:
    """Refuse what the oracle's integer lattice cannot carry, before anything is charged.

    A bound C is cut into 2^20 to 2^21 steps. The sensitivity of the integer sum is then at least 2^20 steps, and at
    most 2 C with its margin, the summing's own error, and one rounding in each coordinate. Its product with sigma must
    stay within the integer noise's range. `pointer` names the figure that sets sigma.

    Raises:
        Invalid: too much or too little noise, or a bound on a unit's answer that is no ordinary number.
    """
    for question in questions:
        if not SMALLEST_BOUND <= question.bound(facts) <= LARGEST_BOUND:
            raise contradiction("/model", "bounds a unit's gradient or Hessian by a figure too small or too large")
        error = (facts.units + 2.0) ** 2 * 2.0**-52
        roundings = (1 + parts_in(facts.units) * 2.0 ** -_part_bits(facts.units)) * (facts.dimension + 1)
        steps = STEPS_PER_BOUND * 1.01 * (2 + error) + roundings + 1
        if question.sigma * steps > LARGEST_NOISE_STEPS:
            raise contradiction(pointer, "asks for more noise than integers carry; raise the privacy target")
        if question.sigma < SMALLEST_SIGMA:
            raise contradiction(pointer, "asks for less noise than integers carry; lower the privacy target")


def _part_bits(units: int) -> int:
    """Return how much finer the lattice rounds parts of a sum, at least: their sum stays below 2^61 steps."""
    return max(0, min(20, 60 - ceil(log2(units * STEPS_PER_BOUND))))


def _planned_resources(resources: Resources) -> Resources:
    """Settle where several processes run: on GPUs only where that is asked for, for most GPUs serve jobs of one."""
    if resources.processes > 1 and resources.served_by == "auto":
        return resources.model_copy(update={"device": "cpu"})
    return resources
