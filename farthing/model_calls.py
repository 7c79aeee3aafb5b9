"""Released models, for a client of the service: which there are, what an owner says of one, and taking one back."""

import time
from collections.abc import Iterator
from typing import Final

from farthing.errors import ReleaseWithheld
from farthing.models import Model
from farthing.schemas.jobs import JobView
from farthing.schemas.models import TrainedModel
from farthing.wire import Wire

_LOOK_SECONDS: Final = 2.0
"""Between two looks at a release that waits: a person decides, and a service answers others meanwhile."""


class ModelCalls:
    """The part of a client that lists released models, judges them and takes them back."""

    _wire: Wire

    def model(self, model: str) -> Model:
        """Return a released model to read, compare and predict with; nothing is asked yet."""
        return Model(self._wire, model)

    def models(self, **filters: str) -> Iterator[TrainedModel]:
        """Yield released models without their figures, newest first.

        Args:
            filters: dataset, job, optimizer, label (as key:value), approval. A model that is retired or retracted is
                listed by that `approval` alone.
        """
        return map(TrainedModel.model_validate, self._wire.pages("/v1/models", **filters))

    def approve(self, model: str, reason: str | None = None) -> None:
        """Let a release be seen, where its scope asks for the owner's approval; a reason stays in the ledger."""
        self.model(model).approve(reason)

    def reject(self, model: str, reason: str) -> None:
        """Keep a release from being seen; its cost stays spent, and the reason stays in the ledger."""
        self.model(model).reject(reason)

    def retract(self, model: str) -> TrainedModel:
        """Take a model back, as the submitter of its job or an owner of the data: its figures are deleted for good.

        The ledger, the job and its charge stay.
        """
        return self.model(model).delete()

    def released(self, job: JobView, wait_for_approval_seconds: float | None = None) -> Model:
        """Return the model of a job that has succeeded.

        Args:
            job: as `wait` returns it.
            wait_for_approval_seconds: the longest wait for the owner's word where the release waits for it; None: no
                wait.

        Raises:
            ReleaseWithheld: the release still waits for the owner's approval, or was rejected, retired or retracted.
        """
        ends = time.monotonic() + (wait_for_approval_seconds or 0.0)
        while job.released is None and job.approval == "pending" and (left := ends - time.monotonic()) > 0:
            # At most the rest of the wait, so that the last look comes at its end.
            self._wire.pause(min(_LOOK_SECONDS, left))
            job = JobView.model_validate(self._wire.get(f"/v1/jobs/{job.id}"))
        if job.released is None:
            raise ReleaseWithheld(job.id, str(job.approval), str(job.withheld))
        return self.model(job.released)
