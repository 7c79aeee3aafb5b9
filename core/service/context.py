"""What every use case is given: the settings and the database. Use cases own their transactions."""

from dataclasses import dataclass
from typing import Literal

from core.errors import Forbidden
from core.settings import ServiceSettings
from core.store.database import Database

Role = Literal["owner", "analyst", "auditor", "admin"]


@dataclass(frozen=True)
class Context:
    """One service: its settings and its database."""

    settings: ServiceSettings
    database: Database


@dataclass(frozen=True)
class Caller:
    """Who asks, known by an API key."""

    id: str
    name: str
    role: Role
    key_id: str

    def require(self, *roles: Role) -> None:
        """Refuse callers of other roles.

        Raises:
            Forbidden: this key's role is none of `roles`.
        """
        if self.role not in roles:
            raise Forbidden(f"This needs a key of role {' or '.join(roles)}; yours is {self.role}.")
