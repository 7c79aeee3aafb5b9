"""Privacy reports, for a client of the service."""

from typing import Any

from farthing.schemas.documents import DocumentView
from farthing.wire import Wire


class ReportResources:
    """The part of a client that fetches reports."""

    _wire: Wire

    def report(self, job: str) -> dict[str, Any]:
        """Return a job's privacy report: its spending, the promise of that spending, and the ledger's head."""
        return self._wire.get(f"/v1/jobs/{job}/report")

    def dataset_report(self, dataset: str) -> DocumentView:
        """Return what is promised for good to the people behind a dataset, and where their budget went."""
        return DocumentView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/report"))

    def report_pdf(self, about: str) -> bytes:
        """Return the report of a job, `job_...`, or of a dataset's budget, `ds_...`, as PDF."""
        what = "datasets" if about.startswith("ds_") else "jobs"
        return self._wire.send("GET", f"/v1/{what}/{about}/report", params={"format": "pdf"}).content
