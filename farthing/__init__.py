"""The Python SDK of Farthing: train models privately over HTTP.

>>> from farthing import Client
>>> client = Client("http://127.0.0.1:8000", key="...")  # doctest: +SKIP
"""

from farthing.client import Client
from farthing.errors import FarthingError, JobFailed, Unreachable
from farthing.views import Budget, Coefficient, Dataset, Estimate, Job, Key, Summary, Verification

__all__ = [
    "Budget",
    "Client",
    "Coefficient",
    "Dataset",
    "Estimate",
    "FarthingError",
    "Job",
    "JobFailed",
    "Key",
    "Summary",
    "Unreachable",
    "Verification",
]
