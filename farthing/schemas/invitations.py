"""Invitations: links for new colleagues, and what their acceptance makes."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Timed


class InvitationView(View):
    """An invitation, without its token."""

    id: Drawn[str]
    """`inv_...`."""
    object: Literal["invitation"] = "invitation"
    role: Declared[Literal["owner", "analyst", "auditor", "admin"]]
    """Role of the principal that it makes."""
    note: Declared[str]
    """For whom it is, in words."""
    made_by: Drawn[str]
    """Its maker, `pr_...`."""
    dataset: Drawn[str | None]
    """Dataset to which it gives access, `ds_...`; null: none."""
    budget_cap: Declared[dict[str, Any] | str | None]
    """Part of that dataset's budget; null: no access."""
    state: Operational[Literal["waiting", "accepted", "withdrawn", "expired"]]
    """Its state."""
    created_at: Timed[str]
    """Time at which it was made."""
    expires_at: Timed[str]
    """Time at which it ends by itself."""
    accepted_at: Timed[str | None]
    """Time of its acceptance; null: nobody has accepted it."""
    principal: Drawn[str | None]
    """The principal that it made, `pr_...`; null: none."""


class NewInvitationView(InvitationView):
    """An invitation that was just made, with its token."""

    token: Drawn[str]
    """To send to the colleague; the answer has it once."""


class AcceptedView(View):
    """The principal that an invitation made, and its first key."""

    object: Literal["accepted-invitation"] = "accepted-invitation"
    principal: Drawn[str]
    """`pr_...`."""
    name: Declared[str]
    """As the colleague gave it."""
    role: Declared[Literal["owner", "analyst", "auditor", "admin"]]
    """As the invitation says."""
    key_id: Drawn[str]
    """`key_...`."""
    key: Drawn[str]
    """The secret; the answer has it once, and nobody else has seen it."""
    dataset: Drawn[str | None]
    """Dataset to which it has access, `ds_...`; null: none."""
