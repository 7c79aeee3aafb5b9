"""API keys as they leave the house, and who they speak for."""

from typing import Literal

from core.service.views import View


class KeyView(View):
    """An API key, without its secret."""

    id: str
    object: Literal["key"] = "key"
    name: str
    role: str
    principal: str
    prefix: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class NewKeyView(View):
    """A key just made; `key` is the secret, shown once and never again, so a replayed answer has none."""

    id: str
    object: Literal["key"] = "key"
    key: str | None
    role: str
    name: str
    principal: str
    expires_at: str | None


class PrincipalView(View):
    """Who a key speaks for."""

    id: str
    object: Literal["principal"] = "principal"
    name: str
    role: str
    key: str
