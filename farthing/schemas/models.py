"""Answers about trained models: the entry of each in a list, and an owner's word on a release."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


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


class ModelView(View):
    """A released model; a federated job's is of no one dataset. `models` are those that its job was about.

    `error_bounds` are what jobs of the kind `check_bound` said of it, as far as the caller may see these jobs.
    """

    id: Drawn[str]
    """`mdl_...`."""
    object: Literal["model"] = "model"
    job: Drawn[str]
    """That released it, `job_...`."""
    dataset: Drawn[str | None]
    """Dataset that it was made of, `ds_...`; null of a federated job's."""
    models: Drawn[list[str]]
    """That its job was about, `mdl_...`; mostly none."""
    approval: Operational[str]
    """not-needed, pending, approved, rejected, retired or retracted."""
    decision: ReleaseDecision | None
    """The owner's comment on the release; null without one. Sites of a federated job have their own."""
    mock: Declared[bool] = False
    """Whether it was trained on rows drawn from the declaration, and says nothing about the data."""
    release: Paid[dict[str, Any]]
    """The whole release; of a network without the parameters themselves."""
    error_bounds: Paid[list[dict[str, Any]]]
    """Newest last, each with its model and job."""
    created_at: Timed[str]
    """When it was released, on a coarse grid of time."""


class CovarianceView(View):
    """The covariance of a model's coefficients: sampling and privacy noise together, in declared units."""

    model: Drawn[str]
    """`mdl_...`."""
    coefficients: Declared[list[str]]
    """Names, in the order of rows and columns."""
    covariance: Paid[list[list[float | None]]]
    """One row a coefficient; null in rows and columns of those whose intervals are withheld."""
    flags: Paid[dict[str, Any]]
    """Events that the fit met on its way, as numbers and truths."""
    notes: Paid[list[str]]
    """Cautions, in sentences."""


class WeightsView(View):
    """Public weights that networks may start from; `tensors` has the shape of each, by name."""

    id: Drawn[str]
    """`wts_...`."""
    object: Literal["pretrained"] = "pretrained"
    name: Declared[str]
    """That the uploader gave them."""
    owner: Drawn[str]
    """Their uploader, `pr_...`."""
    tensors: Declared[dict[str, list[int]]]
    """Shape of each, by name."""
    parameters: Declared[int]
    """Numbers in all of them."""
    bytes: Declared[int]
    """Of the file."""
    digest: Declared[str]
    """SHA-256 of the file."""
    created_at: Timed[str]
    """When they were uploaded."""


class Predictions(View):
    """One prediction for each row, in order."""

    mock: Declared[bool] = False
    """Whether the model was trained on rows drawn from the declaration, and says nothing about the data."""
    flags: Paid[list[str]]
    """Faults that the method found in its whole estimate: they concern every row."""
    predictions: Paid[list[dict[str, Any]]]
    """One an input row: `probability`, `value`, `mean` or `probabilities`, as the model says. `flags` names the
    flagged coefficients that move this row, and says where its interval does not hold the prediction."""


class Paragraph(View):
    """Text to paste into a paper."""

    text: Paid[str]
    """Plain, in sentences."""
