"""From opened records to a release: the method, the sandwich, and the row that a model stores."""

from math import isfinite

import torch

from core.catalogue.losses import Huber
from core.catalogue.modelling import encoded_loss
from core.catalogue.models import LinearModel, NetworkModel, RegressionModel
from core.catalogue.planning import PlannedJob
from core.inference.estimate import Estimate
from core.inference.results import Flags, Released
from core.inference.sandwich import Sandwich
from core.optimizers import Fitted, fit_and_infer
from core.oracle import Oracle, Release
from core.privacy.events import Event
from core.privacy.reports import report
from core.problems.linear import LinearProblem
from core.store.records import Encoded
from core.training.device import own_device
from core.training.meter import LedgerMeter
from core.training.order import Order


def make_problem(planned: PlannedJob, records: Encoded) -> LinearProblem:
    """Put a planned job's loss on encoded records, which become the problem's own: only to a GPU are they copied."""
    model = _regression(planned)
    assert model.weights.bound is not None, "the planner fills it"
    device = own_device()
    return LinearProblem(
        torch.from_numpy(records.features).to(device),
        torch.from_numpy(records.target).to(device),
        torch.from_numpy(records.present).to(device),
        encoded_loss(model, planned.design),
        model.weights,
    )


def train(planned: PlannedJob, order: Order, meter: LedgerMeter, oracle: Oracle) -> Released:
    """Run the method, then the inference the job asks for, and return all that leaves the job.

    Args:
        planned: the job, nothing open.
        order: for the scope's terms.
        meter: what was paid.
        oracle: the door to the records, on that meter.

    Raises:
        Diverged: an iterate left the public radius.
        AssertionError: something is not finite.
    """
    shifts = torch.from_numpy(planned.design.baseline_shifts())
    fitted = fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle, shifts)
    return describe(planned, order, fitted, meter.charged)


def describe(planned: PlannedJob, order: Order, fitted: Release[Fitted], charged: Event) -> Released:
    """Return the row that a model stores.

    Args:
        planned: the job.
        order: for the scope's terms.
        fitted: the estimate and its covariance.
        charged: all that was paid for the job, by all attempts.

    Raises:
        AssertionError: something is not finite.
    """
    model, inference = _regression(planned), planned.spec.inference
    estimate, sandwich = fitted.value.estimate, fitted.value.sandwich
    theta = tuple(estimate.theta.tolist())
    covariance = None if sandwich is None else tuple(tuple(row) for row in sandwich.covariance.tolist())
    assert all(isfinite(value) for value in theta), "a release is finite"
    assert all(isfinite(value) for row in covariance or () for value in row), "a release is finite"
    assert model.weights.bound is not None, "the planner fills it"
    return Released(
        kind=model.kind,
        target=model.target,
        optimizer=planned.spec.optimizer.kind,
        units=order.units,
        steps=estimate.steps,
        status=fitted.status.value,
        level=inference.level,
        correction=inference.correction,
        design=planned.design,
        theta=theta,
        covariance=covariance,
        flags=_flags(estimate, sandwich),
        privacy=report(charged, order.terms, order.adjacency, declared=True),
        weight_bound=model.weights.bound,
        huber=_huber(model),
    )


def _flags(estimate: Estimate, sandwich: Sandwich | None) -> Flags:
    """Count what was done to noised matrices, from released values."""
    curvature = 0 if sandwich is None else int(sandwich.curvature_floored)
    score = 0 if sandwich is None else int(sandwich.score_floored)
    return Flags(
        eigenvalues_floored=curvature + score,
        curvature_floored=curvature,
        score_floored=score,
        optimizer_floored=0 if estimate.floored is None else int(estimate.floored),
        slow_directions=0 if sandwich is None else int(sandwich.slow),
    )


def _huber(model: RegressionModel) -> tuple[float, float] | None:
    if not isinstance(model, LinearModel) or not isinstance(model.loss, Huber):
        return None
    assert model.loss.scale is not None, "the planner fills it"
    return model.loss.c, model.loss.scale


def _regression(planned: PlannedJob) -> RegressionModel:
    model = planned.spec.model
    assert not isinstance(model, NetworkModel), "the planner refuses networks"
    return model
