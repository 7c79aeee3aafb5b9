"""Privacy reports of jobs and datasets: a page, and the same as PDF."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from api.deps import Caller, Db
from api.pages.rendering import render
from api.pages.routes import PageRoute, page
from api.pages.typesetting import pdf_answer
from api.routes import reports as api
from core.service import documents

router = APIRouter(route_class=PageRoute)
Id = Annotated[str, Path(max_length=60)]


@page(router, "/jobs/{job_id}/report", api=api.get_report)
def show_job_report(job_id: Id, request: Request, caller: Caller, db: Db) -> Response:
    """Show the report of a job."""
    facts = {"document": documents.of_job(db, caller, job_id), "back": f"/jobs/{job_id}", "back_name": "Job"}
    return render(request, "report.html", facts, at="jobs")


@page(router, "/jobs/{job_id}/report.pdf", api=api.get_report)
def download_job_report(job_id: Id, request: Request, caller: Caller, db: Db) -> Response:
    """Send the report of a job as PDF."""
    return pdf_answer(documents.of_job(db, caller, job_id), request.url.netloc, f"{job_id}.pdf")


@page(router, "/datasets/{dataset_id}/report", api=api.get_dataset_report)
def show_dataset_report(dataset_id: Id, request: Request, caller: Caller, db: Db) -> Response:
    """Show the report of a dataset's budget."""
    document = documents.of_dataset(db, caller, dataset_id)
    facts = {"document": document, "back": f"/datasets/{dataset_id}/budget", "back_name": "Budget"}
    return render(request, "report.html", facts, at="datasets")


@page(router, "/datasets/{dataset_id}/report.pdf", api=api.get_dataset_report)
def download_dataset_report(dataset_id: Id, request: Request, caller: Caller, db: Db) -> Response:
    """Send the report of a dataset's budget as PDF."""
    return pdf_answer(documents.of_dataset(db, caller, dataset_id), request.url.netloc, f"{dataset_id}.pdf")
