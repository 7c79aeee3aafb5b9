"""A job that has ended, long ago perhaps: its entries hashed again, and what the database remembers of it compared."""

from typing import Any

from core.db.tables import Entry, Job
from core.ledger import kinds
from core.ledger.bodies import SLOTS, Body
from core.ledger.digests import digest_of
from core.ledger.remembered import remind
from core.ledger.rereading import Rereader
from core.ledger.statements import Statement
from core.ledger.tally import Tally, minus, plus


def compare_ended(rereader: Rereader, tally: Tally, job: Job, said: Statement) -> None:
    """Demand that a job's entries are all those of the chain that are about it, and that its row says what they say.

    Args:
        rereader: of its scope's chain.
        tally: the sums of the chain.
        job: the row.
        said: the entries as they are found now.

    Raises:
        BrokenChain: an entry was changed, is missing or was added, or the row says something else.
        ValueError, KeyError, TypeError, AttributeError: the row is no entry.
    """
    remind(job.scope_id == tally.scope and bool(said.entries), f"{job.id} is of another scope than its entries say")
    bodies = [kinds.read(entry.body) for entry in said.entries]
    first, ends = bodies[0], [body for body in bodies if isinstance(body, kinds.Settle | kinds.Charge)]
    remind(
        isinstance(first, kinds.Reserve) and bool(ends), f"{job.id} has no entry that reserves, or none that ends it"
    )
    assert isinstance(first, kinds.Reserve), "just demanded"
    # These may follow the job's end by thousands of entries; the tally has their numbers.
    later = {*tally.withheld.get(job.id, ()), *filter(None, [tally.corrected.get(job.id)])}
    due = sorted(later.union(rereader.follow(first.seq, ends[-1].seq, job.id)))
    remind(due == [entry.seq for entry in said.entries], f"entries of {job.id} are missing, or are another job's")
    for entry, body in zip(said.entries, bodies, strict=True):
        _confirm(rereader, entry, body)
    _compare_row(job, first, bodies)
    _compare_end(job, ends[-1])


def _confirm(rereader: Rereader, entry: Entry, body: Body) -> None:
    rereader.confirm(entry)
    told = (body.seq, body.kind, body.job, body.attempt, body.chunk)
    kept = (entry.seq, entry.kind, entry.job_id, entry.attempt, entry.chunk)
    remind(told == kept, "an entry's columns say something else than its body")


def _compare_end(job: Job, end: kinds.Settle | kinds.Charge) -> None:
    """Compare what became of a job with the reason of the entry that ended it."""
    is_state = isinstance(end, kinds.Settle) and end.reason in ("succeeded", "cancelled", "expired")
    due = (end.reason, None) if is_state else ("failed", end.reason)
    remind((job.state, job.error_code) == due, f"{job.id} has ended otherwise than its entries say")


def _compare_row(job: Job, first: kinds.Reserve, bodies: list[Body]) -> None:
    """Compare a job's owner, draws and cost with its entries; chunks that it never drew cost nothing."""
    payers = {job.scope_id, job.grant_id or job.scope_id}
    remind(payers == first.accounts.keys(), f"{job.id} pays from other accounts than its entries say")
    remind(job.owner_id == first.actor, f"{job.id} is another's than its entries say")
    remind(first.dataset == job.dataset_id, f"{job.id} reads other records than its entries say")
    same = first.spec is None or digest_of(job.spec) == first.spec
    remind(same, f"the specification that {job.id} remembers is not that of its entries")
    remind(job.finished_at is not None, f"{job.id} has ended, and its row does not say so")
    told = first.model_dump(mode="json")["schedule"]
    events = [event for times, event in told for _ in range(times)]
    remind(job.schedule == events, f"the schedule that {job.id} remembers is not that of its entries")
    remind(job.draws == first.draws, f"the draws that {job.id} remembers are not those of its entries")
    spends = [body for body in bodies if isinstance(body, kinds.Spend)]
    charges = [body for body in bodies if isinstance(body, kinds.Charge)]
    paid = len(events) if charges else max((body.chunk + 1 for body in spends if body.chunk is not None), default=0)
    remind(job.chunks_spent == paid, f"{job.id} remembers other chunks as paid than its entries")
    for account in payers:
        _compare_amounts(job, account, first, spends, charged=bool(charges))


def _compare_amounts(job: Job, account: str, first: kinds.Reserve, spends: list[kinds.Spend], *, charged: bool) -> None:
    """Compare prices and allowance in one account with what the entries moved there."""
    totals: list[list[int]] = job.chunks[account]
    promised, taken = _of(job.allowance, account), _of(job.allowance_spent, account)
    held = plus(totals[-1], promised)
    same = list(first.accounts[account].reserved) == held
    again = [0] * SLOTS
    for spend in spends:
        assert spend.chunk is not None, "a payment is of a chunk"
        moved = list(spend.accounts[account].spent)
        if spend.again:
            again = plus(again, moved)
        else:
            before = totals[spend.chunk - 1] if spend.chunk else [0] * SLOTS
            same = same and moved == plus(totals[spend.chunk], minus(before))
    same = same and taken == (promised if charged else again)
    remind(same, f"the prices or the allowance that {job.id} remembers are not those of its entries")


def _of(amounts: dict[str, Any], account: str) -> list[int]:
    return list(amounts.get(account, [0] * SLOTS))
