"""The Python SDK of Farthing: train models privately over HTTP.

>>> from farthing import Client
>>> client = Client("http://127.0.0.1:8000", key="...")
>>> client.close()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from farthing.client import Client
    from farthing.descriptions import Description, describing
    from farthing.errors import DraftRefused, FarthingError, JobFailed, ReleaseWithheld, Unreachable
    from farthing.estimate_views import Estimate
    from farthing.job_views import Event, Job
    from farthing.key_views import Key, Principal
    from farthing.models import Model
    from farthing.networks import network
    from farthing.restrictions import RestrictionError
    from farthing.results import (
        Coefficient,
        Comparison,
        Contrast,
        Ellipsoid,
        Interval,
        OddsRatio,
        RateRatio,
        Summary,
        WaldTest,
    )
    from farthing.views import Access, AuditLine, Budget, Cap, Dataset, Entry, Scope, Validation, Verification

__all__ = [
    "Access",
    "AuditLine",
    "Budget",
    "Cap",
    "Client",
    "Coefficient",
    "Comparison",
    "Contrast",
    "Dataset",
    "Description",
    "DraftRefused",
    "Ellipsoid",
    "Entry",
    "Estimate",
    "Event",
    "FarthingError",
    "Interval",
    "Job",
    "JobFailed",
    "Key",
    "Model",
    "OddsRatio",
    "Principal",
    "RateRatio",
    "ReleaseWithheld",
    "RestrictionError",
    "Scope",
    "Summary",
    "Unreachable",
    "Validation",
    "Verification",
    "WaldTest",
    "describing",
    "network",
]

_HOMES: Final = {
    "Access": "farthing.views",
    "AuditLine": "farthing.views",
    "Budget": "farthing.views",
    "Cap": "farthing.views",
    "Client": "farthing.client",
    "Coefficient": "farthing.results",
    "Comparison": "farthing.results",
    "Contrast": "farthing.results",
    "Dataset": "farthing.views",
    "Description": "farthing.descriptions",
    "DraftRefused": "farthing.errors",
    "Ellipsoid": "farthing.results",
    "Entry": "farthing.views",
    "Estimate": "farthing.estimate_views",
    "Event": "farthing.job_views",
    "FarthingError": "farthing.errors",
    "Interval": "farthing.results",
    "Job": "farthing.job_views",
    "JobFailed": "farthing.errors",
    "Key": "farthing.key_views",
    "Model": "farthing.models",
    "OddsRatio": "farthing.results",
    "Principal": "farthing.key_views",
    "RateRatio": "farthing.results",
    "ReleaseWithheld": "farthing.errors",
    "RestrictionError": "farthing.restrictions",
    "Scope": "farthing.views",
    "Summary": "farthing.results",
    "Unreachable": "farthing.errors",
    "Validation": "farthing.views",
    "Verification": "farthing.views",
    "WaldTest": "farthing.results",
    "describing": "farthing.descriptions",
    "network": "farthing.networks",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names above
    """Import a public name when it is first used: the service imports `farthing.schemas` and needs no HTTP client.

    Raises:
        AttributeError: `farthing` has no such name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'farthing' has no attribute {name!r}")
    # Kept as a global, so that Python asks this function once for each name.
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
