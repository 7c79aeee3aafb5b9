"""A network in a trainer: from opened records and a public start to a problem, and from theta to a model's row."""

from collections.abc import Mapping
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import ensure
from core.inference.error_bound import ErrorBound
from core.inference.network import ReleasedNetwork, Training, pack_parameters
from core.mechanisms.public_start import draw_start
from core.models.network.layers import parameters_of
from core.models.network.model import NetworkModel
from core.models.network.trained import DOWN, UP, trained_parameters
from core.planning.planner import PlannedJob
from core.privacy.reports import Report
from core.queries.sampling import PoissonSampling
from core.queries.sums.network.problem import NetworkProblem
from core.records.records import Encoded
from core.training.device import own_device

PublicWeights = Mapping[str, NDArray[np.float32]]
"""Public weights by name; a job without any has none."""
NO_WEIGHTS: Final[PublicWeights] = {}
Ended = Literal["finished", "stopped"]


def network_of(planned: PlannedJob) -> NetworkModel:
    """Return a planned job's network."""
    model = planned.spec.model
    assert isinstance(model, NetworkModel), "asked of networks only"
    return model


def start_of(planned: PlannedJob, given: PublicWeights) -> dict[str, Tensor]:
    """Return where training starts: weights that are given, and for all others draws that the layers determine."""
    model = network_of(planned)
    drawn = draw_start(model.layers, planned.design.shape, model.train)
    for name, values in given.items():
        ensure(drawn[name].shape == values.shape, "the planner compared the shapes")
    return {name: torch.from_numpy(given[name].copy()) if name in given else at for name, at in drawn.items()}


def make_network_problem(planned: PlannedJob, records: Encoded, given: PublicWeights) -> NetworkProblem:
    """Put a planned network on encoded records, which become the problem's own: only to a GPU are they copied.

    Args:
        planned: the job, nothing open.
        records: of its design, in single precision, or tokens.
        given: public weights to start from.
    """
    model, device = network_of(planned), own_device()
    assert model.loss is not None, "the planner fills it"
    return NetworkProblem(
        torch.from_numpy(records.features).to(device),
        torch.from_numpy(records.target).to(device),
        torch.from_numpy(records.present).to(device),
        model.layers,
        model.loss,
        planned.design.shape,
        torch.cat([one.flatten() for one in start_of(planned, given).values()]).to(device),
        train=model.train,
    )


def merged(planned: PlannedJob, given: PublicWeights, theta: Tensor) -> NDArray[np.float32]:
    """Return all parameters of the trained network, flat, in the order of `parameters_of`, low-rank changes merged.

    The start and its change are added in double precision and rounded once; sums round the change first, so that their
    network may differ from this one in a last bit.

    Args:
        planned: the job.
        given: public weights that it started from.
        theta: the release, the change of the trained numbers, shape (p,).
    """
    model, shape = network_of(planned), planned.design.shape
    tensors = _moved(planned, given, theta)
    for name, own in _low_rank(tensors).items():
        tensors[name] = torch.from_numpy(own).double()  # as the row keeps it
    for name in [name for name in tensors if name.endswith(f".{UP}")]:
        whole = name.removesuffix(f".{UP}")
        tensors[whole] = tensors[whole] + tensors[name] @ tensors[f"{whole}.{DOWN}"]
    whole_ones = [tensors[one.name].flatten() for one in parameters_of(model.layers, shape)]
    flat: NDArray[np.float32] = torch.cat(whole_ones).to(torch.float32).numpy()
    return flat


def low_rank(planned: PlannedJob, given: PublicWeights, theta: Tensor) -> NDArray[np.float32] | None:
    """Return the low-rank changes that `merged` merges, flat, in the order of `adapters`; None: there are none."""
    found = _low_rank(_moved(planned, given, theta))
    return np.concatenate([one.ravel() for one in found.values()]) if found else None


def _low_rank(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[np.float32]]:
    """Return the low-rank matrices among tensors, in their order, in single precision."""
    return {name: at.to(torch.float32).numpy() for name, at in tensors.items() if name.endswith((f".{DOWN}", f".{UP}"))}


def _moved(planned: PlannedJob, given: PublicWeights, theta: Tensor) -> dict[str, Tensor]:
    """Return the start and its change, in double precision, low-rank changes as matrices of their own."""
    model = network_of(planned)
    tensors = {name: at.double() for name, at in start_of(planned, given).items()}
    moved = trained_parameters(model.layers, planned.design.shape, model.train)
    pieces = theta.detach().cpu().split([one.size for one in moved])  # type: ignore[no-untyped-call] # torch's stub
    for one, change in zip(moved, pieces, strict=True):
        tensors[one.name] = tensors[one.name] + change.view(one.shape)
    return tensors


def change_of(planned: PlannedJob, given: PublicWeights, released: ReleasedNetwork) -> Tensor:
    """Return a released network as theta, the change of its trained numbers from the public start, float64, shape (p,).

    The inverse of `merged`, but for what its rounding to single precision took; low-rank changes are those of the row.
    """
    model, start = network_of(planned), start_of(planned, given)
    tensors = released.tensors | released.factors
    moved = trained_parameters(model.layers, planned.design.shape, model.train)
    return torch.cat(
        [(torch.from_numpy(tensors[one.name]).double() - start[one.name].double()).flatten() for one in moved]
    )


def describe_network(
    planned: PlannedJob,
    parameters: NDArray[np.float32],
    status: Ended,
    steps: int,
    claim: ErrorBound | None,
    privacy: Report,
    adapters: NDArray[np.float32] | None = None,
) -> ReleasedNetwork:
    """Return the row that a network stores.

    Args:
        planned: the job.
        parameters: of the trained network.
        status: the end of the method.
        steps: taken.
        claim: the method's claim.
        privacy: the job's promise.
        adapters: the low-rank changes that were merged into the parameters.

    Raises:
        PrivacyInvariantError: a parameter is not finite.
    """
    settings, facts = planned.spec.optimizer, planned.facts
    sampling = settings.sampling(facts)
    return ReleasedNetwork(
        target=network_of(planned).target,
        optimizer=settings.kind,
        units=facts.units,
        steps=steps,
        status=status,
        design=planned.design,
        model=network_of(planned),
        training=Training(
            batch=getattr(settings, "batch", None),
            rate=sampling.rate if isinstance(sampling, PoissonSampling) else None,
            sigma=getattr(settings, "sigma", None),
            clip=facts.gradient_bound,
            settings=settings.model_dump(mode="json"),
        ),
        privacy=privacy,
        parameters=pack_parameters(parameters),
        adapters=None if adapters is None else pack_parameters(adapters),
        error_bound=claim,
    )
