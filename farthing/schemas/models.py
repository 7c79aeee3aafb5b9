"""Answers about trained models: the entry of each in a list, and an owner's word on a release."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Timed


class Lineage(View):
    """The origin of a model."""

    models: Drawn[list[str]]
    """Models that its job was about, `mdl_...`; mostly none."""
    clone_of: Drawn[str | None]
    """The job that its job is a clone of, `job_...`; null where it is none."""


class ReleaseDecision(View):
    """An owner's word on a release that waited for approval."""

    outcome: Operational[Literal["approved", "rejected"]]
    """Whether the release may be read."""
    reason: Declared[str]
    """The owner's reason; empty where an approval has none."""
    by: Drawn[str]
    """The owner who said it, `pr_...`."""
    decided_at: Timed[str]
    """When the owner said it."""


class TrainedModel(View):
    """A model that a job released, without any figure of it."""

    id: Drawn[str]
    """`mdl_...`."""
    object: Literal["trained-model"] = "trained-model"
    name: Declared[str | None]
    """The label `name` of its job; null where the job has none."""
    job: Drawn[str]
    """The job that released it, `job_...`."""
    owner: Drawn[str]
    """The principal who submitted the job, `pr_...`."""
    owner_name: Declared[str]
    """The name of that principal."""
    dataset: Drawn[str | None]
    """The dataset that the job read, `ds_...`; null of a federated job."""
    dataset_name: Declared[str | None]
    """The name of the dataset; null of a federated job, and where the caller may not see the dataset."""
    kind: Declared[str]
    """The kind of model, as `GET /v1/model-kinds` lists them, or `description`."""
    method: Declared[str]
    """The kind of the method that fitted it, such as `noisy_newton`."""
    approval: Operational[str]
    """not-needed, pending, approved, rejected, retired or retracted."""
    lineage: Lineage
    """Its origin."""
    created_at: Timed[str]
    """When it was released, on a coarse grid of time."""
    expires_at: Timed[str | None]
    """When the service takes its figures away; null: it keeps them until somebody retracts the model."""
