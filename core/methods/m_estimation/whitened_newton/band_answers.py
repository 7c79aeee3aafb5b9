"""Least squares where its short steps end: answers by bands of the residual's size, in one unit for the last step."""

import numpy as np
from numpy.typing import NDArray

from core.inference.estimate import OtherLine
from core.losses.robust import Huber
from core.methods.m_estimation.whitened_newton.inference.band_step import Banded, BandLine, edges_up_to
from core.methods.m_estimation.whitened_newton.inference.last_step import Finished
from core.methods.m_estimation.whitened_newton.questions import EncodedQuestions, Target
from core.methods.m_estimation.whitened_newton.shares import MOST_BANDS
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.methods.m_estimation.whitened_newton.whitening import RowEncoding
from core.models.outlook import RESIDUALS_BEYOND
from core.oracle import Oracle
from core.privacy.facts import Facts

Array = NDArray[np.float64]


def questions_of(
    plan: WhitenedNewtonPlan, oracle: Oracle, encoded: RowEncoding, target: Target, cut: float = 1.0
) -> EncodedQuestions:
    """Return questions in one encoding, whose gradients cut residuals at so many scales."""
    return EncodedQuestions(plan, oracle, encoded, Huber(c=cut, scale=1.0), target)


def reach_of(facts: Facts, target: Target) -> float:
    """Return the largest residual that counts whole, in residual scales."""
    assert facts.ranges is not None, "the planner says where columns lie"
    lower, upper = facts.ranges.target
    return max(upper - target.centre, target.centre - lower) / target.unit + RESIDUALS_BEYOND


def ask_by_bands(
    plan: WhitenedNewtonPlan, oracle: Oracle, encoded: RowEncoding, target: Target, theta: Array
) -> Banded:
    """Ask for the rows' own products, and by bands for counts, energies, gradients and scores of residuals.

    A residual counts whole up to the larger distance of the target's median from a bound, and a little more.

    Args:
        plan: nothing open.
        oracle: the only way to the records.
        encoded: rows.
        target: its unit is the residual scale.
        theta: where the short steps end, in that unit.
    """
    facts = oracle.facts
    edges, size = edges_up_to(reach_of(facts, target), MOST_BANDS), len(theta)
    design = questions_of(plan, oracle, encoded, target).matrix(theta, plan.hessian_sigmas()[-1])
    at, counted = encoded.at(theta), encoded.counted
    totals, gradients, scores = (
        oracle.ask(one, at) for one in plan.band_questions(edges, target.centre, target.unit, encoded.trimmed.cut)
    )
    bands = np.array(edges)
    shares, energies = np.split(totals.value.numpy(), 2)
    lengths = plan.weight_bound * bands / counted
    squares = lengths**2
    upper_entries = np.triu_indices(size)
    matrices = np.zeros((len(bands), size, size))
    matrices[:, *upper_entries] = scores.value.numpy().reshape(len(bands), -1)
    matrices += np.triu(matrices, 1).transpose(0, 2, 1)
    return Banded(
        theta=theta,
        edges=bands,
        design=design,
        gradients=gradients.value.numpy().reshape(len(bands), size) * lengths[:, None],
        gradient_deviations=gradients.scale * lengths,
        scores=matrices * squares[:, None, None],
        score_deviations=scores.scale * squares,
        energies=energies * squares / size,
        energy_deviations=totals.scale * squares / size,
        counts=shares,
        count_deviation=totals.scale,
        units=facts.units,
        unidentified=plan.unidentified_deviation,
    )


def finish(banded: Banded, line: BandLine) -> Finished:
    """Return one line of least squares as the estimate."""
    return Finished(
        theta=line.theta,
        covariance=line.covariance,
        sampling=line.sampling,
        guess=banded.guess,
        unlearned=banded.hiding @ line.covariance @ banded.hiding,
        hessian=banded.design.value,
        hessian_noise=banded.hessian_noise,
        omega=1.0,
        excess=None,
    )


def other_line(plan: WhitenedNewtonPlan, banded: Banded, back: Array, target: Target) -> OtherLine:
    """Return the line that is not claimed, in encoded units.

    Args:
        plan: says which one is claimed.
        banded: the answers.
        back: from re-encoded to encoded coefficients.
        target: its unit is the residual scale.
    """
    counted = plan.tails == "counted"
    other = banded.light if counted else banded.counted
    theta = back @ other.theta
    theta[0] += target.centre
    return OtherLine(
        tails="assumed_light" if counted else "counted",
        theta=theta,
        covariance=back @ other.covariance @ back.T,
        moves=back @ banded.inverse * (banded.edges[-1] / banded.units),
        seen=float(banded.edges[banded.lightly][-1]) * target.unit,
        unseen=banded.unseen,
    )
