"""Drafts, for a client of the service: datasets that their owner looks at before they are sealed."""

from collections.abc import Mapping
from typing import Any

from farthing.figures import exact
from farthing.schemas.datasets import Dataset
from farthing.schemas.drafts import DraftView
from farthing.wire import Wire


class DraftResources:
    """The part of a client that looks at drafts, mends and seals them."""

    _wire: Wire

    def draft(self, dataset: str) -> DraftView:
        """Return a draft of yours: its declaration, and how the cells of its file were read."""
        return DraftView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/draft"))

    def mend(self, dataset: str, changes: Mapping[str, Any]) -> DraftView:
        """Change a draft's declaration; None takes a field away. Other columns, or another reading, erase its file."""
        answer = self._wire.send("PATCH", f"/v1/datasets/{dataset}", json=exact(changes))
        return DraftView.model_validate(answer.json())

    def seal(self, dataset: str) -> Dataset:
        """Make a draft a dataset that others may use: it opens its budget, or joins its scope."""
        return Dataset.model_validate(self._wire.post(f"/v1/datasets/{dataset}/seal"))
