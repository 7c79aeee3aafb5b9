"""Activity: requests about a dataset, one view each."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Drawn, Operational, Timed


class ActivityView(View):
    """One request that concerns a dataset, its budget, its jobs or their models."""

    id: Drawn[str]
    """`evt_...`, the line of the audit log."""
    object: Literal["activity"] = "activity"
    principal: Drawn[str | None]
    """The sender, `pr_...`."""
    name: Operational[str | None]
    """The sender's name; null: the service has none."""
    role: Operational[Literal["owner", "analyst", "auditor", "admin"] | None]
    """The sender's role."""
    action: Operational[str]
    """Method and route."""
    target: Drawn[str | None]
    """Path below `/v1/` of the object that the request named or made."""
    outcome: Operational[Literal["done", "refused", "failed"]]
    """`refused` for a status of 400 to 499, `failed` for one above."""
    status: Operational[int]
    """HTTP status of the answer."""
    code: Operational[str | None]
    """Code of the refusal; null where there was none."""
    job: Drawn[str | None]
    """The job that the request made or named, or that made the model; null: none."""
    model: Drawn[str | None]
    """The model of that job, where the caller may know of it; null: none yet."""
    subject: Drawn[str | None]
    """Another principal that the request names, such as one who got access."""
    subject_name: Operational[str | None]
    """The name of that principal."""
    request_id: Drawn[str]
    """As the answer had it, for the operator's log."""
    created_at: Timed[str]
    """Time of the answer."""


class AuditView(View):
    """One request, who asked, and how it was answered."""

    id: Drawn[str]
    """`evt_...`."""
    object: Literal["audit"] = "audit"
    principal: Drawn[str | None]
    """Principal of the request, `pr_...`; null: no key was recognised."""
    action: Operational[str]
    """Method and route."""
    target: Drawn[str | None]
    """Object of the request; null: none."""
    status: Operational[int]
    """HTTP status of the answer."""
    code: Operational[str | None]
    """Of the refusal; null where there was none."""
    request_id: Drawn[str]
    """As in the answer, for the operator's log."""
    created_at: Timed[str]
    """When it was answered."""
