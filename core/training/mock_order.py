"""Orders of mock jobs, for their trainers, and settings without any key or place of records."""

from pathlib import Path
from typing import Any, Final

from core.base.settings import ServiceSettings
from core.jobs import mocks
from core.privacy.budget import Terms
from core.privacy.facts import Adjacency, Frozen

NOWHERE: Final = Path("/nonexistent/farthing-mock")
"""The home of a mock job's trainer: no records, keys or witness are under it."""
_SECRETS: Final = ("admin_key", "master_key", "broker_url", "broker_password", "smtp_password", "smtp_user")
_PLACES: Final = ("master_key_file", "signing_key_file", "storage_url", "witness")


class MockOrder(Frozen):
    """Declared facts that a mock job's trainer gets in place of a key and of a place of records."""

    spec: dict[str, Any]
    columns: list[Any]
    rows: int
    seed: int
    adjacency: Adjacency
    terms: Terms
    schedule: list[Any]

    @classmethod
    def of(cls, job: mocks.MockJob) -> "MockOrder":
        """Return the order of a mock job that was just claimed."""
        return cls(
            spec=job.spec,
            columns=job.columns,
            rows=job.rows,
            seed=mocks.seed_of(job.id),
            adjacency=Adjacency(job.adjacency),
            terms=Terms.model_validate(job.terms),
            schedule=job.schedule,
        )


def keyless(settings: ServiceSettings) -> ServiceSettings:
    """Return settings that lead to the database and to nothing else: no key, no records, no witness."""
    nothing = dict.fromkeys((*_SECRETS, *_PLACES))
    return settings.model_copy(update={**nothing, "database_url": settings.url, "home": NOWHERE})


def is_keyless(settings: ServiceSettings) -> bool:
    """Tell whether settings lead to no key and to no records."""
    return settings.home == NOWHERE and not any(getattr(settings, name) for name in (*_SECRETS, *_PLACES))
