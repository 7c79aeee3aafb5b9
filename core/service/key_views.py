"""API keys as they leave the house, and who they speak for."""

from typing import Literal

from core.service.views import View


class KeyView(View):
    """An API key, without its secret."""

    id: str
    """`key_...`."""
    object: Literal["key"] = "key"
    name: str
    """That it was given."""
    role: str
    """owner, analyst, auditor or admin."""
    principal: str
    """Who it speaks for, `pr_...`."""
    created_at: str
    """When it was made."""
    expires_at: str | None
    """When it ends; null: it does not."""
    revoked_at: str | None
    """When it was taken back; null: it was not."""
    last_used_at: str | None
    """About when it was last used; null: never."""


class NewKeyView(View):
    """A key just made; `key` is the secret, shown once and never again, so a replayed answer has none."""

    id: str
    """`key_...`."""
    object: Literal["key"] = "key"
    key: str | None
    """The secret; null in a replayed answer."""
    role: str
    """owner, analyst, auditor or admin."""
    name: str
    """That it was given."""
    principal: str
    """Who it speaks for, `pr_...`."""
    expires_at: str | None
    """When it ends; null: it does not."""


class PrincipalStateView(View):
    """A principal, for whoever administers them."""

    id: str
    """`pr_...`."""
    object: Literal["principal"] = "principal"
    name: str
    """That it was given."""
    role: str
    """owner, analyst, auditor or admin."""
    created_at: str
    """When it was made."""
    disabled_at: str | None
    """Since when none of its keys opens anything; null: they do."""
    disabled_reason: str | None
    """Why; null: it is not disabled."""


class PrincipalView(View):
    """Who a key speaks for."""

    id: str
    """`pr_...`."""
    object: Literal["principal"] = "principal"
    name: str
    """That it was given."""
    role: str
    """owner, analyst, auditor or admin."""
    key: str
    """The key that asked, `key_...`."""
