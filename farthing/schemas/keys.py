"""API keys, and the principals for whom they speak."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, OwnerOnly, Timed


class KeyView(View):
    """An API key, without its secret."""

    id: Drawn[str]
    """`key_...`."""
    object: Literal["key"] = "key"
    name: Declared[str]
    """That it was given."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    principal: Drawn[str]
    """Its principal, `pr_...`."""
    made_by: Drawn[str | None]
    """Principal who requested it and has seen it, `pr_...`; null: the operator, or unknown."""
    created_at: Timed[str]
    """When it was made."""
    starts_at: Timed[str | None]
    """When it begins to open anything; null: it does at once."""
    expires_at: Timed[str | None]
    """When it ends; null: it does not."""
    revoked_at: Timed[str | None]
    """When it was taken back; null: it was not."""
    last_used_at: Timed[str | None]
    """About when it was last used; null: never."""


class NewKeyView(View):
    """A key just made; `key` is the secret, shown once and never again, so a replayed answer has none."""

    id: Drawn[str]
    """`key_...`."""
    object: Literal["key"] = "key"
    key: Drawn[str | None]
    """The secret; null in a replayed answer."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    name: Declared[str]
    """That it was given."""
    principal: Drawn[str]
    """Its principal, `pr_...`."""
    expires_at: Timed[str | None]
    """When it ends; null: it does not."""


class PrincipalStateView(View):
    """A principal, for whoever administers them."""

    id: Drawn[str]
    """`pr_...`."""
    object: Literal["principal"] = "principal"
    name: Declared[str]
    """That it was given."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    created_at: Timed[str]
    """When it was made."""
    disabled_at: Timed[str | None]
    """Since when none of its keys opens anything; null: they do."""
    disabled_reason: Declared[str | None]
    """Why; null: it is not disabled."""


class PrincipalView(View):
    """Principal of a key."""

    id: Drawn[str]
    """`pr_...`."""
    object: Literal["principal"] = "principal"
    name: Declared[str]
    """That it was given."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    key: Drawn[str]
    """The key that asked, `key_...`."""


class UsageView(View):
    """Disk space that the caller's files take and may take on this service. In bytes."""

    object: Literal["usage"] = "usage"
    stored_bytes: OwnerOnly[int]
    """Of records, public weights, and declarations without records."""
    pending_bytes: OwnerOnly[int]
    """Of uploads that are being received or decoded."""
    most_bytes: Operational[int]
    """That one principal may have."""
    remaining_bytes: OwnerOnly[int]
    """That are left of them."""
