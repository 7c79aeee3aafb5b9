"""The context of every use case: the settings, the database and the notifier. Use cases own their transactions."""

from dataclasses import dataclass, field
from typing import Literal

from core.base.errors import Forbidden
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.service.backlogs import Backlogs
from core.service.labels import Labels
from core.service.notifier import Notifier, SilentNotifier
from core.service.passes import Passes
from core.service.probing import WriteProbe

Role = Literal["owner", "analyst", "auditor", "admin"]


@dataclass(frozen=True)
class Context:
    """One service: its settings, its database, the notifier for jobs that wait, and work beside requests."""

    settings: ServiceSettings
    database: Database
    notifier: Notifier = field(default_factory=SilentNotifier)
    labels: Labels = field(default_factory=Labels)
    passes: Passes = field(default_factory=Passes)
    backlogs: Backlogs = field(default_factory=Backlogs)
    write_probe: WriteProbe = field(default_factory=WriteProbe)

    def stop(self) -> None:
        """End what is done beside requests, and the connections to the database."""
        self.labels.stop()
        self.passes.stop()
        self.backlogs.stop()
        self.database.dispose()


@dataclass(frozen=True)
class Caller:
    """The principal that asks, known by an API key."""

    id: str
    name: str
    role: Role
    key_id: str
    request_id: str | None = None
    """The request that is being answered, for the operator's log."""
    key_made_by: str | None = None
    """The principal that asked for the key; None: an operator, or nobody knows."""

    @property
    def key_seen_by_others(self) -> bool:
        """Whether another principal made the key, and so has seen it."""
        return self.key_made_by not in {None, self.id}

    def require(self, *roles: Role) -> None:
        """Refuse callers of other roles.

        Raises:
            Forbidden: this key's role is none of `roles`.
        """
        if self.role not in roles:
            raise Forbidden(f"This needs a key of role {' or '.join(roles)}; yours is {self.role}.")
