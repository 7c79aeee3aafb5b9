"""A job as data: posted, filled by the planner, priced, stored, and run unchanged by a trainer."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from core.base.patterns import Pattern, identifier
from core.base.validation_errors import RENAMED_KINDS
from core.inference.settings import Inference, PlannedInference
from core.methods.registry import AnyPlan, AnySpec, default_method
from core.models.assumed import Assumed
from core.models.kinds import AnyModel
from core.planning.federation import DatasetId, Federation
from core.privacy.amounts import PrivacyTarget, write_share
from core.privacy.facts import Frozen

LabelKey = Annotated[
    str, Pattern(r"^[A-Za-z0-9_.-]{1,64}$", "1 to 64 letters, digits, points, hyphens or underscores", "study-a")
]
LabelValue = Annotated[str, StringConstraints(max_length=256)]
ModelId = Annotated[str, identifier("mdl")]
MOST_MODELS: Final = 1000
RETRY_ALLOWANCE: Final = 1
# Annotated's first argument is the union, whose arguments are the kinds.
_KINDS: Final = frozenset(model.model_fields["kind"].default for model in get_args(get_args(AnyModel)[0]))


MOST_PROCESSES: Final = 64
Device = Literal["auto", "cpu", "cuda"]


class Resources(Frozen):
    """Resources of the trainer, and the job's way of waiting for them."""

    device: Device = "auto"
    gpus: Annotated[int, Field(ge=0, le=1)] | None = Field(
        default=None, description="0 asks for the CPU, 1 for a GPU; null: as `device` says"
    )
    processes: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = Field(
        default=1, description="that hold the records between them; same law and price as one"
    )
    max_runtime_seconds: Annotated[float, Field(gt=0, le=7 * 86400)] | None = None
    memory_bytes: Annotated[int, Field(gt=0)] | None = None
    priority: Annotated[int, Field(ge=-10, le=10)] = Field(
        default=0, description="higher first; above 0 is for the data's owner and admins"
    )
    max_queue_seconds: Annotated[float, Field(gt=0, le=30 * 86400)] | None = Field(
        default=None, description="a job that has not started by then expires, and its reservation is given back"
    )

    @property
    def served_by(self) -> Device:
        """The queues that serve this job; `auto`: whichever is free first."""
        return self.device if self.gpus is None else ("cpu", "cuda")[self.gpus]

    @model_validator(mode="after")
    def _agreed(self) -> Self:
        if self.gpus is not None and self.device not in ("auto", self.served_by):
            raise ValueError(f"device {self.device} and gpus {self.gpus} contradict each other")
        return self


def _method_may_be_left_out(schema: dict[str, Any]) -> None:
    """Say so in a JSON Schema: for which models is not a thing that `required` can tell."""
    schema["required"] = [name for name in schema["required"] if name != "optimizer"]


class JobSpec(Frozen):
    """Content of a job."""

    model_config = ConfigDict(json_schema_extra=_method_may_be_left_out)

    dataset: DatasetId | None = None
    federation: Federation | None = Field(
        default=None, description="in place of a dataset: several, each a client that answers for itself"
    )
    datasets: None = Field(default=None, description="always null; `federation` names several")
    model: AnyModel
    models: tuple[ModelId, ...] = Field(
        default=(),
        max_length=MOST_MODELS,
        description="released models that the job is about, for methods that take some",
    )
    optimizer: AnySpec = Field(
        description="the method with what is set of it; left out for a logistic, linear or poisson model: "
        "whitened_newton, planned"
    )
    privacy: PrivacyTarget
    inference: Inference = Inference()
    resources: Resources = Resources()
    assume: Assumed | None = Field(
        default=None, description="plausible figures of the records, for predictions and for optimised shares"
    )
    retry_allowance: Annotated[int, Field(ge=0, le=5)] = Field(
        default=RETRY_ALLOWANCE,
        description="chunks that are reserved beside the price, to pay again for what is lost with a worker",
    )
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=20)

    @model_validator(mode="before")
    @classmethod
    def _with_a_method(cls, given: Any) -> Any:  # noqa: ANN401 - whatever was sent
        """Name the default method of the model where the request names none; other models need one named."""
        if not isinstance(given, dict) or "optimizer" in given:
            return given
        model = given.get("model")
        kind = model.get("kind") if isinstance(model, dict) else getattr(model, "kind", None)
        if not isinstance(kind, str) or kind not in _KINDS:  # the model is wrong; the method is not missing as well
            kind = "logistic"
        method = default_method(kind)
        return given if method is None else given | {"optimizer": {"kind": method}}

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.dataset is not None and self.federation is not None:
            raise ValueError("a job has a dataset or a federation, not both")
        return self


class PlannedSpec(JobSpec):
    """A job with nothing open: stored as it is, and all that a trainer follows."""

    optimizer: AnyPlan
    inference: Annotated[PlannedInference | Inference, Field(union_mode="left_to_right")] = Inference()

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        """Return a stored job; one of 0.1.0 says `percent`, `clients` and `pace`, and is read under today's names."""
        return cls.model_validate(present_names(stored))


_RENAMED_PACES: Final = {"clipped_sgd": "learning_rate_schedule", "proximal_point": "round_schedule"}
"""Present names of the setting `pace`, by the methods that had it in 0.1.0."""


def present_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored job's settings under the names that requests have.

    0.1.0 said `percent`, `clients` and `pace`, and named methods otherwise.
    """
    privacy, optimizer = dict(stored["privacy"]), dict(stored["optimizer"])
    if "kind" in optimizer:
        optimizer["kind"] = RENAMED_KINDS.get(optimizer["kind"], optimizer["kind"])
    if "percent" in privacy:
        privacy["budget_share"] = write_share(Decimal(privacy.pop("percent")))
    if "clients" in optimizer:
        optimizer["sites"] = optimizer.pop("clients")
    if "pace" in optimizer:
        optimizer[_RENAMED_PACES[optimizer["kind"]]] = optimizer.pop("pace")
    return {**stored, "privacy": privacy, "optimizer": optimizer}
