"""The Python SDK of Farthing: train models privately over HTTP.

>>> from farthing import Client
>>> client = Client("http://127.0.0.1:8000", key="...")
>>> client.close()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from farthing.asynchronous import AsyncClient, AsyncModel
    from farthing.client import Client
    from farthing.descriptions import Description, describing
    from farthing.errors import (
        DraftRefused,
        FarthingError,
        JobFailed,
        MissingExtra,
        ReleaseWithheld,
        Unreachable,
        WrongInput,
    )
    from farthing.formulas import formula
    from farthing.models import Model
    from farthing.networks import network
    from farthing.results import (
        Coefficient,
        Comparison,
        Contrast,
        Ellipsoid,
        Interval,
        OddsRatio,
        RateRatio,
        Summary,
        SweepChoice,
        WaldTest,
    )

__all__ = [
    "AsyncClient",
    "AsyncModel",
    "Client",
    "Coefficient",
    "Comparison",
    "Contrast",
    "Description",
    "DraftRefused",
    "Ellipsoid",
    "FarthingError",
    "Interval",
    "JobFailed",
    "MissingExtra",
    "Model",
    "OddsRatio",
    "RateRatio",
    "ReleaseWithheld",
    "Summary",
    "SweepChoice",
    "Unreachable",
    "WaldTest",
    "WrongInput",
    "describing",
    "formula",
    "network",
]

_HOMES: Final = {
    "AsyncClient": "farthing.asynchronous",
    "AsyncModel": "farthing.asynchronous",
    "Client": "farthing.client",
    "Coefficient": "farthing.results",
    "Comparison": "farthing.results",
    "Contrast": "farthing.results",
    "Description": "farthing.descriptions",
    "DraftRefused": "farthing.errors",
    "Ellipsoid": "farthing.results",
    "FarthingError": "farthing.errors",
    "Interval": "farthing.results",
    "JobFailed": "farthing.errors",
    "MissingExtra": "farthing.errors",
    "Model": "farthing.models",
    "OddsRatio": "farthing.results",
    "RateRatio": "farthing.results",
    "ReleaseWithheld": "farthing.errors",
    "Summary": "farthing.results",
    "SweepChoice": "farthing.results",
    "Unreachable": "farthing.errors",
    "WaldTest": "farthing.results",
    "WrongInput": "farthing.errors",
    "describing": "farthing.descriptions",
    "formula": "farthing.formulas",
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
