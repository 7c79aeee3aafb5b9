"""From opened records to a release: the method, the sandwich, and the row that a model stores."""

from collections import Counter
from math import isfinite
from typing import Any, Final

import numpy as np
import torch

from core.base.errors import ensure
from core.data.columns import Coded, bounds_of
from core.inference.checks import Checks, Learned, TailLine
from core.inference.description import ReleasedDescription
from core.inference.error_bound import ErrorBound
from core.inference.estimate import Estimate, OtherLine, Sandwich
from core.inference.network import AnyReleased, ReleasedNetwork, read_released
from core.inference.released import Flags, Matrix, Released, fitted_loss_of
from core.losses.counts import Poisson
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.methods.fits import Fitted, answer, fit_and_infer
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.kinds import NetworkModel, RegressionModel
from core.models.modelling import encoded_loss
from core.oracle import Oracle, Release, Status
from core.planning.about import known_scale
from core.planning.planner import PlannedJob
from core.privacy.events import Event, compose
from core.privacy.renyi import cost_nano
from core.privacy.reports import report
from core.queries import sums as problems
from core.queries.sums import Problem
from core.queries.sums.table import TableProblem
from core.records.records import Encoded
from core.training.device import own_device
from core.training.ledger_filter import LedgerFilter
from core.training.network import Ended, PublicWeights, describe_network, low_rank, make_network_problem, merged
from core.training.order import PublicInput
from core.training.points import look_of, points_of

ROUNDING: Final = 1e-9
"""The excess over its floor at which a scale still counts as at it."""
KNOWN_SCALE: Final = "the residual scale is the released one, taken for known: of the scale itself nothing is said"


def make_problem(planned: PlannedJob, records: Encoded, weights: PublicWeights) -> Problem:
    """Put a planned job's loss on encoded records, which become the problem's own: only to a GPU are they copied.

    Args:
        planned: the job, nothing open.
        records: encoded by its design.
        weights: public ones that a network starts from.
    """
    if isinstance(planned.spec.model, NetworkModel):
        return make_network_problem(planned, records, weights)
    device = own_device()
    if isinstance(planned.spec.model, DescriptionModel):
        return TableProblem(torch.from_numpy(records.features).to(device), torch.from_numpy(records.present).to(device))
    model = _regression(planned)
    assert model.weights.bound is not None, "the planner fills it"
    return problems.make_problem(
        torch.from_numpy(records.features).to(device),
        torch.from_numpy(records.target).to(device),
        torch.from_numpy(records.present).to(device),
        encoded_loss(model, planned.design),
        model.weights,
        **{
            name: torch.from_numpy(numbers).to(device)
            for name, numbers in (("offset", records.offset), ("sampling", records.sampling))
            if numbers is not None
        },
    )


def train(
    planned: PlannedJob, order: PublicInput, payments: LedgerFilter, oracle: Oracle, weights: PublicWeights
) -> AnyReleased:
    """Run the method, then the inference the job asks for, and return all that leaves the job.

    Args:
        planned: the job, nothing open.
        order: for the scope's terms.
        payments: the payments so far.
        oracle: the oracle over the records, on that privacy filter.
        weights: public ones that a network starts from.

    Raises:
        Diverged: an iterate left the public radius.
        PrivacyInvariantError: something is not finite.
    """
    if isinstance(planned.spec.model, NetworkModel):
        return _train_network(planned, order, payments, oracle, weights)
    if isinstance(planned.spec.model, DescriptionModel):
        return _describe_columns(planned, order, payments, oracle)
    shifts = torch.from_numpy(planned.design.baseline_shifts())
    looked = look_of(planned, order.subjects)
    # A job that names a description is about its columns, and such a row is no point.
    points = None if looked is not None else points_of(planned, order.subjects, weights)
    fitted = fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle, shifts, points, looked)
    return describe(planned, order, fitted, payments.charged)


def _describe_columns(
    planned: PlannedJob, order: PublicInput, payments: LedgerFilter, oracle: Oracle
) -> ReleasedDescription:
    """Ask about columns, and return every answer."""
    model, plan = planned.spec.model, planned.spec.optimizer
    assert isinstance(model, DescriptionModel), "asked of descriptions only"
    answers = answer(plan, oracle)
    return ReleasedDescription(
        units=order.units,
        steps=answers.steps,
        level=planned.spec.inference.level,
        model=model,
        columns=planned.design.columns,
        shares=answers.shares,
        answers=answers.value,
        privacy=report(_promised(order, payments.charged), order.terms, order.adjacency, declared=True),
    )


def _train_network(
    planned: PlannedJob, order: PublicInput, payments: LedgerFilter, oracle: Oracle, weights: PublicWeights
) -> ReleasedNetwork:
    """Run the method and return the whole network, its public start included."""
    points = points_of(planned, order.subjects, weights)
    fitted = fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle, points=points)
    estimate = fitted.value.estimate
    privacy = report(_promised(order, payments.charged), order.terms, order.adjacency, declared=True)
    parameters, adapters = merged(planned, weights, estimate.theta), low_rank(planned, weights, estimate.theta)
    claim = _claim(planned, order, estimate)
    ensure(fitted.status is not Status.NONE, "no network is selected; the planner refuses it")
    ended: Ended = "stopped" if fitted.status is Status.STOPPED else "finished"
    return describe_network(planned, parameters, ended, int(estimate.steps), claim, privacy, adapters)


def _claim(planned: PlannedJob, order: PublicInput, estimate: Estimate) -> ErrorBound | None:
    """Return what the method claims, of the models that the job is about where it is about some."""
    if estimate.error_bound is None or order.subjects is None:
        return estimate.error_bound
    claim = estimate.error_bound
    if claim.conditions and any(_takes_scale(planned, row) for row in order.subjects.releases):
        claim = claim.model_copy(update={"conditions": (*claim.conditions, KNOWN_SCALE)})
    return claim.about(planned.spec.models, order.subjects.records)


def _takes_scale(planned: PlannedJob, row: Any) -> bool:  # noqa: ANN401 - a row's JSON
    """Say whether a job takes for known the residual scale that a model estimated."""
    released = read_released(row)
    return isinstance(released, Released) and known_scale(planned, released) is not None


def describe(planned: PlannedJob, order: PublicInput, fitted: Release[Fitted], charged: Event) -> Released:
    """Return the row that a model stores.

    Args:
        planned: the job.
        order: for the scope's terms.
        fitted: the estimate and its covariance.
        charged: the payments for the job, by all attempts.

    Raises:
        PrivacyInvariantError: something is not finite.
    """
    model, inference = _regression(planned), planned.spec.inference
    estimate, sandwich = fitted.value.estimate, fitted.value.sandwich
    theta = tuple(estimate.theta.tolist())
    covariance = None if sandwich is None else tuple(tuple(row) for row in sandwich.covariance.tolist())
    ensure(all(isfinite(value) for value in theta), "a release is finite")
    ensure(all(isfinite(value) for row in covariance or () for value in row), "a release is finite")
    assert model.weights.bound is not None, "the planner fills it"
    loss, checks = fitted_loss_of(model, planned.design), estimate.checks
    if checks is not None:
        loss = learned_loss(loss, checks.learned, planned.design)
        covariance = None if checks.job else covariance
    return Released(
        kind=model.kind,
        target=model.target,
        optimizer=planned.spec.optimizer.kind,
        units=order.units,
        steps=int(estimate.steps),
        status=fitted.status.value,
        level=inference.level,
        correction=inference.correction,
        design=planned.design,
        theta=theta,
        covariance=covariance,
        flags=_flags(estimate, sandwich, scale_floored=_at_floor(planned, theta[-1])),
        privacy=report(_promised(order, charged), order.terms, order.adjacency, declared=True),
        loss=loss,
        weights=model.weights,
        ridge=model.ridge if estimate.swept is None else estimate.swept.ridge or 0.0,
        error_bound=_claim(planned, order, estimate),
        checks=unshown(_shown(checks, planned, order.units, theta, estimate.other), covariance, estimate.sandwich),
        iterates=_iterates(estimate),
        sweep=estimate.swept,
    )


def learned_loss(loss: Loss, learned: Learned, design: Design) -> Loss:
    """Return the loss with what the method learned of it, scales in the target's units."""
    if isinstance(loss, Huber) and learned.residual_scale is not None:
        return Huber(c=learned.cut or loss.c, scale=learned.residual_scale * design.target.scale)
    return loss.model_copy(update={"cap": learned.cap}) if isinstance(loss, Poisson) else loss


def _shown(
    checks: Checks | None, planned: PlannedJob, units: int, theta: tuple[float, ...], other: OtherLine | None = None
) -> Checks | None:
    """Return checks as they are shown: a declared lower bound of 0 is where many records may well lie.

    Beside them what the plan foresees with what was learned, and of least squares the line that is not claimed.
    """
    if checks is None:
        return None
    design = planned.design
    facts = planned.facts.model_copy(update={"units": units})
    foreseen = planned.spec.optimizer.learned_errors(facts, checks.learned, np.array(theta), design.to_declared()[0])
    zero = {one.name for one in design.columns if not isinstance(one, Coded) and bounds_of(one)[0] == 0}
    columns = tuple(
        look.model_copy(update={"clamped": tuple(end for end in look.clamped if end != "lower")})
        if feature.column in zero
        else look.model_copy(update={"clamped": ()})
        if feature.factors  # a product's end says nothing that its columns' own do not
        else look
        for look, feature in zip(checks.learned.columns, design.features, strict=True)
    )
    learned = checks.learned.model_copy(update={"columns": columns})
    tails = None if other is None else _tail_line(planned, checks.learned, other)
    return checks.model_copy(update={"learned": learned, "foreseen": foreseen, "tails": tails})


def _tail_line(planned: PlannedJob, learned: Learned, other: OtherLine) -> TailLine:
    """Return the line that is not claimed, in declared units."""
    matrix, offset = planned.design.to_declared()
    variances = np.einsum("ij,jk,ik->i", matrix, other.covariance, matrix)
    unit = planned.design.target.scale
    return TailLine(
        tails=other.tails,
        coefficients=tuple((matrix @ other.theta + offset).tolist()),
        std_errors=tuple(np.sqrt(np.maximum(variances, 0.0)).tolist()),
        largest=other.seen * unit,
        hidden=other.unseen,
        moves=tuple(np.linalg.norm(matrix @ other.moves, axis=1).tolist()),
        times=learned.weight_bound,
    )


def unshown(checks: Checks | None, shown: Matrix | None, own: Sandwich | None) -> Checks | None:
    """Return checks with the method's covariance where the release shows none: predictions are shrunk by it."""
    if checks is None or own is None or shown is not None or not own.covariance.isfinite().all():
        return checks
    rows = tuple(tuple(row) for row in own.covariance.tolist())
    return checks.model_copy(update={"unshown_covariance": rows})


def _iterates(estimate: Estimate) -> tuple[tuple[float, ...], ...] | None:
    """Return the iterates that a method released beside its estimate.

    Raises:
        PrivacyInvariantError: something is not finite.
    """
    if estimate.iterates is None:
        return None
    ensure(bool(estimate.iterates.isfinite().all()), "a release is finite")
    return tuple(tuple(one) for one in estimate.iterates.tolist())


def _promised(order: PublicInput, charged: Event) -> Event:
    """Return the events behind a job's promise: the whole schedule, even where it drew less.

    Its answers decided the difference, and a smaller figure is no guarantee for the release alone. The scope
    counts what was drawn, for its own promise is its cap.
    """
    whole, orders = compose(Counter(order.schedule)), order.terms.orders
    pairs = zip(cost_nano(charged, orders), cost_nano(whole, orders), strict=True)
    # Nano-nats at every order, in integers, so no rounding can hide that less was drawn.
    return whole if any(one < most for one, most in pairs) else charged


def _flags(estimate: Estimate, sandwich: Sandwich | None, *, scale_floored: bool) -> Flags:
    """Count what was done to noised matrices, from released values."""
    curvature = 0 if sandwich is None else int(sandwich.curvature_floored)
    score = 0 if sandwich is None else int(sandwich.score_floored)
    return Flags(
        eigenvalues_floored=curvature + score,
        curvature_floored=curvature,
        score_floored=score,
        optimizer_floored=0 if estimate.floored is None else int(estimate.floored),
        slow_directions=0 if sandwich is None else int(sandwich.slow),
        scale_floored=scale_floored,
    )


def _at_floor(planned: PlannedJob, last: float) -> bool:
    """Say whether the last parameter is an unknown scale at its floor."""
    loss = encoded_loss(_regression(planned), planned.design)
    return isinstance(loss, Huber) and loss.scale_floor is not None and last <= loss.scale_floor * (1 + ROUNDING)


def _regression(planned: PlannedJob) -> RegressionModel:
    model = planned.spec.model
    assert not isinstance(model, NetworkModel | DescriptionModel), "these have rows of their own"
    return model
