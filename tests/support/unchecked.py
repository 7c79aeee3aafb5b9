"""Jobs of methods whose intervals are unchecked, with the word that accepts them."""

from typing import Any

METHODS = ("noisy_newton", "noisy_gd")


def accepting(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job that accepts unchecked intervals, where its method has no others."""
    if job.get("optimizer", {}).get("kind") not in METHODS:
        return job
    return job | {"inference": {"accept_unchecked": True} | job.get("inference", {})}
