"""The retry allowance: a reservation beside the schedule, which pays again for lost chunks.

A chunk is lost when it was paid for and nothing that was kept has its answers in it: its worker is gone, and nobody can
say whether it was read. Its payment stands, so whoever draws it again pays it again. The allowance is a number of times
the job's most expensive chunk at each order, frozen at reserve. A repeat takes the chunk's own price, rounded up by
itself, for inside a prefix of the schedule a chunk may be charged a nano-nat less than that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.db.tables import Account, Job
from core.ledger.accounts import difference, terms_of, total_at
from core.ledger.bodies import SLOTS, slots
from core.privacy.budget import Terms
from core.privacy.events import EVENT, Disjoint, Event
from core.privacy.renyi import cost_nano


def promised(schedule: Sequence[Event], times: int, terms: Terms) -> list[int]:
    """Return `times` the most expensive chunk of a schedule at each order of an account, in its slots."""
    prices = [cost_nano(event, terms.orders) for event in dict.fromkeys(schedule)]
    return slots([times * max(amounts) for amounts in zip(*prices, strict=True)])


def dearest(schedule: Iterable[Event]) -> Event:
    """Return an event that costs, at every order, what the most expensive of these costs there."""
    distinct = tuple(dict.fromkeys(schedule))
    return distinct[0] if len(distinct) == 1 else Disjoint(events=distinct)


def again(job: Job, account: Account, chunks: Iterable[int]) -> list[int]:
    """Return what an account pays for some chunks of a job a second time, in its slots."""
    orders = terms_of(account).orders
    prices = [cost_nano(EVENT.validate_python(job.schedule[chunk]), orders) for chunk in chunks]
    # The zeros keep one sum per order where there are no chunks.
    return slots([sum(amounts) for amounts in zip((0,) * len(orders), *prices, strict=True)])


def rest(job: Job, account_id: str) -> list[int]:
    """Return what is left of a job's allowance in one account."""
    return difference(_of(job.allowance, account_id), _of(job.allowance_spent, account_id))


def take(job: Job, taken: Mapping[str, Sequence[int]]) -> None:
    """Count what was paid out of a job's allowance, by account."""
    before = {account_id: _of(job.allowance_spent, account_id) for account_id in taken}
    sums = {
        account_id: [one + more for one, more in zip(before[account_id], amount, strict=True)]
        for account_id, amount in taken.items()
    }
    # A new dict, for SQLAlchemy does not notice a change inside a JSON column.
    job.allowance_spent = {**job.allowance_spent, **sums}


def held(job: Job, account_id: str) -> list[int]:
    """Return all that a job still has reserved in one account: chunks not paid yet, and the rest of its allowance."""
    unpaid = difference(total_at(job, account_id, len(job.schedule)), total_at(job, account_id, job.chunks_spent))
    return [one + other for one, other in zip(unpaid, rest(job, account_id), strict=True)]


def charged(job: Job, account_id: str) -> list[int]:
    """Return all that a job has spent in one account: chunks, and repeats."""
    paid = total_at(job, account_id, job.chunks_spent)
    return [one + other for one, other in zip(paid, _of(job.allowance_spent, account_id), strict=True)]


def repeats_left(job: Job, account: Account) -> int:
    """Return how many of the most expensive chunk the rest of an allowance pays for."""
    once = promised([EVENT.validate_python(event) for event in job.schedule], 1, terms_of(account))
    pairs = zip(rest(job, account.id), once, strict=True)
    # Unused slots, and chunks without cost, have price 0.
    return min((left // price for left, price in pairs if price), default=0)


def _of(amounts: Mapping[str, Any], account_id: str) -> list[int]:
    """Return an account's slots, zeros where the job has promised or taken nothing there."""
    return list(amounts.get(account_id, [0] * SLOTS))
