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

from typing import Protocol

import torch
from torch import Tensor

from core.inference.parameters import penalised_gradient
from core.methods.second_order.figures import RoundMode, SpiderFigures
from core.oracle import Oracle

State = dict[str, Tensor]

ESTIMATE = ("slope", "before", "drift", "known")
"""Content of a snapshot: never a place in the stream."""
COUNTED = ("restarts", "differences", "queries", "scale")
UNITS = "units"
"""Number of units that the estimate is a mean over; 0 before the first."""


class GradientEstimator(Protocol):
    """Driver of `gauss_psgd.walk`: noised estimates of the mean gradient, from any source."""

    def query(self, theta: Tensor) -> Tensor | None:
        """Return an estimate at theta, shape (..., p); None where too few units are left for one."""

    def snapshot(self) -> State:
        """Return what the next estimate would be made of."""

    def begin_round(self, mode: RoundMode, snapshot: State) -> None:
        """Begin a round of escape: with a fresh gradient, with what was before the trigger, or as it stands."""

    def state(self) -> State:
        """Return all that a later attempt goes on from."""


class AdaSpider:
    """The estimator of algorithm 2 over an oracle; also DIFF2's, which starts again every so many queries.

    Args:
        settings: filled.
        oracle: the only way to the records: a stream whose questions read batches of two sizes.
        state: of an earlier attempt, or `nothing_known`.
    """

    def __init__(self, settings: SpiderFigures, oracle: Oracle, state: State) -> None:
        self._settings, self._oracle = settings, oracle
        self._state = {name: state[name] for name in (*ESTIMATE, *COUNTED)}
        if not is_of_these(state, oracle):
            self._state["known"] = torch.tensor(data=False)

    def query(self, theta: Tensor) -> Tensor | None:
        """Return the noised estimate at theta, its ridge included; None where too few units are left."""
        now, settings = self._state, self._settings
        known, distance, drift = bool(now["known"]), 0.0, float(now["drift"])
        if known:
            distance = float(torch.linalg.vector_norm(theta - now["before"], dim=-1))
            drift += distance**2
        if not known or self._starts_again(drift):
            fresh = settings.fresh()
            if not self._oracle.affords(fresh):
                return None
            answer, drift = self._oracle.ask(fresh, theta), 0.0
            slope, counted = answer.value, "restarts"
            now = {**now, "scale": torch.tensor(answer.scale, dtype=torch.float64)}
        else:
            slope, counted = now["slope"], ""
            change = settings.change(distance)
            if change is not None:
                if not self._oracle.affords(change):
                    return None
                slope, counted = slope + self._oracle.ask(change, now["before"], theta).value, "differences"
        self._state = {
            **now,
            "slope": slope,
            "before": theta.expand_as(slope),
            "drift": torch.tensor(drift, dtype=torch.float64),
            "known": torch.tensor(data=True),
            "queries": now["queries"] + 1,
            **({counted: now[counted] + 1} if counted else {}),
        }
        return penalised_gradient(self._oracle.facts, slope, theta)

    def _starts_again(self, drift: float) -> bool:
        """Say whether the next estimate is a fresh one: of public figures and displacements alone."""
        if self._settings.every is not None:
            return int(self._state["queries"]) % self._settings.every == 0
        assert self._settings.restart_drift is not None, "plan first"
        return drift >= self._settings.restart_drift

    def snapshot(self) -> State:
        """Return what the next estimate would be made of."""
        return {name: self._state[name] for name in ESTIMATE}

    def begin_round(self, mode: RoundMode, snapshot: State) -> None:
        """Begin a round of escape.

        `fresh` makes the next query a fresh gradient's, so that rounds have independent noise of a known size.
        `rewind` and `continue` are two literal readings of the print, in which all rounds of a phase share one noise.
        """
        if mode == "fresh":
            self._state = {**self._state, "known": torch.tensor(data=False)}
        elif mode == "rewind":
            self._state = {**self._state, **snapshot}

    def disturb(self, extra: Tensor) -> None:
        """Add to the estimate; those after it carry it along, until the next fresh gradient."""
        self._state = {**self._state, "slope": self._state["slope"] + extra}

    def state(self) -> State:
        """Return all that a later attempt goes on from."""
        return {**self._state, UNITS: torch.tensor(self._oracle.facts.units)}


def is_of_these(state: State, oracle: Oracle) -> bool:
    """Say whether a kept estimate is a mean over the units that the oracle answers for, and over no lost client's."""
    return int(state[UNITS]) == oracle.facts.units


def nothing_known(start: Tensor) -> State:
    """Return the state of an estimator before its first answer."""
    zero = torch.tensor(0)
    return {
        "slope": torch.zeros_like(start),
        "before": start,
        "drift": torch.tensor(0.0, dtype=torch.float64),
        "known": torch.tensor(data=False),
        "restarts": zero,
        "differences": zero,
        "queries": zero,
        "scale": torch.tensor(0.0, dtype=torch.float64),
        UNITS: zero,
    }
