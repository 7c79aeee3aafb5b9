"""Calls of a client that look on: the activity on a dataset, and the history of its budget."""

from collections.abc import Iterator, Mapping
from typing import Any

from farthing.asking import declaring
from farthing.schemas.activity import ActivityView
from farthing.schemas.curves import CurveView
from farthing.schemas.history import PointView
from farthing.schemas.job_plans import JobPlanView
from farthing.schemas.offers import OffersView
from farthing.schemas.service import ServiceView
from farthing.wire import Wire


class OversightCalls:
    """The part of a client that shows what happened and what is left, and changes nothing."""

    _wire: Wire

    def activity(self, dataset: str) -> Iterator[ActivityView]:
        """Yield every request that concerned a dataset, newest first: for its owner, auditors and admins."""
        return map(ActivityView.model_validate, self._wire.pages(f"/v1/datasets/{dataset}/activity"))

    def offers(self, dataset: str) -> OffersView:
        """Return the price of typical jobs on a dataset, and how many of each still fit for this key."""
        return OffersView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/offers"))

    def history(self, scope: str) -> Iterator[PointView]:
        """Yield a budget's history, oldest first: one point for each job that ended."""
        return map(PointView.model_validate, self._wire.pages(f"/v1/scopes/{scope}/history"))

    def job_plan(self, job: str) -> JobPlanView:
        """Return what each chunk of a job draws and costs."""
        return JobPlanView.model_validate(self._wire.get(f"/v1/jobs/{job}/plan"))

    def service(self) -> ServiceView:
        """Return how the service is: queue, workers, parts and failures; for admins and auditors."""
        return ServiceView.model_validate(self._wire.get("/v1/service"))

    def curve(self, job: Mapping[str, Any], *, declaration: Mapping[str, Any] | None = None) -> CurveView:
        """Return a job's predicted widths at privacy targets around its own; `declaration` as for `estimate`."""
        return CurveView.model_validate(self._wire.post("/v1/estimates/curve", declaring(job, declaration)))
