"""An owner's earlier uploads by their ledgers, not by rows that somebody may have taken away.

Each upload's entry commits to what is kept of it, sealed (`core.ledger.identities.digest_of`). A writer into the
database could otherwise delete that, or call its records gone to another scope, and have the same records uploaded for
a second budget. Nothing here depends on what the records say.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.base.errors import ScopeFrozen
from core.db.tables import Dataset, Scope
from core.ledger import identities
from core.ledger.rounds import freeze_unverified
from core.ledger.witness.trusting import Trusted, follow, leave_mark
from core.service import witnessing
from core.service.context import Context

GONE = "the record of earlier uploads that later ones are compared with is gone, or was changed"


@dataclass(frozen=True)
class Earlier:
    """Earlier uploads in the ledgers of an owner's scopes.

    Attributes:
        due: the digest of what is kept, by dataset; without those of which nothing is kept.
        left: datasets whose records may be in another scope now: the witness recorded their erasure, and nothing was
            ever charged to their scope.
    """

    due: Mapping[str, str]
    left: Collection[str]

    def refuse_if_changed(self, session: Session, known: Collection[str]) -> None:
        """Refuse an upload that cannot be compared with all earlier ones, in the snapshot in which it is compared.

        Args:
            session: the snapshot, or the transaction that stores the upload.
            known: the owner's datasets that it is about to be compared with.

        Raises:
            ScopeFrozen: something is gone, or was changed.
        """
        for dataset_id, digest in self.due.items():
            if dataset_id not in known or identities.digest_of(session, dataset_id) != digest:
                raise ScopeFrozen(_text([dataset_id]))


def earlier(context: Context, owner_id: str) -> Earlier:
    """Return what the ledgers say of an owner's uploads; a scope whose rows say something else is frozen.

    Raises:
        ScopeFrozen: that of an earlier upload does not verify, or what is kept of one is gone or was changed.
        LedgerBusy, LedgerFrozen: the witness does not answer, or is gone.
    """
    with context.database.read() as session:
        held = select(Dataset.scope_id).where(Dataset.owner_id == owner_id, Dataset.scope_id.is_not(None))
        own = select(Scope.id, Scope.seq).where((Scope.owner_id == owner_id) | Scope.id.in_(held))
        heads = {row.id: row.seq for row in session.execute(own)}
    if not heads:
        return Earlier({}, ())
    # The witness before the snapshot: all that it holds must be found in there.
    trust, erased = witnessing.ask(context, heads), witnessing.erased(context)
    with context.database.read() as session:
        chains = {scope_id: follow(session, scope_id, trust) for scope_id in heads}
        bad = {scope_id: one.found.reason or "" for scope_id, one in chains.items() if not one.found.ok}
        due = {scope_id: _due(one) for scope_id, one in chains.items() if scope_id not in bad}
        for scope_id, digests in due.items():
            if any(identities.digest_of(session, dataset_id) != digest for dataset_id, digest in digests.items()):
                bad[scope_id] = GONE
    # Outside the snapshot, in which nothing can be written.
    for scope_id, reason in bad.items():
        freeze_unverified(context.database, scope_id, reason, "verifier")
    if bad:
        raise ScopeFrozen(_text(sorted(bad)))
    for one in chains.values():
        leave_mark(context.database, one, trust.keys)
    left = {dataset_id for one in chains.values() if _is_unpaid(one) for dataset_id in one.state.tally.uploads}
    return Earlier({name: digest for digests in due.values() for name, digest in digests.items()}, left & erased)


def _due(one: Trusted) -> dict[str, str]:
    uploads = one.state.tally.uploads.items()
    return {dataset_id: facts.identity for dataset_id, facts in uploads if facts.identity is not None}


def _is_unpaid(one: Trusted) -> bool:
    """Say whether nothing was ever charged to a scope, whatever was given back since."""
    tally = one.state.tally
    return not (any(tally.accounts[tally.scope].spent) or tally.corrected or tally.reconciled)


def _text(names: Collection[str]) -> str:
    return (
        f"Rows of the database that your earlier uploads are compared with are gone or were changed "
        f"({', '.join(names)}), so that nobody can say whether these records have a budget already. Nothing was "
        "stored. The operator restores a backup from before; `farthing verify` says since which entry."
    )
