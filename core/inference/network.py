"""Stored row of a network, and its view for people: layers, parameters, privacy and training.

Parameters are the public start plus the method's release, in single precision: base64 of the flat vector in the order
of `parameters_of`. Low-rank changes are merged into their matrices; the row also has the changes as trained, for jobs
about this very point. Nothing else of the training is in a row: no moments of the steps, no buffers.
"""

import base64
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from core.base.errors import FieldError, Invalid
from core.base.validation_errors import RENAMED_KINDS
from core.inference.description import ReleasedDescription
from core.inference.error_bound import ErrorBound
from core.inference.network_graph import Single, make_graph, split
from core.inference.released import MARKED, Released
from core.models.design import Design
from core.models.network.layers import Activation, Pool2d, Shape, parameters_of
from core.models.network.model import Lora, NetworkModel, trace
from core.models.network.trained import adapters, trained_count
from core.privacy.facts import Frozen
from core.privacy.reports import Report

# Rows and exports are the same bytes whatever a machine's byte order is.
LITTLE: Final = np.dtype("<f4")


class Training(Frozen):
    """Training of a network, all of it public."""

    batch: int | None = Field(description="expected records in a step's sample")
    rate: float | None = Field(description="probability that a record is in one")
    sigma: float | None = Field(description="noise on a sum of clipped gradients, over the clip")
    clip: float = Field(description="longest gradient of a record, over all trained parameters")
    settings: dict[str, Any] = Field(description="of the method, as they ran")


class ReleasedNetwork(Frozen):
    """Complete output of a network's job: one row of models, as JSON."""

    kind: Literal["network"] = "network"
    target: str
    optimizer: str
    units: int
    steps: int
    status: Literal["finished", "stopped"]
    design: Design
    model: NetworkModel
    training: Training
    privacy: Report
    parameters: str = Field(repr=False, description="base64 of little-endian float32")
    adapters: str | None = Field(
        default=None, repr=False, description="the same of the low-rank changes that are merged into them; null: none"
    )
    error_bound: ErrorBound | None = Field(default=None, description="the method's claim about this network")
    mock: bool = MARKED

    @property
    def shape(self) -> Shape:
        """Of one record, as the first layer takes it."""
        return self.design.shape

    @cached_property
    def flat(self) -> Single:
        """The parameters, float32, shape (p,)."""
        return np.frombuffer(base64.b64decode(self.parameters), dtype=LITTLE).astype(np.float32)

    @property
    def tensors(self) -> dict[str, Single]:
        """The parameters by name."""
        return split(self.flat, ((one.name, one.shape) for one in parameters_of(self.model.layers, self.shape)))

    @property
    def factors(self) -> dict[str, Single]:
        """The low-rank changes by name, as they were trained; none where none are kept."""
        if self.adapters is None or not isinstance(self.model.train, Lora):
            return {}
        flat = np.frombuffer(base64.b64decode(self.adapters), dtype=LITTLE).astype(np.float32)
        named = adapters(self.model.layers, self.shape, self.model.train)
        return split(flat, ((one.name, one.shape) for one in named))

    @property
    def count(self) -> int:
        """Number of the network's parameters."""
        return sum(one.size for one in parameters_of(self.model.layers, self.shape))

    @property
    def trained(self) -> int:
        """Number of trained numbers."""
        return trained_count(self.model, self.shape)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The target's values, in the order of the scores; None where it is a number."""
        return getattr(self.design.target_column, "values", None)


AnyReleased = Released | ReleasedNetwork | ReleasedDescription
RELEASED: Final[TypeAdapter[AnyReleased]] = TypeAdapter(AnyReleased)
"""Reads a row of models of any kind."""


def pack_parameters(flat: NDArray[np.floating[Any]]) -> str:
    """Return a flat vector as a row keeps it.

    Raises:
        AssertionError: a number is not finite in single precision.
    """
    single = np.asarray(flat).astype(LITTLE)
    assert np.isfinite(single).all(), "a release is finite"
    return base64.b64encode(single.tobytes()).decode()


def present_release(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored release by its present names: 0.1.0 called an error bound `certificate`."""
    found = {"error_bound" if name == "certificate" else name: value for name, value in row.items()}
    if "optimizer" in found:
        found["optimizer"] = RENAMED_KINDS.get(found["optimizer"], found["optimizer"])
    return found


def read_released(row: Mapping[str, Any]) -> AnyReleased:
    """Return a model's row."""
    kinds: dict[str, type[AnyReleased]] = {"network": ReleasedNetwork, "description": ReleasedDescription}
    # Each regression has a kind of its own; all of them are `Released`.
    return kinds.get(row["kind"], Released).model_validate(present_release(row))


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as people see it: of a network all but the parameters themselves, with how many there are."""
    row = present_release(row)
    if row.get("kind") != "network":
        return row
    released = ReleasedNetwork.model_validate(row)
    shown = {name: at for name, at in row.items() if name not in {"parameters", "adapters"}}
    return shown | {"parameters": released.count, "trained_parameters": released.trained}


def with_coefficients(released: AnyReleased, what: str) -> Released:
    """Return a release that has coefficients.

    Raises:
        Invalid: it is a network's, or a description.
    """
    if isinstance(released, ReleasedDescription):
        fix = "ask for its description or its summary, or fit a regression model"
        raise Invalid(f"A description has no coefficients, so no {what}.", FieldError("/model", fix))
    if isinstance(released, ReleasedNetwork):
        raise Invalid(
            f"A network has no coefficients, so no {what}.",
            FieldError("/model", "ask for its summary, predictions or exports, or fit a regression model"),
        )
    return released


def layer_table(released: ReleasedNetwork) -> list[dict[str, Any]]:
    """Return one line a layer: its place, kind, settings, the shape it makes, and its number of parameters."""
    lines = []
    for one in trace(released.model.layers, released.shape):
        shown = one.layer.model_dump(mode="json", exclude={"layers", "kind"}, exclude_defaults=True)
        shown |= {"of": one.layer.of} if isinstance(one.layer, Activation | Pool2d) else {}
        # A residual's inner layers have lines of their own.
        own = 0 if one.layer.kind == "residual" else sum(it.size for it in one.layer.parameters(one.given))
        lines.append(
            {
                "place": ".".join(map(str, one.place)),
                "kind": one.layer.kind,
                "settings": shown,
                "output": list(one.made),
                "parameters": own,
            }
        )
    return lines


def make_onnx(released: ReleasedNetwork, metadata: dict[str, str]) -> bytes:
    """Return the network as an ONNX file; see `network_graph`."""
    return bytes(make_graph(released.model, released.design, released.tensors, metadata).SerializeToString())
