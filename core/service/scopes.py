"""Use cases of scopes: budgets, the ledger's lines, verification, freezing, grants and corrections."""

from collections.abc import Sequence
from fractions import Fraction

from sqlalchemy.orm import Session

from core.errors import FieldError, Forbidden, Invalid, NotFound, PreconditionFailed
from core.privacy.amounts import BudgetRequest, write_figure
from core.privacy.budget import Terms, renewed
from core.service.budgets import budget_view, gap_views, grant_view
from core.service.context import Caller, Context
from core.service.views import (
    BudgetView,
    EntryView,
    GrantView,
    HeadView,
    ScopeView,
    VerificationView,
    rfc3339,
)
from core.store import queries
from core.store.ledger import corrections, gaps, ledger
from core.store.ledger.accounts import balance_of
from core.store.ledger.verification import freeze_unverified
from core.store.ledger.verification import verify as verify_chain
from core.store.queries import Viewer
from core.store.tables import Account, Entry, Scope


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
        return budget_view(session, find(session, caller, scope_id), caller.id)


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
        return [_entry(entry) for entry in queries.entries(session, scope.id, after, limit)]


def _entry(entry: Entry) -> EntryView:
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
    """Recompute a scope's chain and sums in one snapshot; a mismatch freezes the scope.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        found = verify_chain(session, scope.id)
        frozen, told = scope.frozen_reason is not None, gap_views(scope)
    if not found.ok and not frozen:
        freeze_unverified(context.database, scope_id, found.reason or "", caller.id)
    return VerificationView(
        scope=scope_id,
        ok=found.ok,
        entries=found.entries,
        head=found.head,
        first_bad=found.first_bad_seq,
        reason=found.reason,
        unchecked=list(found.unchecked),
        unwitnessed=told,
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

    return context.database.run(work)


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

    return context.database.run(work)


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

    return context.database.run(work)


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

    return context.database.run(work)


def grants(context: Context, caller: Caller, scope_id: str) -> list[GrantView]:
    """Return a scope's grants: all of them for its owner, auditors and admins, otherwise the caller's own.

    Raises:
        NotFound: it does not exist for the caller.
    """
    with context.database.read() as session:
        scope = find(session, caller, scope_id)
        everything = scope.owner_id == caller.id or viewer(caller).sees_everything
        found: Sequence[Account] = queries.grants(session, scope_id)
        return [grant_view(grant) for grant in found if everything or grant.principal_id == caller.id]


def get_grant(context: Context, caller: Caller, scope_id: str, principal_id: str) -> GrantView:
    """Return one grant.

    Raises:
        NotFound: it does not exist for the caller.
    """
    found = [grant for grant in grants(context, caller, scope_id) if grant.principal == principal_id]
    if not found:
        raise NotFound("There is no such grant.")
    return found[0]


def set_grant(
    context: Context,
    caller: Caller,
    scope_id: str,
    principal_id: str,
    request: BudgetRequest,
    versions: frozenset[str] | None,
) -> tuple[GrantView, bool]:
    """Give a principal an own ceiling in a scope, or change it; return it and whether it is new.

    Args:
        context: the service.
        caller: the scope's owner, or an admin.
        scope_id: the scope.
        principal_id: who gets the ceiling.
        request: the ceiling.
        versions: what the caller believes the grant to be (If-Match); None: whatever it is.

    Raises:
        NotFound: scope or principal do not exist.
        Forbidden: it is somebody else's scope.
        PreconditionFailed: the grant is not, or no longer, as the caller believes.
        Conflict: the ceiling lies below what was used, or its terms do not suit what was used.
    """

    def work(session: Session) -> tuple[GrantView, bool]:
        scope = find_own(session, caller, scope_id)
        if queries.principal(session, principal_id) is None:
            raise NotFound("There is no such principal.")
        ledger.lock_scope(session, scope_id)
        present = queries.grant(session, scope_id, principal_id)
        if versions is not None:
            version = None if present is None else grant_view(present).version
            if version is None or not versions & {version, "*"}:
                raise PreconditionFailed("The grant has changed; read it again.")
        terms = _terms(scope, present, request)
        account = ledger.set_grant(
            session, scope_id, principal_id, terms, request.model_dump(mode="json"), actor=caller.id
        )
        return grant_view(account), present is None

    return context.database.run(work)


def _terms(scope: Scope, present: Account | None, request: BudgetRequest) -> Terms:
    """Return a grant's terms: fresh ones, or a new epsilon on the fixed orders of a grant that was used."""
    try:
        fresh = request.terms(scope.units)
    except Invalid as refusal:
        fields = tuple(FieldError(field.pointer.removeprefix("/budget"), field.detail) for field in refusal.fields)
        raise Invalid(refusal.detail, *fields) from refusal
    if present is None:
        return fresh
    held = balance_of(present)
    used = any(held.spent) or any(held.reserved)
    if not used or fresh.delta != held.terms.delta:
        return fresh
    return renewed(held.terms, fresh.epsilon)
