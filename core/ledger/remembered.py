"""Rows beside a chain that decide or are shown, compared with the sums of the chain's entries.

A writer into the database can change these rows without an entry.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from core.db.tables import Account, Dataset, Job, Scope
from core.ledger import gaps, identities
from core.ledger.accounts import read_slots, terms_of
from core.ledger.charged import executed, totals_of
from core.ledger.digests import digest_of
from core.ledger.tally import BrokenChain, JobTally, Tally, demand


class ForgottenError(BrokenChain):
    """A row beside the chain differs from the sums of its entries."""


def remind(condition: bool, reason: str) -> None:  # noqa: FBT001 - as `demand`
    """Refuse what the database remembers unless a condition holds.

    Raises:
        ForgottenError: it does not hold.
    """
    if not condition:
        raise ForgottenError(reason)


def compare_scope(scope: Scope, tally: Tally) -> None:
    """Compare what decides the noise and the rates of all jobs to come, who answers, and whether it admits jobs."""
    told, kept = (tally.owner, tally.adjacency, tally.units), (scope.owner_id, scope.adjacency, scope.units)
    demand(told == kept, "its owner, adjacency or number of units is not that of its first entry")
    demand(tally.approval in (None, scope.approval), "its rule of approval is not that of its uploads")
    demand(tally.unit == scope.unit, "its unit is not that of its first entry")
    demand((scope.frozen_reason is not None) == tally.is_frozen, "it is frozen by no entry, or thawed by none")
    gaps_kept = [(gap.entry, gap.since, gap.until, gap.accepted) for gap in gaps.gaps_of(scope)]
    demand(gaps_kept == tally.unwitnessed, "its gaps are not those of its entries")


def compare_datasets(session: Session, scope_id: str, tally: Tally) -> None:
    """Compare whose records came into the scope, and which, with the entries that say so.

    Where every entry was followed, also what is kept of them to compare later uploads with.
    """
    of_it = select(Dataset.id, Dataset.fingerprint, Dataset.rows, Dataset.owner_id, Dataset.columns).where(
        Dataset.scope_id == scope_id
    )
    kept = {row.id: row for row in session.execute(of_it)}
    for dataset_id, facts in tally.uploads.items():
        row, known = kept.get(dataset_id), (facts.fingerprint, facts.rows, facts.owner)
        demand(row is not None, f"{dataset_id} is not here, where its entry says that it came")
        assert row is not None, "just demanded"
        if tally.before is None and facts.identity is not None:
            same = identities.digest_of(session, dataset_id) == facts.identity
            demand(
                same,
                f"the record of {dataset_id} that later uploads are compared with is gone, or was changed",
            )
        demand((row.fingerprint, row.rows, row.owner_id) == known, f"{dataset_id} is not what its entry says")
        same = facts.columns is None or digest_of(row.columns) == facts.columns
        demand(same, f"{dataset_id} is declared otherwise than its entry says")


def compare_accounts(session: Session, scope_id: str, tally: Tally) -> None:
    """Compare the accounts with what the entries make of them."""
    found = {one.id: one for one in session.execute(select(Account).where(Account.scope_id == scope_id)).scalars()}
    demand(found.keys() == tally.accounts.keys(), "there are accounts that no entry opened, or the other way round")
    for account_id, account in found.items():
        due = tally.accounts[account_id]
        balance = read_slots(account, "spent"), read_slots(account, "reserved")
        demand(balance == (due.spent, due.reserved), f"the balance of {account_id} is not the sum of its entries")
        demand(account.draws == due.draws, f"the draws of {account_id} are not the sum of its entries")
        told = terms_of(account), account.declared, account.principal_id, account.closed_at is not None
        demand(
            told == (due.terms, due.declared, due.principal, due.is_closed),
            f"the terms of {account_id} are not those of its entries",
        )


def compare_charged(session: Session, scope: Scope, tally: Tally) -> None:
    """Compare the sums of what was charged with what the entries charge.

    Event by event where every entry was followed; only what they add up to where the chain was followed from a place
    that was verified before.
    """
    same = totals_of(scope) == tally.totals
    demand(
        same and (tally.before is not None or executed(session, scope.id) == tally.charged),
        "the sums of charged events are not those of its entries",
    )


def jobs_where(session: Session, *conditions: ColumnElement[bool]) -> dict[str, Any]:
    """Return what the database remembers of some jobs that pay for themselves."""
    remembered = (Job.schedule, Job.chunks, Job.chunks_spent, Job.allowance, Job.allowance_spent, Job.draws)
    # A federated job's own row has no place and reserves nothing: its sites' rows pay.
    pays = Job.federation_id.is_(None) | Job.place.is_not(None)
    belongs = (Job.id, Job.scope_id, Job.grant_id, Job.owner_id, Job.dataset_id, Job.finished_at, Job.spec)
    found = session.execute(select(*belongs, *remembered).where(pays, *conditions))
    return {row.id: row for row in found}


def compare_jobs(scope_id: str, due: Mapping[str, JobTally], rows: Mapping[str, Any]) -> None:
    """Compare what the database remembers of jobs with what the entries make of them."""
    remind(due.keys() == rows.keys(), "there are jobs that no entry reserves for, or the other way round")
    for job_id, job in due.items():
        row = rows[job_id]
        payers = {scope_id, row.grant_id or scope_id} if row.scope_id == scope_id else None
        remind(payers == job.held.keys(), f"{job_id} pays from other accounts than its entries say")
        remind(row.owner_id == job.actor, f"{job_id} is another's than its entries say")
        remind(job.dataset == row.dataset_id, f"{job_id} reads other records than its entries say")
        remind(job.is_over == (row.finished_at is not None), f"{job_id} has ended without an entry that ends it")
        same = job.spec is None or digest_of(row.spec) == job.spec
        remind(same, f"the specification that {job_id} remembers is not that of its entries")
        remind(row.schedule == job.schedule.chunks, f"the schedule that {job_id} remembers is not that of its entries")
        remind(row.draws == job.draws, f"the draws that {job_id} remembers are not those of its entries")
        remind(row.chunks_spent == job.paid, f"{job_id} remembers other chunks as paid than its entries")
        remind(row.chunks == job.totals, f"the prices that {job_id} remembers are not those of its schedule")
        remembered = _used(row.allowance), _used(row.allowance_spent)
        remind(
            remembered == (_used(job.allowance), _used(job.taken)),
            f"the allowance that {job_id} remembers is not that of its entries",
        )


def _used(amounts: Mapping[str, list[int]]) -> dict[str, list[int]]:
    return {account: amount for account, amount in amounts.items() if any(amount)}
