"""Use cases of public weights that networks start from: uploaded as safetensors, listed, named by jobs, deleted."""

import secrets
from collections.abc import Collection, Iterable
from math import prod

from sqlalchemy.orm import Session

from core.base.errors import Conflict, FieldError, Invalid, NotFound
from core.base.identifiers import new_id
from core.db import clock
from core.db.tables import PublicWeights
from core.models.design import Design
from core.models.network.layers import parameters_of
from core.models.network.model import NetworkModel
from core.models.network.trained import last_place, place_of
from core.records import weights as rows
from core.records.storage import open_storage
from core.service import quotas
from core.service.context import Caller, Context
from core.service.views import rfc3339
from farthing.schemas.models import WeightsView

MOST_SHOWN = 10


def create(context: Context, caller: Caller, name: str, pieces: Iterable[bytes]) -> tuple[WeightsView, bool]:
    """Store an upload; the same bytes again are the same weights. Return their view, and whether they were there.

    Raises:
        Forbidden: the key's role submits no jobs.
        Invalid: it is no sound safetensors file.
        TooLarge: it passes a limit.
        NotReady: the storage does not answer.
    """
    caller.require("owner", "analyst", "admin")
    settings = context.settings
    path = settings.spool_path / f"weights-{secrets.token_hex(16)}"
    with quotas.counted(context, caller.id, pieces) as counted:
        taken = rows.take(counted, path)
    try:
        with context.database.read() as session:
            stored = rows.same(session, caller.id, taken.digest, settings.site)
            if stored is not None:
                return _view(stored), True
        weights_id = new_id(rows.PREFIX)
        location = f"{weights_id}.safetensors"
        open_storage(settings).put(path, location)
    finally:
        path.unlink(missing_ok=True)

    def work(session: Session) -> WeightsView:
        quotas.admit(context, session, caller.id, taken.bytes)
        kept = PublicWeights(
            id=weights_id,
            owner_id=caller.id,
            name=name,
            tensors=taken.tensors,
            bytes=taken.bytes,
            digest=taken.digest,
            location=location,
            site=settings.site,
            created_at=clock.read(session),
        )
        session.add(kept)
        session.flush()
        return _view(kept)

    try:
        return context.database.transaction(work), False
    except BaseException:
        with context.database.read() as session:
            stored = rows.find(session, caller.id, weights_id)
        # The commit may have been done although its answer was lost.
        if stored is None:
            open_storage(settings).erase(location)
        raise


def page(context: Context, caller: Caller, after: str | None, limit: int) -> list[WeightsView]:
    """Return up to `limit` weights, newest first: one's own, or all of them for admins and auditors."""
    with context.database.read() as session:
        return [_view(one) for one in rows.page(session, _owner(caller), after, limit)]


def get(context: Context, caller: Caller, weights_id: str) -> WeightsView:
    """Return what is known of weights: the shape of each tensor, by name.

    Raises:
        NotFound: they do not exist for the caller.
    """
    with context.database.read() as session:
        return _view(_find(session, caller, weights_id))


def delete(context: Context, caller: Caller, weights_id: str) -> None:
    """Forget weights; models that were trained from them stay as they are.

    Raises:
        NotFound: they do not exist for the caller.
        Forbidden: the key's role may only look.
        Conflict: a job that has not ended starts from them.
    """
    caller.require("owner", "analyst", "admin")

    def work(session: Session) -> str:
        found = _find(session, caller, weights_id)
        needed = rows.needed_by(session, weights_id)
        if found.site != context.settings.site:
            raise Conflict("These weights are kept by another site: delete them through its own service.")
        if needed is not None:
            raise Conflict(f"{needed} starts from these weights and has not ended: wait, or cancel it.")
        session.delete(found)
        session.flush()
        return found.location

    # The row goes first: a rolled-back change must still have its file.
    location = context.database.transaction(work)
    open_storage(context.settings).erase(location)


def check(session: Session, caller: Caller, model: NetworkModel, design: Design, sites: Collection[str]) -> None:
    """Refuse weights that a network cannot start from; those of its last layer may be missing, and are drawn then.

    Args:
        session: a snapshot.
        caller: the principal that asks.
        model: that starts from them.
        design: of its inputs.
        sites: where trainers will read them: those that keep the records.

    Raises:
        Invalid: they do not exist for the caller or at these sites, or a tensor is missing, unknown or of another
            shape; it is named.
    """
    if model.pretrained is None:
        return
    try:
        found = _find(session, caller, model.pretrained)
    except NotFound as refusal:
        raise Invalid(refusal.detail, FieldError("/model/pretrained", "name weights of your own")) from None
    if set(sites) != {found.site}:
        raise Invalid(
            f"The weights {model.pretrained} are kept by another site than the records.",
            FieldError("/model/pretrained", "upload them to the service of the site that keeps the records"),
        )
    wrong = misfits(model, design, found.tensors)
    if wrong:
        raise Invalid(
            f"The weights {model.pretrained} do not fit the layers: {wrong[0]}.",
            *(FieldError("/model/pretrained", text) for text in wrong[:MOST_SHOWN]),
        )


def misfits(model: NetworkModel, design: Design, tensors: rows.Shapes) -> list[str]:
    """Return what is wrong with weights, tensor by tensor; nothing where a network can start from them."""
    wanted = {one.name: list(one.shape) for one in parameters_of(model.layers, design.shape)}
    last = last_place(model.layers, design.shape)
    head = {name for name in wanted if place_of(name) == last}
    given = head & set(tensors)
    wrong = [f"`{name}` is missing" for name in wanted if name not in tensors and (name not in head or given)]
    for name, shape in tensors.items():
        if name not in wanted:
            wrong.append(f"`{name}` is none of the network's parameters: leave it out")
        elif wanted[name] != shape:
            wrong.append(f"`{name}` has the shape {_sizes(shape)}, where the layers have {_sizes(wanted[name])}")
    return wrong


def _sizes(shape: list[int]) -> str:
    return " x ".join(map(str, shape))


def _owner(caller: Caller) -> str | None:
    return None if caller.role in {"admin", "auditor"} else caller.id


def _find(session: Session, caller: Caller, weights_id: str) -> PublicWeights:
    found = rows.find(session, _owner(caller), weights_id)
    if found is None:
        raise NotFound("There are no such weights.")
    return found


def _view(kept: PublicWeights) -> WeightsView:
    return WeightsView(
        id=kept.id,
        name=kept.name,
        owner=kept.owner_id,
        tensors=kept.tensors,
        parameters=sum(prod(shape) for shape in kept.tensors.values()),
        bytes=kept.bytes,
        digest=kept.digest,
        created_at=rfc3339(kept.created_at),
    )
