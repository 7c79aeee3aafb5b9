"""Use cases of federated jobs: planned for all clients at once, and priced for each of them alone."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.orm import Session

from core.base.errors import FieldError, Invalid, NotFound, Refusal
from core.db import reads as queries
from core.db.tables import Dataset, Scope
from core.ledger.accounts import Balance, balance, balance_of
from core.methods.registry import source_of
from core.models.kinds import NetworkModel
from core.models.term_words import term_notes
from core.planning.federating import POINTER, PlannedFederation, PublicSite, plan_federation
from core.planning.job import JobSpec
from core.planning.memory import refuse_small_memory
from core.privacy.facts import Adjacency
from core.service import about, weights
from core.service.budgets import estimated_cost, has_room, still_fit
from core.service.context import Caller, Context
from core.service.estimates import EstimateSpec, plan_of
from core.service.quotes import COLUMNS, EstimatedJob, most_reserved
from core.service.visibility import find_dataset, no_dataset, refuse_unready
from farthing.schemas.estimates import EstimateView, SiteEstimate


@dataclass(frozen=True)
class FederatedPlan:
    """A planned federated job; only the amounts in the sites' accounts ever change."""

    planned: PlannedFederation
    parts: tuple[EstimatedJob, ...]
    """The sites' plans by place, each paid for by its own scope."""

    @cached_property
    def stored_spec(self) -> dict[str, Any]:
        """The settings that all clients have in common, JSON-ready."""
        return self.planned.spec.model_dump(mode="json")

    @property
    def steps(self) -> int:
        """The public number of steps, of every site."""
        return self.parts[0].steps


def quote(session: Session, context: Context, caller: Caller, spec: JobSpec) -> FederatedPlan:
    """Plan and price a federated job; reads the scopes' public facts and no record.

    Raises:
        NotFound: some dataset does not exist for the caller.
        Conflict: it has no records yet, or none any more.
        Invalid, AdjacencyMismatch: the job does not fit them all, or they do not fit each other.
    """
    assert spec.federation is not None, "a federated job"
    most = context.settings.max_clients
    if len(spec.federation.datasets) > most:
        raise Invalid(f"A federated job may have {most} sites here.", FieldError(POINTER, f"name at most {most}"))
    found = [_find(session, caller, dataset, place) for place, dataset in enumerate(spec.federation.datasets)]
    scopes = [session.get_one(Scope, dataset.scope_id) for dataset in found]
    accounts = [balance(session, scope.id) for scope in scopes]
    clients = [
        PublicSite(
            dataset=dataset.id,
            columns=COLUMNS.validate_python(dataset.columns),
            units=scope.units if dataset.rows is None else dataset.rows,
            unit=scope.unit,
            adjacency=Adjacency(scope.adjacency),
            terms=account.terms,
        )
        for dataset, scope, account in zip(found, scopes, accounts, strict=True)
    ]
    try:
        planned = plan_federation(spec, clients)
    except (ValueError, ArithmeticError) as error:
        raise Invalid(
            "These settings lead to numbers that are too large or too small to compute with.",
            FieldError("/optimizer", "give ordinary figures, or leave them out"),
        ) from error
    for alone in planned.clients:
        refuse_small_memory(alone, context.settings)
    if isinstance(planned.clients[0].spec.model, NetworkModel):
        sites = {dataset.site for dataset in found}
        weights.check(session, caller, planned.clients[0].spec.model, planned.clients[0].design, sites)
    about.check(session, context, caller, planned.clients[0], found)
    parts = zip(planned.clients, found, scopes, accounts, strict=True)
    return FederatedPlan(
        planned,
        tuple(
            EstimatedJob(alone, dataset.id, scope.id, account, dataset.site) for alone, dataset, scope, account in parts
        ),
    )


def _find(session: Session, caller: Caller, dataset_id: str, place: int) -> Dataset:
    """Return one client's dataset.

    Raises:
        NotFound: it does not exist for the caller.
        Conflict: no job can read it now.
    """
    pointer = f"{POINTER}/{place}"
    try:
        dataset = find_dataset(session, caller, dataset_id)
    except NotFound as missing:
        raise no_dataset(pointer) from missing
    refuse_unready(dataset, FieldError(pointer, "use another"), name=dataset_id)
    return dataset


def of_client(refusal: Refusal, place: int, dataset_id: str) -> Refusal:
    """Return a client's refusal as the federated job's: it names the dataset."""
    return type(refusal)(
        f"{dataset_id}: {refusal.detail}",
        FieldError(f"{POINTER}/{place}", f"{dataset_id} does not admit its part"),
        *refusal.fields,
        retry_after_seconds=refusal.retry_after_seconds,
        **refusal.facts,
    )


def estimate(context: Context, caller: Caller, spec: EstimateSpec) -> EstimateView:
    """Return the common plan of a federated job and each site's price; nothing is reserved.

    Raises:
        NotFound, Conflict, Invalid, AdjacencyMismatch: as `quote` does.
    """
    if spec.goal is not None:
        raise Invalid("A goal is for one dataset.", FieldError("/goal", "leave it out, or ask for each dataset alone"))
    with context.database.read() as session:
        plan = quote(session, context, caller, spec.job())
        held: dict[str, Balance] = {}
        clients = [_estimate(session, caller, part, held) for part in plan.parts]
    facts = [part.planned.facts for part in plan.parts]
    first = plan.parts[0].planned
    optimizer = plan.planned.spec.optimizer.model_dump(mode="json")
    work = [one.planned.spec.optimizer.passes(one.planned.facts) * one.planned.facts.units for one in plan.parts]
    fit = min(client.jobs_that_still_fit for client in clients)
    return EstimateView(
        cost=None,
        method=source_of(first.spec.optimizer.kind),
        plan={**plan_of(first), **optimizer, "sites": len(clients), "quorum": _quorum(plan.planned.spec)},
        bound=plan.planned.bound,
        fits=all(client.fits for client in clients),
        jobs_that_still_fit=fit,
        steps=plan.steps,
        chunks=len(first.schedule),
        rows=sum(one.units for one in facts),
        coefficients=first.facts.dimension,
        compute={
            "multiplications": float(sum(work) * first.facts.dimension),
            "records_bytes": float(sum(one.units for one in facts) * first.design.record_bytes),
        },
        head=None,
        sites=clients,
        notes=term_notes(first.design),
    )


def _quorum(spec: JobSpec) -> int:
    assert spec.federation is not None, "a federated job"
    return spec.federation.needed


def _estimate(session: Session, caller: Caller, part: EstimatedJob, held: dict[str, Balance]) -> SiteEstimate:
    """Return one client's price; `held` has what those before it would leave of the accounts that they share."""
    planned = part.planned
    grant = queries.grant(session, part.scope_id, caller.id)
    accounts = {part.scope_id: part.account} | ({} if grant is None else {grant.id: balance_of(grant)})
    fits, still = True, []
    for account_id, own in accounts.items():
        account = held.get(account_id, own)
        price = most_reserved(planned, account)
        fits = fits and has_room(account, price, planned.draws, part.account.terms)
        still.append(still_fit(account, price, planned.draws, part.account.terms))
        reserved = tuple(one + more for one, more in zip(account.reserved, price, strict=True))
        held[account_id] = Balance(account.terms, account.spent, reserved, account.draws + planned.draws.most)
    times = planned.spec.retry_allowance
    return SiteEstimate(
        dataset=part.dataset_id,
        rows=planned.facts.units,
        plan=planned.spec.optimizer.model_dump(mode="json"),
        cost=estimated_cost(planned.price, planned.schedule, times, part.account, at_head=False),
        fits=fits,
        jobs_that_still_fit=min(still),
    )
