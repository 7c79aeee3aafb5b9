"""From a bounded integer sum to a noised mean on the lattice."""

from functools import lru_cache
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from core.base.errors import ensure
from core.mechanisms.exponential import choose
from core.mechanisms.gaussian import SHORT, noise_pieces, noise_symmetric, noise_vector
from core.mechanisms.generator import Generator, SystemGenerator
from core.mechanisms.lattice import (
    Grid,
    from_grid,
    integer_norm,
    matrix_grid,
    network_grid,
    norm_grid,
    round_parts,
    vector_grid,
)
from core.mechanisms.telling import TELLS_IN_PLACE, TELLS_OPEN, tell_in_place, tell_noised, tell_open
from core.oracle import Answer
from core.oracle.pace import choice_seconds, paced
from core.oracle.stationarity import MOST_STEPS, SCORE_STEPS, decided
from core.privacy.facts import Facts
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.classes import ClassCounts, ClassCurvature, ClassGradient, ClassMoments
from core.queries.errors import MeanError
from core.queries.gradients import (
    BandSum,
    ClassSum,
    Curvature,
    Gradient,
    GradientDifference,
    GradientNorm,
    LeastGradient,
    Looked,
    Question,
    Secant,
    Tabled,
    summed,
)
from core.queries.hessians import AbstractScored, FirstStationary, Hessian, HessianProduct, LikelyStationary
from core.queries.looks import (
    CellCounts,
    IntegerCounts,
    LinearResidualCounts,
    MagnitudeCounts,
    ProductMagnitudeCounts,
    ResidualMagnitudeCounts,
    SecondMoments,
    ValueCounts,
    WeightSums,
)
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums.network.parts import OpenSum, closed, is_here
from core.queries.sums.parts_at_once import brought
from core.queries.tables import CutProducts, CutSums, InfluenceSquares, TableCounts

Matrices = Curvature | Hessian | ReencodedCurvature | SecondMoments
"""Symmetric answers, noised on and above the diagonal."""

_Counts = (
    CellCounts
    | IntegerCounts
    | LinearResidualCounts
    | MagnitudeCounts
    | ProductMagnitudeCounts
    | ResidualMagnitudeCounts
    | ValueCounts
    | ClassCounts
)
_Tables = TableCounts | CutSums | CutProducts | InfluenceSquares
_Looked = ReencodedGradient | WeightSums | ClassSum | BandSum | _Counts
Vectors = Gradient | GradientDifference | HessianProduct | Secant | MeanError | _Looked | _Tables
"""Sums that are answered entry by entry, unchanged."""


@lru_cache(maxsize=64)  # a method asks the same few questions in every step
def grid_for(question: Question, facts: Facts, terms: int) -> Grid:  # noqa: PLR0911 - one line for each kind of sum
    """Return the grid for a sum of at most `terms` clipped answers; the proofs are in the lattice."""
    if isinstance(question, Looked):
        return _looked_grid(question, facts, terms)
    if isinstance(question, Tabled):
        size, diameter = question.shape(facts.dimension)[0], question.diameter(facts)
        return vector_grid(question.bound(facts), terms, size, facts.adjacency, diameter)
    bound = question.bound(facts)
    match question:
        case Gradient() | GradientDifference() if facts.part_rows is not None:
            return network_grid(bound, facts.part_rows, terms, facts.dimension, facts.adjacency)
        case Gradient() | MeanError():
            size = 1 if isinstance(question, MeanError) else facts.dimension
            return vector_grid(bound, terms, size, facts.adjacency, question.diameter(facts))
        case GradientDifference() | HessianProduct() | Secant():
            return vector_grid(bound, terms, question.shape(facts.dimension)[0], facts.adjacency)
        case GradientNorm() | LeastGradient():
            return norm_grid(grid_for(question.gradient(), facts, terms))
        case Curvature():
            return matrix_grid(bound, terms, facts.dimension, facts.adjacency)
        case Hessian():
            return matrix_grid(bound, terms, facts.dimension, facts.adjacency, semidefinite=False)
        case LikelyStationary() | FirstStationary():  # of the scores; their sums have grids of their own
            return Grid(step=1 / SCORE_STEPS, sensitivity=SCORE_STEPS, error=0.0)
    assert_never(question)


def _looked_grid(question: Looked, facts: Facts, terms: int) -> Grid:
    """Return the grid of a sum with public arguments of its own."""
    bound, size = question.bound(facts), question.shape(facts.dimension)[0]
    match question:
        case ReencodedCurvature() | SecondMoments():
            return matrix_grid(bound, terms, size, facts.adjacency)
        case ReencodedGradient() | ClassGradient():
            return vector_grid(bound, terms, size, facts.adjacency)
        case (
            CellCounts()
            | IntegerCounts()
            | LinearResidualCounts()
            | MagnitudeCounts()
            | ProductMagnitudeCounts()
            | ResidualMagnitudeCounts()
            | ValueCounts()
            | ClassCounts()
            | WeightSums()
            | ClassMoments()
            | ClassCurvature()
            | BandTotals()
            | BandGradients()
            | BandScores()
        ):
            return vector_grid(bound, terms, size, facts.adjacency, question.diameter(facts))
    assert_never(question)


def scale_of(question: Question, facts: Facts, terms: int, divisor: float) -> float:
    """Return the standard deviation of the noise on each coordinate of an answer, in the answer's units.

    It is sigma times the question's sensitivity, and up to a thousandth more for what the lattice costs.
    """
    grid = grid_for(question, facts, terms)
    return grid.parameter(question.sigma) * grid.step / divisor


def ridge_slope(question: Question, facts: Facts, theta: Tensor) -> Tensor | None:
    """Return the ridge's gradient where a norm is asked about, shape (..., p): no record is in it; else None.

    The norm of a gradient with its ridge's is not to be had from that without, so the oracle adds it before the norm;
    everywhere else whoever asks adds it himself.
    """
    if facts.ridge == 0 or not isinstance(question, GradientNorm | LeastGradient):
        return None
    slope = facts.ridge * theta
    if facts.scale is not None:  # the last parameter, which has no penalty
        slope[..., -1] = 0
    return slope


def noised_mean(
    total: Tensor | OpenSum,
    question: Question,
    facts: Facts,
    terms: int,
    divisor: float,
    generator: SystemGenerator,
    theta: Tensor,
) -> Answer:
    """Round a sum of parts to the grid, add discrete Gaussian noise there, and divide by a public number.

    Of a gradient whose norm is asked for, the norm of the rounded sum is noised; of several, one is chosen by theirs.
    The ridge's gradient is rounded and added before: the same integers for all neighbours, so that it moves no
    difference of theirs.

    Args:
        total: int64, in part steps, of the shape of what is summed, (K, p) for a list of points; only its upper
            triangle is released from a matrix. Of scores, these themselves, shape (K,). Or a vector whose last part is
            floats. A vector that is told is used up: the answer stands where it stood.
        question: the question that the sum answers.
        facts: its public facts.
        terms: public cap on the number of terms.
        divisor: the public (expected) number of units.
        generator: the job's own.
        theta: where it is asked, shape (p,) or (K, p); a vector's answer has its precision.
    """
    if isinstance(question, AbstractScored):
        scores = closed(total).tolist()
        return paced(choice_seconds(len(scores)), lambda: decided(generator, question, scores))
    grid = grid_for(question, facts, terms)
    parameter = grid.parameter(question.sigma)
    shape = _shape_of(question, facts.dimension)
    given = total.part.shape if isinstance(total, OpenSum) else total.shape
    ensure(given == shape or question.places == "list", "a sum has the question's shape")
    scale = parameter * grid.step / divisor
    if isinstance(question, Vectors):
        return Answer(_noised(total, grid, parameter, divisor, generator, theta.dtype), scale)
    integers = round_parts(brought(closed(total)).numpy(), grid)
    slope = ridge_slope(question, facts, theta)
    if slope is not None:
        # Cut before the cast: a float above 64 bits becomes no certain integer.
        integers = integers + np.rint((slope * (divisor / grid.step)).clamp(-MOST_STEPS, MOST_STEPS).numpy()).astype(
            int
        )
    if isinstance(question, LeastGradient):
        seconds = choice_seconds(len(integers), facts.dimension)
        return paced(seconds, lambda: chosen(generator, [integer_norm(one) for one in integers], parameter))
    if isinstance(question, GradientNorm):
        integers = np.array([integer_norm(integers)])
    draw = noise_symmetric if isinstance(question, Matrices) else noise_vector
    integers = integers + draw(generator, parameter, len(integers))
    value = torch.from_numpy(from_grid(integers, grid) / divisor)
    return Answer(value=value, scale=scale)


@lru_cache(maxsize=64)
def _shape_of(question: Question, dimension: int) -> tuple[int, ...]:
    """Return the shape of the sum that a question's answer is made of."""
    return (question if isinstance(question, Looked | Tabled) else summed(question)).shape(dimension)


def _noised(
    total: Tensor | OpenSum,
    grid: Grid,
    parameter: float,
    divisor: float,
    generator: SystemGenerator,
    precision: torch.dtype,
) -> Tensor:
    """Round and noise a vector and divide it where it stands, some entries at a time; the sum is gone."""
    size, scale = len(total.part if isinstance(total, OpenSum) else total), grid.step / divisor
    short = size <= SHORT
    pieces = [(0, noise_vector(generator, parameter, size))] if short else noise_pieces(generator, parameter, size)
    if isinstance(total, OpenSum) and TELLS_OPEN and precision == torch.float32 and is_here(total.part, precision):
        # On another grid the sum's sensitivity would not be the one that the noise is for.
        ensure(total.step == grid.part_step, "a part is answered on the grid that it is charged by")
        tell_open(total.part.numpy(), None if total.total is None else total.total.numpy(), pieces, grid, scale)
        return total.part
    integers, single = brought(closed(total)), precision == torch.float32
    value = integers.view(precision)  # of the same bytes, the first half of them in single precision
    value = value[:size] if single else value
    if TELLS_IN_PLACE and is_here(integers, torch.int64):
        tell_in_place(integers.data_ptr(), size, pieces, grid, scale, single=single)
    else:
        tell_noised(integers.numpy(), pieces, grid, scale, value.numpy())
    return value


def chosen(generator: Generator, scores: list[int], parameter: float) -> Answer:
    """Draw the number of one of several scores, small ones rather; an index carries no noise beside the draw."""
    return Answer(value=torch.tensor([choose(generator, scores, parameter)], dtype=torch.float64), scale=0.0)
