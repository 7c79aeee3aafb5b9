"""The state of a chain at one of its entries as a text, so that another process goes on from there.

It is a function of the entries up to there and of nothing else. The hash of the last of them commits to all of them: a
state that was right once stays right, even if its rows change later.
"""

import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter

from core.base.canonical import canonical
from core.ledger.schedules import Schedule
from core.ledger.tally import AccountTally, JobTally, Tally, Uploaded
from core.privacy.budget import Terms
from core.privacy.events import EVENT
from core.privacy.totals import Totals

BLOCK: Final = 128
"""Of every so many entries the hash is kept, so that any entry can be hashed again between two that are known."""
_PLAIN: Final = (
    "seq",
    "at",
    "version",
    "owner",
    "units",
    "adjacency",
    "unit",
    "is_frozen",
    "pending",
    "unwitnessed",
    "corrected",
    "withheld",
    "approval",
    "reconciled",
)
_OF_JOBS: Final = (
    "actor",
    "dataset",
    "held",
    "charged",
    "left",
    "paid",
    "attempt",
    "due",
    "is_over",
    "is_compensated",
    "draws",
    "runs",
    "readings",
    "reader",
    "may_have_read",
    "spec",
)
_FORM: Final = 2
"""Of the text. The first form, of 0.1.0, has no number: all its entries are of version 1."""
_MEMBERS: Final = {*_PLAIN, "form", "scope", "head", "heads", "accounts", "uploads", "live", "compensations", "totals"}
_MEMBERS_OF_JOBS: Final = {*_OF_JOBS, "schedule", "retry_allowance", "drawn", "terms"}
_ACCOUNTS: Final = TypeAdapter(dict[str, AccountTally])
_TERMS: Final = TypeAdapter(dict[str, Terms])


class UnreadableStateError(ValueError):
    """A state whose text has another form than those that this code reads."""


@dataclass(frozen=True)
class State:
    """The state of a chain at one of its entries.

    Attributes:
        tally: the state itself; going on from here changes it.
        head: the hash of the last entry.
        heads: the hashes of the entries `BLOCK`, 2 `BLOCK`, ..., as far as they go.
    """

    tally: Tally
    head: str
    heads: list[str]

    def text(self) -> str:
        """Return it as canonical JSON."""
        tally = self.tally
        told: dict[str, Any] = {name: getattr(tally, name) for name in _PLAIN}
        told |= {
            "form": _FORM,
            "scope": tally.scope,
            "head": self.head,
            "heads": [head.removeprefix("sha256:") for head in self.heads],
            "accounts": _ACCOUNTS.dump_python(tally.accounts, mode="json"),
            "uploads": tally.uploads,
            "live": {job: _job_text(one) for job, one in tally.live.items()},
            "compensations": list(tally.compensations),
            "totals": [tally.totals.gaussian, tally.totals.other, tally.totals.unpriced],
        }
        return canonical(told)


def read_state(text: str) -> State:
    """Return a state from its text. The caller has made sure whose text it is: no figure is checked here.

    Raises:
        UnreadableStateError: it has a member that this code does not know, or lacks one. Such a member may decide
            whether an entry follows, so that no part of the text is of use.
    """
    told: dict[str, Any] = json.loads(text)
    if "form" not in told:
        told = _completed(told)
    known = told["form"] == _FORM and told.keys() == _MEMBERS
    if not known or any(job.keys() != _MEMBERS_OF_JOBS for job in told["live"].values()):
        raise UnreadableStateError
    tally = Tally(told["scope"])
    for name in _PLAIN:
        setattr(tally, name, told[name])
    tally.unwitnessed = [tuple(gap) for gap in told["unwitnessed"]]
    tally.accounts = _ACCOUNTS.validate_python(told["accounts"])
    tally.uploads = {dataset: Uploaded(*facts) for dataset, facts in told["uploads"].items()}
    tally.live = {job: _read_job(one) for job, one in told["live"].items()}
    tally.compensations = deque(told["compensations"], maxlen=tally.compensations.maxlen)
    # The text has the sums of charges, not the counts of events: counting goes on from these.
    tally.before = Totals(*told["totals"])
    return State(tally, told["head"], [f"sha256:{head}" for head in told["heads"]])


def _completed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a text of the first form in the present one: the state that the rules of version 1 lead to.

    0.1.0 read entries of version 1 alone. These name no reader, no runs, no approval and no specification, and a job of
    theirs may have read records if it has paid; a live job was never charged whole. Digests of columns are null, which
    `Uploaded` adds.
    """
    unsaid = {"reader": 0, "runs": 1, "readings": 0, "spec": None}
    live = {job: {**one, **unsaid, "may_have_read": one["paid"] > 0} for job, one in told["live"].items()}
    return {**told, "form": _FORM, "version": 1, "withheld": {}, "approval": None, "live": live}


def _job_text(job: JobTally) -> dict[str, Any]:
    """Return a live job JSON-ready."""
    return {name: getattr(job, name) for name in _OF_JOBS} | {
        "schedule": job.schedule.runs,
        "retry_allowance": job.schedule.retry_allowance,
        "drawn": [[times, EVENT.dump_python(event, mode="json")] for event, times in job.drawn.items()],
        "terms": _TERMS.dump_python(job.terms, mode="json"),
    }


def _read_job(told: Mapping[str, Any]) -> JobTally:
    events = [EVENT.validate_python(event) for times, event in told["schedule"] for _ in range(times)]
    return JobTally(
        # This schedule only prices; the job's draws are a member of their own.
        schedule=Schedule(events, told["retry_allowance"], draws=0),
        drawn=Counter({EVENT.validate_python(event): times for times, event in told["drawn"]}),
        terms=_TERMS.validate_python(told["terms"]),
        **{name: told[name] for name in _OF_JOBS},
    )
