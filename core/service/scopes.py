"""Use cases of scopes: budgets, the ledger's lines, verification, freezing and corrections."""

from fractions import Fraction

from sqlalchemy.orm import Session

from core.base.errors import FieldError, Forbidden, NotFound
from core.db import reads as queries
from core.db.reads import Viewer
from core.db.tables import Entry, Scope
from core.ledger import corrections, gaps, ledger
from core.privacy.amounts import write_figure
from core.service.budgets import budget_view, gap_views
from core.service.context import Caller, Context
from core.service.views import ScopeView, rfc3339
from farthing.schemas.budgets import BudgetView
from farthing.schemas.ledger import EntryView, HeadView, VerificationView


def viewer(caller: Caller) -> Viewer:
    """Return a caller as the store's queries know one."""
    return Viewer(caller.id, caller.role)


def find(session: Session, caller: Caller, scope_id: str) -> Scope:
    """Return a scope that exists for the caller.

    Raises:
        NotFound: it does not.
    """
    found = queries.scope(session, viewer(caller), scope_id)
    if found is None:
        raise NotFound("There is no such scope.")
    return found


def find_own(session: Session, caller: Caller, scope_id: str) -> Scope:
    """Return a scope that the caller answers for: its owner, or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
    """
    found = find(session, caller, scope_id)
    if found.owner_id != caller.id and caller.role != "admin":
        raise Forbidden("Only the owner of this scope, or an admin, may do that.")
    return found


def get(context: Context, caller: Caller, scope_id: str) -> ScopeView:
    """Return a scope.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        return _view(session, caller, scope)


def _view(session: Session, caller: Caller, scope: Scope) -> ScopeView:
    terms = ledger.balance(session, scope.id).terms
    return ScopeView(
        id=scope.id,
        owner=scope.owner_id,
        unit=scope.unit,
        adjacency=scope.adjacency,
        units=scope.units,
        epsilon=write_figure(terms.epsilon),
        delta=write_figure(terms.delta),
        orders=list(terms.orders),
        weights=[str(weight) for weight in terms.weights],
        caps_nano=list(terms.caps_nano),
        approval=scope.approval,
        frozen=gaps.why_stopped(scope),
        unwitnessed=gap_views(scope),
        entries=scope.seq,
        head=scope.head,
        datasets=list(queries.datasets_of(session, scope.id, viewer(caller))),
        created_at=rfc3339(scope.created_at),
    )


def budget(context: Context, caller: Caller, scope_id: str) -> BudgetView:
    """Return what is left of a scope's budget.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        return budget_view(context, session, find(session, caller, scope_id), caller.id)


def head(context: Context, caller: Caller, scope_id: str) -> HeadView:
    """Return where a scope's chain stands.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        return HeadView(scope=scope.id, seq=scope.seq, head=scope.head)


def entries(context: Context, caller: Caller, scope_id: str, after: int, limit: int) -> list[EntryView]:
    """Return up to `limit` lines of a scope's chain above `after`, oldest first; they hold no personal data.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        return [entry_view(entry) for entry in queries.entries(session, scope.id, after, limit)]


def entry_view(entry: Entry) -> EntryView:
    """Return a line of a ledger as the API shows it."""
    return EntryView(
        seq=entry.seq,
        kind=entry.kind,
        job=entry.job_id,
        attempt=entry.attempt,
        chunk=entry.chunk,
        body=entry.body,
        prev_hash=entry.prev_hash,
        hash=entry.hash,
        created_at=rfc3339(entry.created_at),
    )


def verify(context: Context, caller: Caller, scope_id: str) -> VerificationView:
    """Recompute a scope's chain and sums, beside requests; a mismatch freezes the scope.

    Where that takes long, the answer comes before its end, with the outcome of the last time. A later request gets the
    new outcome once it is there.

    Raises:
        NotFound: it does not exist for the caller.
        LedgerBusy: the database went away meanwhile.
    """
    with context.database.read() as session:
        find(session, caller, scope_id)
    outcome, goes_on = context.passes.ask(context.database, scope_id, caller.id)
    with context.database.read() as session:
        gaps_now = gap_views(find(session, caller, scope_id))
    found = None if outcome is None else outcome.found
    return VerificationView(
        scope=scope_id,
        ok=found and found.ok,
        entries=found and found.entries,
        head=found and found.head,
        first_bad=found and found.first_bad_seq,
        reason=found and found.reason,
        unwitnessed=gaps_now,
        running=goes_on,
        verified_at=outcome and rfc3339(outcome.at),
    )


def freeze(context: Context, caller: Caller, scope_id: str, reason: str) -> ScopeView:
    """Stop a scope from admitting jobs: its owner, an auditor or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: the caller is none of these.
    """

    def work(session: Session) -> ScopeView:
        scope = find(session, caller, scope_id)
        if scope.owner_id != caller.id and caller.role not in {"auditor", "admin"}:
            raise Forbidden("Only who owns this scope's data, an auditor or an admin may freeze it.")
        corrections.freeze(session, scope_id, reason, caller.id)
        return _view(session, caller, find(session, caller, scope_id))

    return context.database.transaction(work)


def unfreeze(context: Context, caller: Caller, scope_id: str, reason: str) -> ScopeView:
    """Let a frozen scope admit jobs again: its owner or an admin.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
    """

    def work(session: Session) -> ScopeView:
        find_own(session, caller, scope_id)
        corrections.unfreeze(session, scope_id, reason, caller.id)
        return _view(session, caller, find(session, caller, scope_id))

    return context.database.transaction(work)


def accept(context: Context, caller: Caller, scope_id: str, entry: int, reason: str) -> ScopeView:
    """Let a scope go on although entries may be missing: its owner alone can accept that.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: nothing waits to be accepted.
        Invalid: another entry does.
    """

    def work(session: Session) -> ScopeView:
        if find(session, caller, scope_id).owner_id != caller.id:
            raise Forbidden("Only the owner of this scope can accept that entries of its ledger may be missing.")
        gaps.accept(session, scope_id, entry, reason, caller.id)
        return _view(session, caller, find(session, caller, scope_id))

    return context.database.transaction(work)


def adjust(context: Context, caller: Caller, scope_id: str, job_id: str, reason: str) -> HeadView:
    """Give back a job's charge by a visible entry, for attempts that never opened the records; once per charge.

    Raises:
        NotFound: scope or job does not exist for the caller.
        Forbidden: it is somebody else's scope.
        Conflict: the records were opened, or the charge was corrected before.
    """

    def work(session: Session) -> HeadView:
        find_own(session, caller, scope_id)
        job = queries.job(session, viewer(caller), job_id)
        if job is None or job.scope_id != scope_id:
            raise NotFound("There is no such job in this scope.", FieldError("/job", "name a job of this scope"))
        corrections.compensate(session, scope_id, job_id, Fraction(1), reason, caller.id)
        scope = find(session, caller, scope_id)
        return HeadView(scope=scope.id, seq=scope.seq, head=scope.head)

    return context.database.transaction(work)
