"""The Python SDK of Farthing: train models privately over HTTP.

>>> from farthing import Client
>>> client = Client("http://127.0.0.1:8000", key="...")
>>> client.close()
"""

from farthing.client import Client
from farthing.errors import FarthingError, JobFailed, Unreachable
from farthing.views import (
    AuditLine,
    Budget,
    Coefficient,
    Contrast,
    Dataset,
    Entry,
    Estimate,
    Event,
    Grant,
    Interval,
    Job,
    Key,
    OddsRatio,
    Principal,
    Scope,
    Summary,
    Validation,
    Verification,
    WaldTest,
)

__all__ = [
    "AuditLine",
    "Budget",
    "Client",
    "Coefficient",
    "Contrast",
    "Dataset",
    "Entry",
    "Estimate",
    "Event",
    "FarthingError",
    "Grant",
    "Interval",
    "Job",
    "JobFailed",
    "Key",
    "OddsRatio",
    "Principal",
    "Scope",
    "Summary",
    "Unreachable",
    "Validation",
    "Verification",
    "WaldTest",
]
