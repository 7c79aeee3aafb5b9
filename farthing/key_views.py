"""API keys as the service shows them, and whom they speak for."""

from farthing.views import View


class Key(View):
    """An API key and whom it speaks for; `key` is the secret and is shown once."""

    id: str
    role: str
    principal: str
    name: str | None = None
    key: str | None = None
    prefix: str | None = None
    created_at: str | None = None
    expires_at: str | None = None
    revoked_at: str | None = None
    last_used_at: str | None = None


class Principal(View):
    """Who a key speaks for."""

    id: str
    name: str
    role: str
    key: str = ""
