"""Ada-DP-SPIDER: a gradient estimate that noised differences keep up to date, and that starts again by how far it went.

Source: Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private stochastic non-convex
optimization, algorithm 2; with `period` the rule of DIFF2, Murata and Suzuki (2023). Corrected: it accumulates the
displacements between consecutive queries, which stay right where a round returns to its beginning. (Printed: the steps,
eta^2 |g|^2, which miss the way back and count one step that is not taken.)
Sensitivity: those of `Gradient` and `GradientDifference` on a batch, whose cap is M times the distance of the two
points. A unit is in one batch of a pass at most, so that all answers of a pass cost what one does.
Failure: depends on noised values only, so it tells no more than the release. Which question comes next is a function of
this point, the last one, and the displacements since the last fresh gradient: of answers and public figures.

A change over no distance is exactly zero, noise and all, so no record is read for it.

An estimate is a mean over all clients of a federated job. Once one of them is lost there are fewer units, and what is
known is of a mean that no answer to come will be of: the next query is then a fresh gradient's.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from core.inference.parameters import penalised_gradient
from core.methods.second_order.figures import RoundMode, SpiderFigures
from core.oracle import Oracle


class LastEstimate(NamedTuple):
    """The content of the next estimate: never a place in the stream."""

    slope: Tensor
    before: Tensor
    """The point that it is of."""
    drift: Tensor
    known: Tensor
    """False: the next one is a fresh gradient."""


class EstimatorState(NamedTuple):
    """Where an estimator stands after an answer."""

    last: LastEstimate
    restarts: Tensor
    differences: Tensor
    queries: Tensor
    scale: Tensor
    """Deviation of the noise on an entry of the last fresh gradient."""
    units: Tensor
    """Number of units that the estimate is a mean over; 0 before the first."""


class GradientEstimator(Protocol):
    """Driver of `gauss_psgd.walk`: noised estimates of the mean gradient, from any source."""

    def query(self, theta: Tensor) -> Tensor | None:
        """Return an estimate at theta, shape (..., p); None where too few units are left for one."""

    def snapshot(self) -> LastEstimate:
        """Return what the next estimate would be made of."""

    def begin_round(self, mode: RoundMode, snapshot: LastEstimate) -> None:
        """Begin a round of escape: with a fresh gradient, with what was before the trigger, or as it stands."""


class AdaSpider:
    """The estimator of algorithm 2 over an oracle; also DIFF2's, which starts again every so many queries.

    Args:
        settings: filled.
        oracle: the only way to the records: a stream whose questions read batches of two sizes.
        state: of an earlier attempt, or `no_estimate`.
    """

    def __init__(self, settings: SpiderFigures, oracle: Oracle, state: EstimatorState) -> None:
        self._settings, self._oracle, self._state = settings, oracle, state
        if not is_of_these(state, oracle):
            self._forget()

    def query(self, theta: Tensor) -> Tensor | None:
        """Return the noised estimate at theta, its ridge included; None where too few units are left."""
        now, last, settings = self._state, self._state.last, self._settings
        known, distance, drift = bool(last.known), 0.0, float(last.drift)
        if known:
            distance = float(torch.linalg.vector_norm(theta - last.before, dim=-1))
            drift += distance**2
        if not known or settings.starts_again(drift, int(now.queries)):
            fresh = settings.fresh()
            if not self._oracle.affords(fresh):
                return None
            answer, drift = self._oracle.ask(fresh, theta), 0.0
            slope, scale = answer.value, torch.tensor(answer.scale, dtype=torch.float64)
            now = now._replace(restarts=now.restarts + 1, scale=scale)
        else:
            slope = last.slope
            change = settings.change(distance)
            if change is not None:
                if not self._oracle.affords(change):
                    return None
                slope = slope + self._oracle.ask(change, last.before, theta).value
                now = now._replace(differences=now.differences + 1)
        made = LastEstimate(
            slope=slope,
            before=theta.expand_as(slope),
            drift=torch.tensor(drift, dtype=torch.float64),
            known=torch.tensor(data=True),
        )
        self._state = now._replace(last=made, queries=now.queries + 1)
        return penalised_gradient(self._oracle.facts, slope, theta)

    def _forget(self) -> None:
        """Make the next query a fresh gradient's."""
        self._state = self._state._replace(last=self._state.last._replace(known=torch.tensor(data=False)))

    def snapshot(self) -> LastEstimate:
        """Return what the next estimate would be made of."""
        return self._state.last

    def begin_round(self, mode: RoundMode, snapshot: LastEstimate) -> None:
        """Begin a round of escape.

        `fresh` makes the next query a fresh gradient's, so that rounds have independent noise of a known size.
        `rewind` and `continue` are two literal readings of the print, in which all rounds of a phase share one noise.
        """
        if mode == "fresh":
            self._forget()
        elif mode == "rewind":
            self._state = self._state._replace(last=snapshot)

    def disturb(self, extra: Tensor) -> None:
        """Add to the estimate; those after it carry it along, until the next fresh gradient."""
        last = self._state.last
        self._state = self._state._replace(last=last._replace(slope=last.slope + extra))

    def state(self) -> EstimatorState:
        """Return all that a later attempt goes on from."""
        return self._state._replace(units=torch.tensor(self._oracle.facts.units))


def is_of_these(state: EstimatorState, oracle: Oracle) -> bool:
    """Say whether a kept estimate is a mean over the units that the oracle answers for, and over no lost client's."""
    return int(state.units) == oracle.facts.units


def no_estimate(start: Tensor) -> EstimatorState:
    """Return the state of an estimator before its first answer."""
    zero, nothing = torch.tensor(0), torch.tensor(0.0, dtype=torch.float64)
    last = LastEstimate(torch.zeros_like(start), before=start, drift=nothing, known=torch.tensor(data=False))
    return EstimatorState(last, restarts=zero, differences=zero, queries=zero, scale=nothing, units=zero)
