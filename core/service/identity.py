"""Whether an upload's records have a budget already: compared with its owner's earlier uploads, and with nobody else's.

The same records join the scope that they are in, or leave it while no answer about them was released (decision 23).
Where more than half of the rows are in another scope, or where that cannot be seen, the owner joins it or says why
these are other people (decision 31). Only the owner gets any of this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.orm import Session

from core.base.errors import Conflict, DuplicateDataset, FieldError, Forbidden, NearCopy, NotReady
from core.data.datasets import UNPUBLISHED, Metadata
from core.db.tables import Dataset, Scope
from core.ledger import identities
from core.ledger.claims import refuse_if_frozen
from core.ledger.identities import Known, Overlap, OwnedUpload, OwnerKeys
from core.records import removals
from core.records.datasets import owner_name
from core.records.decoding.likeness import Summarized, are_same, best_set, counts_of, shared, tag_of
from core.records.encryption import new_key
from core.records.master_key import load_master_keys
from core.service.context import Caller, Context
from core.service.datasets import find, refuse_elsewhere
from core.service.earlier import Earlier
from farthing.schemas.datasets import IdentityView, OverlapView

MOST_OVERLAPS: Final = 50
"""That are kept of one upload, the largest shares first."""


@dataclass(frozen=True)
class _Found:
    """The result of comparing an upload with an earlier one."""

    same: bool = False
    share: float | None = None
    """Of the rows of the smaller one, above a half; None: nothing to speak of."""


@dataclass
class Comparison:
    """An upload beside its owner's earlier ones; those that were compared once are not compared again."""

    keys: OwnerKeys
    owner_id: str
    site: str
    digest: str
    earlier: Earlier
    records: Summarized | None = None
    """None before the file was decoded: then the same bytes are all that is found."""
    _found: dict[str, _Found] = field(default_factory=dict)

    def check(self, session: Session, metadata: Metadata) -> tuple[list[Known], list[Overlap]]:
        """Refuse records that have a budget already.

        Returns:
            The datasets whose scope these records leave, and those that have more than half of the rows in common.

        Raises:
            DuplicateDataset: use the dataset that there is, or join its scope.
            NearCopy: join the scope, or state why these are other people.
            ScopeFrozen: the record of an earlier upload is gone, or was changed.
            LedgerFrozen: the ledger is behind its witness, and does not know what was paid.
        """
        same: list[Known] = []
        near: list[tuple[Known, float | None]] = []
        known = identities.known(session, self.owner_id, self.site)
        self.earlier.refuse_if_changed(session, {one.dataset_id for one in known})
        for one in known:
            # Both must say so, for anybody who writes into the database can set the row's note.
            if one.moved and one.dataset_id in self.earlier.left:
                continue
            found = self._compare(session, one) if one.comparable else None
            if found is not None and found.same:
                same.append(one)
            elif found is None or found.share is not None:
                near.append((one, None if found is None else found.share))
        leaving = _refuse_same(session, metadata, same)
        if self.records is not None:
            _refuse_near(session, metadata, near)
        overlaps = [Overlap(dataset=one.dataset_id, scope=one.scope_id, share=share) for one, share in near if share]
        return leaving, sorted(overlaps, key=lambda one: -one.share)[:MOST_OVERLAPS]

    def keep(self, session: Session, dataset: Dataset, metadata: Metadata, overlaps: Sequence[Overlap]) -> None:
        """Store what is known of the upload, once it is a dataset."""
        assert self.records is not None, "it was decoded"
        rounded = tuple(one.model_copy(update={"share": round(min(one.share, 1.0), 2)}) for one in overlaps)
        kept = OwnedUpload(
            digest=self.digest,
            summary=self.records.summary,
            overlaps=rounded,
            distinct_because=metadata.distinct_because,
        )
        identities.keep(session, self.keys, dataset, kept, self.records)

    def _compare(self, session: Session, one: Known) -> _Found:
        found = self._found.get(one.dataset_id)
        if found is None:
            kept = identities.read(session, self.keys, one.dataset_id)
            assert kept is not None, "it is comparable"
            if kept.digest == self.digest:
                found = _Found(same=True)
            elif self.records is None:
                # Not kept: the same comparison follows once the file is decoded.
                return _Found()
            elif are_same(kept.summary, self.records.summary):
                found = _Found(same=True)
            else:
                found = _Found(share=self._share(session, one.dataset_id, kept))
            self._found[one.dataset_id] = found
        return found

    def _share(self, session: Session, dataset_id: str, kept: OwnedUpload) -> float | None:
        assert self.records is not None, "it was decoded"
        tag = best_set(self.records.summary.spreads, kept.summary.spreads)
        if tag is None:
            return None
        theirs = counts_of(identities.counts(session, self.keys, dataset_id, tag))
        (ours,) = (one.content for one in self.records.counts if tag_of(one.columns) == tag)
        return shared(counts_of(ours), theirs)


def owner_keys(context: Context, owner_id: str) -> OwnerKeys:
    """Return an owner's keys at this site, made at their first upload.

    Raises:
        NotReady: the master key is missing, or not the one that the owner's key is under; or that one is gone.
    """
    site, masters, name = context.settings.site, load_master_keys(context.settings), owner_name(owner_id)
    with context.database.read() as session:
        wrapped = identities.wrapped_key(session, owner_id, site)
        lost = wrapped is None and identities.is_any_kept(session, owner_id, site)
    if lost:
        raise NotReady(
            "The key under which this owner's uploads are compared with one another is gone from the database. Nothing "
            "was stored; the operator restores table identity_keys from a backup."
        )
    if wrapped is None:
        # Read again below: of two first uploads one key is kept.
        context.database.transaction(identities.add_key, owner_id, site, masters.current.wrap(name, new_key()))
        with context.database.read() as session:
            wrapped = identities.wrapped_key(session, owner_id, site)
    assert wrapped is not None, "it was just made"
    return OwnerKeys(masters.unwrap(name, wrapped))


def published(metadata: Metadata) -> dict[str, object]:
    """Return a declaration as it is kept with the dataset, JSON-ready: without what is the owner's alone."""
    return metadata.model_dump(mode="json", exclude=UNPUBLISHED)


def identity(context: Context, caller: Caller, dataset_id: str) -> IdentityView:
    """Return what a dataset had in common with its owner's earlier ones when it came, and what they stated.

    Raises:
        NotFound: it does not exist for the caller.
        Forbidden: it is somebody else's.
        Conflict: nothing was kept: it has no records yet, or they came before; or another site has the key.
    """
    with context.database.read() as session:
        found = find(session, caller, dataset_id)
        if found.owner_id != caller.id:
            raise Forbidden("Only the owner of this dataset sees what it has in common with others of theirs.")
        refuse_elsewhere(context, found, "ask for this")
        sealed_at = identities.site_of(session, dataset_id)
    if sealed_at is None or sealed_at != context.settings.site:
        raise Conflict(f"This dataset is {found.state}: nothing was compared here.")
    keys = owner_keys(context, caller.id)
    with context.database.read() as session:
        kept = identities.read(session, keys, dataset_id)
    assert kept is not None, "it is never removed"
    overlaps = [OverlapView(dataset=one.dataset, scope=one.scope, share=one.share) for one in kept.overlaps]
    return IdentityView(dataset=dataset_id, overlaps=overlaps, distinct_because=kept.distinct_because)


def _refuse_same(session: Session, metadata: Metadata, same: Sequence[Known]) -> list[Known]:
    """Refuse the same records, unless declared otherwise in their scope, or leaving one without a released answer."""
    columns = metadata.model_dump(mode="json")["columns"]
    for one in same:
        if removals.is_any(session, one.dataset_id):
            raise DuplicateDataset(
                f"A record was removed from your dataset {one.dataset_id}, and this file brings it back. Empty its row "
                f"in the file, or leave the row out, and send that in scope {one.scope_id}.",
                FieldError("/file", "empty the row that was removed"),
                FieldError("/scope", f'give "{one.scope_id}", and leave budget out'),
                dataset=one.dataset_id,
                scope=one.scope_id,
            )
        # Other columns in the same scope spend the same budget: that is only another declaration.
        if one.scope_id == metadata.scope and one.columns == columns and one.state == "ready":
            raise DuplicateDataset(
                f"These records, with these columns, are already your dataset {one.dataset_id} in scope "
                f"{one.scope_id}: use that one.",
                dataset=one.dataset_id,
                scope=one.scope_id,
            )
    leaving = [one for one in same if one.scope_id != metadata.scope]
    if leaving:
        # A ledger behind its witness may lack the very payment that binds these records.
        refuse_if_frozen(session)
    for one in leaving:
        if _is_free(session, one.scope_id):
            continue
        left = identities.unerased(session, one.scope_id)
        bound = not left or _is_bound(session, one.scope_id)
        free = (
            f" Nothing was released about them yet: once the records of {' and '.join(left)} are erased, they may have "
        )
        free += "another budget."
        raise DuplicateDataset(
            f"These records are already your dataset {one.dataset_id} in scope {one.scope_id}; a re-upload has no new "
            f"budget. To declare their columns otherwise, join that scope.{'' if bound else free}",
            FieldError("/scope", f'give "{one.scope_id}", and leave budget out'),
            dataset=one.dataset_id,
            scope=one.scope_id,
        )
    return leaving


def _refuse_near(session: Session, metadata: Metadata, near: Sequence[tuple[Known, float | None]]) -> None:
    """Refuse rows that are in another scope, or may be, without a statement of the owner's."""
    if metadata.distinct_because is not None:
        return
    for one, share in near:
        if one.scope_id == metadata.scope or _is_free(session, one.scope_id):
            continue
        what = (
            f"cannot be compared with your dataset {one.dataset_id} here, in scope {one.scope_id}: another site keeps "
            "it, or it came before uploads were compared"
            if share is None
            else f"are by more than half those of your dataset {one.dataset_id} in scope {one.scope_id}"
        )
        raise NearCopy(
            f"These rows {what}. People who are in both need one budget: join that scope. If these are other people, "
            "say why; nobody but you sees that.",
            FieldError("/scope", f'give "{one.scope_id}", and leave budget out'),
            FieldError("/distinct_because", "or say in your words why these are other people"),
            dataset=one.dataset_id,
            scope=one.scope_id,
        )


def _is_bound(session: Session, scope_id: str) -> bool:
    """Return whether an answer about a scope's people was released, or the scope is frozen."""
    return identities.was_paid(session, scope_id) or session.get_one(Scope, scope_id).frozen_reason is not None


def _is_free(session: Session, scope_id: str) -> bool:
    """Return whether no answer about a scope's people was released, and none can be."""
    return not _is_bound(session, scope_id) and not identities.unerased(session, scope_id)
