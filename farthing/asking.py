"""Jobs as a client sends them: on data that are not uploaded yet, over several datasets, or about released models."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from farthing.figures import exact

_OF_AN_UPLOAD: Final = {"name", "unit", "approval", "distinct_because", "seal", "accept_excluded"}
"""Fields of an upload's metadata that no plan follows from."""


def declaring(job: Mapping[str, Any], declaration: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a job, with a declaration one on data that are not uploaded yet; its figures are exact."""
    if declaration is None:
        return exact(job)
    return exact({**job, "declaration": {name: declaration[name] for name in declaration if name not in _OF_AN_UPLOAD}})


def over(
    job: Mapping[str, Any],
    datasets: Sequence[str] | None,
    quorum: int | None = None,
    models: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return a job, with figures as strings: over several datasets, or about released models, where some are given.

    Args:
        job: its `dataset` and `models`, if it has any, give way.
        datasets: one a site.
        quorum: sites that must be left for it to go on when one is lost; None: all.
        models: that it is about.
    """
    asked = exact(job if not models else {**job, "models": list(models)})
    if not datasets:
        return asked
    alone = {name: value for name, value in asked.items() if name != "dataset"}
    return {**alone, "federation": {"datasets": list(datasets), "quorum": quorum}}
