"""The planner of federated jobs: one plan for all sites, each priced by its own scope; no record is read.

Clients answer in lockstep and go on with the plain mean of their answers, so their settings are equal in all but two
things. Batches are in proportion to a site's number of units. ([choice]; the sizes are equal in the paper of Tao,
Zhang, Yu, Cheng, Dressler and Wang.) The noise on a site's answers is that of its own batch. The noise multiplier is
the same everywhere: the largest that some client's own privacy target asks for ([choice]), so that no client pays more
than its target, and some pay less.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from core.base.errors import FieldError, Invalid, Refusal
from core.data.columns import Column, Unit, plain
from core.methods.registry import AnySpec
from core.models.design import Design
from core.models.kinds import PhaseRetrievalModel
from core.planning.job import JobSpec, PlannedSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import Terms
from core.privacy.facts import Adjacency
from farthing.schemas.estimates import Bound

POINTER: Final = "/federation/datasets"


@dataclass(frozen=True)
class PublicSite:
    """Public facts about one site's records, and about the budget that pays for them."""

    dataset: str
    columns: Sequence[Column]
    units: int
    unit: Unit
    adjacency: Adjacency
    terms: Terms


@dataclass(frozen=True)
class PlannedFederation:
    """A federated job with nothing open."""

    spec: PlannedSpec
    """The job as it is shown and can be asked for again: filled, with the batches of the client with fewest units."""
    clients: tuple[PlannedJob, ...]
    """By place, each a job on its own dataset; planning one of them again changes nothing."""
    bound: Bound


def plan_federation(spec: JobSpec, clients: Sequence[PublicSite]) -> PlannedFederation:
    """Fill what a federated job leaves open.

    The client with the fewest units leads: its plan says how many steps there are, and a batch that is given is its.

    Args:
        spec: the job as asked for.
        clients: in the order of its datasets.

    Raises:
        NotOfferedYet, Invalid, AdjacencyMismatch: the job fits some client's dataset or scope not, or two of them
            differ in what the model uses; with JSON pointers, and the dataset in words.
    """
    _refuse_unfederated(spec)
    if spec.resources.served_by == "auto":  # a GPU serves one process, unless one is asked for
        spec = spec.model_copy(update={"resources": spec.resources.model_copy(update={"device": "cpu"})})
    first = _alone(_counted(spec, len(clients)), clients, 0)
    check_alike(clients, first.design)
    filled = spec.optimizer.with_losses_of(first.spec.optimizer)
    spec = _counted(spec.model_copy(update={"model": first.spec.model, "optimizer": filled}), len(clients))
    leading = min(range(len(clients)), key=lambda place: clients[place].units)
    shared = _shared(spec, clients, leading)
    planned = [
        _alone(_with(spec, _proportional(shared, clients, leading, place)), clients, place)
        for place in range(len(clients))
    ]
    for one in planned:
        own = one.spec.optimizer.per_client & type(shared).model_fields.keys()
        assert one.design == planned[leading].design, "the columns of the model are declared alike"
        assert one.spec.optimizer.model_dump(exclude=set(own)) == shared.model_dump(exclude=set(own)), "all is filled"
    return PlannedFederation(_shown(spec, planned[leading]), tuple(planned), _bound(planned))


def check_alike(clients: Sequence[PublicSite], design: Design) -> None:
    """Refuse clients that declare what the model uses differently from the first one.

    Args:
        clients: in the order of the job's datasets.
        design: of the model on the first one's columns.

    Raises:
        Invalid: they do; names each dataset and column.
    """
    used = (*design.used, design.target_column)
    first = clients[0]
    wrong: list[FieldError] = []
    for place, client in enumerate(clients[1:], start=1):
        declared = {column.name: plain(column) for column in client.columns}
        found = [
            f"has no column `{column.name}`"
            if column.name not in declared
            else f"declares `{column.name}` with {_difference(declared[column.name], column)}"
            for column in used
            if declared.get(column.name) != column
        ]
        found += [f"counts {client.unit}, not {first.unit}"] * (client.unit != first.unit)
        found += [f"is in a scope with {client.adjacency}, not {first.adjacency}"] * (
            client.adjacency != first.adjacency
        )
        wrong += [FieldError(f"{POINTER}/{place}", f"{client.dataset} {text}") for text in found]
    if wrong:
        raise Invalid(f"All sites must declare what the model uses as {first.dataset} does.", *wrong[:100])


def _difference(found: Column, wanted: Column) -> str:
    """Return in which field two declarations of a column differ, and how."""
    one, other = found.model_dump(mode="json"), wanted.model_dump(mode="json")
    name = next(name for name in (*one, *other) if one.get(name) != other.get(name))
    return f"{name} {one.get(name)}, not {other.get(name)}"


def _refuse_unfederated(spec: JobSpec) -> None:
    """Refuse a job that several sites cannot run together.

    Raises:
        Invalid: names each such field.
    """
    wrong = []
    if not spec.optimizer.federates:
        wrong.append(FieldError("/optimizer/kind", f"{spec.optimizer.kind} is not offered over several datasets"))
    if spec.inference.intervals and not spec.optimizer.has_covariance:
        wrong.append(FieldError("/inference/intervals", "give false: no covariance is known of a federated estimate"))
    federation = spec.federation
    if federation is not None and spec.optimizer.has_covariance and federation.needed < len(federation.datasets):
        # What was learned from a client that has gone would be part of intervals about the others.
        wrong.append(FieldError("/federation/quorum", f"leave it out: {spec.optimizer.kind} needs all sites"))
    if spec.resources.processes > 1:
        wrong.append(FieldError("/resources/processes", "give 1: each site is a process of its own"))
    open_start = spec.optimizer.start is None and isinstance(spec.model, PhaseRetrievalModel)
    if spec.optimizer.start == "random" or open_start:
        wrong.append(FieldError("/optimizer/start", "give zeros or numbers: sites share no randomness"))
    if wrong:
        raise Invalid("A federated job cannot do that.", *wrong)


def refuse_absent(spec: JobSpec) -> None:
    """Refuse a job on one dataset that is planned as if other clients answered too: nobody would, and claims would err.

    Raises:
        Invalid: with a JSON pointer.
    """
    clients = getattr(spec.optimizer, "sites", None)
    if clients not in {None, 1}:
        detail = f"is {clients}, and there is one dataset; leave it out"
        raise Invalid(f"/optimizer/sites {detail}.", FieldError("/optimizer/sites", detail))


def _counted(spec: JobSpec, clients: int) -> JobSpec:
    """Tell a method that plans with the number of clients how many there are.

    Raises:
        Invalid: it was given another number.
    """
    if "sites" not in type(spec.optimizer).model_fields:
        return spec
    if getattr(spec.optimizer, "sites", None) not in {None, clients}:
        detail = f"is not the {clients} sites that the federation has; leave it out"
        raise Invalid(f"/optimizer/sites {detail}.", FieldError("/optimizer/sites", detail))
    return _with(spec, spec.optimizer.model_copy(update={"sites": clients}))


def _shared(spec: JobSpec, clients: Sequence[PublicSite], leading: int) -> AnySpec:
    """Return the settings that all clients have, with the batches of the client that leads."""
    alone = _alone(spec, clients, leading).spec.optimizer
    sized = ({"steps": alone.steps} if "steps" in type(alone).model_fields else {}) | _own(alone)
    rough = spec.optimizer.model_copy(update=sized)
    noises = []
    for place in range(len(clients)):
        asked = _proportional(rough, clients, leading, place)
        noises.append(_noise(_alone(_with(spec, asked), clients, place).spec.optimizer))
    # A multiplier was calibrated for these sizes; what noise is worth holds for any, so that they may follow from it.
    given = {**sized, "sigma": max(noises)} if _noise_field(alone) == "sigma" else {"mu": min(noises)}
    return _alone(_with(spec, spec.optimizer.model_copy(update=given)), clients, leading).spec.optimizer


def _noise_field(settings: AnySpec) -> str:
    """Return the name of the field that says how much noise there is: a multiplier, or what it is worth."""
    return "sigma" if "sigma" in type(settings).model_fields else "mu"


def _noise(settings: AnySpec) -> float:
    """Return what that field holds once it is filled."""
    value: float = getattr(settings, _noise_field(settings))
    return value


def _own(settings: AnySpec) -> dict[str, int]:
    """Return the sizes that differ between clients, where they are filled."""
    found = {name: getattr(settings, name, None) for name in settings.per_client}
    return {name: size for name, size in found.items() if size is not None}


def _proportional(settings: AnySpec, clients: Sequence[PublicSite], leading: int, place: int) -> AnySpec:
    """Return the settings of one client: the leader's, with sizes in proportion to its units, rounded down."""
    # A small site's part may round down to nothing.
    sizes = {
        name: max(1, size * clients[place].units // clients[leading].units) for name, size in _own(settings).items()
    }
    return settings.model_copy(update=sizes)


def _with(spec: JobSpec, settings: AnySpec) -> JobSpec:
    return spec.model_copy(update={"optimizer": settings})


def _alone(spec: JobSpec, clients: Sequence[PublicSite], place: int) -> PlannedJob:
    """Plan one client's part as a job on its own dataset.

    Raises:
        NotOfferedYet, Invalid, AdjacencyMismatch: as `plan_job` does, the dataset in words.
    """
    client = clients[place]
    alone = spec.model_copy(update={"dataset": client.dataset, "federation": None})
    with _named(client, place):
        return plan_job(
            alone, columns=client.columns, units=client.units, adjacency=client.adjacency, terms=client.terms
        )


@contextmanager
def _named(client: PublicSite, place: int) -> Iterator[None]:
    """Say of a refusal whose dataset it is about."""
    try:
        yield
    except Refusal as refusal:
        # The same class: the code and the status are the fault's own.
        raise type(refusal)(
            f"{client.dataset}: {refusal.detail}",
            *refusal.fields,
            FieldError(f"{POINTER}/{place}", "the job does not fit this dataset"),
        ) from refusal


def _shown(spec: JobSpec, leader: PlannedJob) -> PlannedSpec:
    """Return the job as the client that leads has it, which is how it was asked for where its batch was given."""
    return leader.spec.model_copy(update={"dataset": None, "federation": spec.federation})


def _bound(planned: Sequence[PlannedJob]) -> Bound:
    """Return the theory's prediction for the mean of all sites' answers."""
    return planned[0].spec.optimizer.federated_bound([(one.spec.optimizer, one.facts) for one in planned])
