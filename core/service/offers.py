"""Offers: typical jobs that still fit in a budget, from declared columns and the ledger alone.

The jobs of a dataset are planned once, since its declaration never changes. The number that fits is counted at each
request.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import exp, log
from statistics import fmean
from threading import Lock
from typing import Any, Final

from core.base.errors import Conflict, Refusal
from core.data.columns import ArrayColumn, BinaryColumn, Column, IntegerColumn, NumberColumn
from core.db import reads as queries
from core.db.tables import Dataset, Scope
from core.ledger.accounts import Balance, balance_of, untouched
from core.ledger.ledger import balance
from core.planning.forecast import Asker
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob
from core.privacy.amounts import write_figure, write_share
from core.privacy.budget import Terms, percent_of
from core.privacy.facts import Adjacency
from core.service.budgets import estimated_cost, still_fit
from core.service.context import Caller, Context
from core.service.quotes import COLUMNS, most_reserved
from core.service.visibility import find_dataset
from farthing.schemas.estimates import EstimateCost
from farthing.schemas.offers import OffersView, OfferView

EPSILONS: Final = (Decimal("0.1"), Decimal("0.5"), Decimal(1))
"""Privacy targets of the offers; those above a scope's whole budget are left out."""
DESCRIBED_COLUMNS: Final = 6
LAYERS: Final = (32, 32)
BATCH: Final = 512
STEPS: Final = 500
_MOST_KEPT: Final = 256


@dataclass(frozen=True)
class Typical:
    """A typical job, planned."""

    name: str
    request: dict[str, Any]
    epsilon: Decimal
    planned: PlannedJob
    width_ratio: float | None
    cost: EstimateCost
    reserved: Sequence[int]
    """At the orders of the scope."""
    reserved_share: str


class Kept:
    """Typical jobs by dataset: they follow from what never changes."""

    def __init__(self, most: int) -> None:
        """Remember the jobs of `most` datasets."""
        self._most = most
        self._kept: OrderedDict[str, tuple[Typical, ...]] = OrderedDict()
        self._lock = Lock()

    def of(self, dataset: Dataset, scope: Scope, terms: Terms) -> tuple[Typical, ...]:
        """Return a dataset's typical jobs; plan them where that was not done before."""
        with self._lock:
            if dataset.id in self._kept:
                self._kept.move_to_end(dataset.id)
                return self._kept[dataset.id]
        made = tuple(_typical(dataset, scope, terms))  # outside the lock: at worst two threads plan the same
        with self._lock:
            self._kept[dataset.id] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


KEPT: Final = Kept(_MOST_KEPT)


def get(context: Context, caller: Caller, dataset_id: str) -> OffersView:
    """Return typical jobs on a dataset with how many of each still fit for the caller.

    Raises:
        NotFound: the dataset does not exist for the caller.
        Conflict: it has no records to read.
    """
    with context.database.read() as session:
        dataset = find_dataset(session, caller, dataset_id)
        if dataset.state != "ready":
            raise Conflict(f"This dataset is {dataset.state}: no job can read it.")
        scope = session.get_one(Scope, dataset.scope_id)
        held = balance(session, scope.id)
        grant = queries.grant(session, scope.id, caller.id)
        own = None if grant is None else balance_of(grant)
        head = scope.head
    accounts = [held] if own is None else [held, own]
    jobs = KEPT.of(dataset, scope, held.terms)
    return OffersView(
        dataset=dataset_id, head=head, capped=own is not None, offers=[_view(one, accounts) for one in jobs]
    )


def _view(job: Typical, accounts: Sequence[Balance]) -> OfferView:
    """Return a job with how many of its kind the accounts admit, the scope's first."""
    planned, (scope, *grants) = job.planned, accounts
    spec = planned.spec
    asked = [(scope, job.reserved), *((one, most_reserved(planned, one)) for one in grants)]
    return OfferView(
        name=job.name,
        kind=spec.model.kind,
        method=spec.optimizer.kind,
        target=getattr(spec.model, "target", None),
        coefficients=None if spec.model.kind == "description" else planned.facts.dimension,
        epsilon=write_figure(job.epsilon),
        budget_share=job.cost.budget_share,
        reserved_share=job.reserved_share,
        fits=min(still_fit(one, reserved, planned.draws, scope.terms) for one, reserved in asked),
        width_ratio=job.width_ratio,
        request=job.request,
    )


def _typical(dataset: Dataset, scope: Scope, terms: Terms) -> Iterator[Typical]:
    """Plan typical jobs on a dataset; those that cannot be planned for its columns are left out."""
    columns: list[Column] = COLUMNS.validate_python(dataset.columns)
    units = scope.units if dataset.rows is None else dataset.rows
    empty = untouched(terms)
    for words, body in requests(columns, Adjacency(scope.adjacency)):
        # A budget below all of these has one offer, of the whole of it.
        for epsilon in [one for one in EPSILONS if one <= terms.epsilon] or [terms.epsilon]:
            request = {"dataset": dataset.id, **body, "privacy": {"epsilon": write_figure(epsilon)}}
            asker = Asker(JobSpec.model_validate(request), columns, units, Adjacency(scope.adjacency), terms)
            try:
                planned = asker.plan()
                ratio = _width_ratio(asker, planned)
            except (Refusal, ValueError, ArithmeticError):  # too few units, or too many columns, for such a job
                continue
            times, reserved = planned.spec.retry_allowance, most_reserved(planned, empty)
            yield Typical(
                name=_named(words, planned),
                request=request,
                epsilon=epsilon,
                planned=planned,
                width_ratio=ratio,
                cost=estimated_cost(planned.price, planned.schedule, times, empty, at_head=False),
                reserved=reserved,
                reserved_share=write_share(percent_of(terms, empty.spent, empty.reserved, reserved)),
            )


def _width_ratio(asker: Asker, planned: PlannedJob) -> float | None:
    """Return the geometric mean of the predicted ratios of widths; None: none are predicted."""
    widths = None if asker.unknown_rate(planned) is not None else asker.predicted(planned)
    return None if widths is None else exp(fmean(log(one.ratio) for one in widths))


def _named(words: str, planned: PlannedJob) -> str:
    """Return a job's name with the number of its coefficients, where it has some."""
    return words if "regression" not in words else f"{words}, {planned.facts.dimension} coefficients"


def requests(columns: Sequence[Column], adjacency: Adjacency) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield typical jobs on declared columns, each with its name in words, without dataset and privacy target.

    The last column of a type is the target, as in most tables; all others are features.
    """
    plain = [one for one in columns if not isinstance(one, ArrayColumn)]
    binary = [one.name for one in plain if isinstance(one, BinaryColumn)]
    numbers = [one.name for one in plain if isinstance(one, NumberColumn | IntegerColumn)]
    for kind, targets in (("logistic", binary), ("linear", numbers)):
        if targets and (features := [one.name for one in plain if one.name != targets[-1]]):
            model = {"kind": kind, "target": targets[-1], "features": features}
            yield f"{kind.capitalize()} regression of {targets[-1]}", {"model": model}
    if plain:
        described = [one.name for one in plain[:DESCRIBED_COLUMNS]]
        words = "one column" if len(described) == 1 else f"{len(described)} columns"
        yield (
            f"Description of {words}",
            {"model": {"kind": "description", "columns": described}, "optimizer": {"kind": "describe"}},
        )
    if binary and len(plain) > 1:
        yield f"Network for {binary[-1]}, {len(LAYERS)} layers of {LAYERS[0]}", _network(binary[-1], adjacency)


def _network(target: str, adjacency: Adjacency) -> dict[str, Any]:
    """Return a small network for a binary target; Poisson samples are priced where a record may be left out."""
    hidden = [layer for size in LAYERS for layer in (_linear(size), {"kind": "activation", "of": "tanh"})]
    method: dict[str, Any] = {"kind": "noisy_gd"}
    if adjacency is Adjacency.ZERO_OUT:
        method = {"kind": "clipped_sgd", "batch": BATCH, "steps": STEPS}
    return {
        "model": {"kind": "network", "target": target, "layers": [*hidden, _linear(2)]},
        "optimizer": method,
        "inference": {"intervals": False},
    }


def _linear(units: int) -> dict[str, Any]:
    return {"kind": "linear", "units": units}
