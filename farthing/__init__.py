"""The Python SDK of Farthing: train models privately over HTTP.

>>> from farthing import Client
>>> client = Client("http://127.0.0.1:8000", key="...")
>>> client.close()
"""

from farthing.client import Client
from farthing.descriptions import Description, describing
from farthing.errors import FarthingError, JobFailed, ReleaseWithheld, Unreachable
from farthing.estimate_views import Estimate
from farthing.job_views import Event, Job
from farthing.key_views import Key, Principal
from farthing.models import Model
from farthing.networks import network
from farthing.plans import Plan
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
    "Plan",
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
