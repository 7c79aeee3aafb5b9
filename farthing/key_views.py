"""API keys as the service shows them, and whom they speak for."""

from farthing.views import View


class Key(View):
    """An API key and whom it speaks for; `key` is the secret and is shown once."""

    id: str
    """`key_...`."""
    role: str
    """owner, analyst, auditor or admin."""
    principal: str
    """The principal for whom it speaks, `pr_...`."""
    name: str | None = None
    """Its name; None: not given."""
    key: str | None = None
    """The secret; None but in the answer that made it."""
    made_by: str | None = None
    """The principal who asked for it and has seen it, `pr_...`; None: the operator, or not given."""
    created_at: str | None = None
    """When it was made; None in the answer that made it."""
    starts_at: str | None = None
    """When it begins to open anything; None: it does at once."""
    expires_at: str | None = None
    """When it ends; None: it does not."""
    revoked_at: str | None = None
    """When it was taken back; None: it was not."""
    last_used_at: str | None = None
    """About when it was last used; None: never."""


class Principal(View):
    """The principal for whom a key speaks."""

    id: str
    """`pr_...`."""
    name: str
    """That it was given."""
    role: str
    """owner, analyst, auditor or admin."""
    key: str = ""
    """The key that asked, `key_...`; empty: not given."""
    created_at: str | None = None
    """When it was made; None: not given."""
    disabled_at: str | None = None
    """Since when none of its keys opens anything; None: they do."""
    disabled_reason: str | None = None
    """Why; None: it is not disabled."""
