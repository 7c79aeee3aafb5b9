"""Calls of a client that look on: what was done with a dataset, and what became of its budget."""

from collections.abc import Iterator

from farthing.schemas.activity import ActivityView
from farthing.wire import Wire


class OversightCalls:
    """The part of a client that shows what happened and what is left, and changes nothing."""

    _wire: Wire

    def activity(self, dataset: str) -> Iterator[ActivityView]:
        """Yield every request that concerned a dataset, newest first: for its owner, auditors and admins."""
        return map(ActivityView.model_validate, self._wire.pages(f"/v1/datasets/{dataset}/activity"))
