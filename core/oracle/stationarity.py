"""Scores of points by their distance from a second-order stationary point, as integers, and a choice by them.

A score is max((|g| - alpha)/a, (-l - gamma)/b), see `core.queries.hessians`, in steps of 2^-20. Both of its parts are
made of integer sums that are private and stay here. A gradient's integer norm moves by at most an integer a between
neighbours. A Hessian's least eigenvalue, rounded down, moves by at most an integer b. Then floor((x - A) 2^20/a) moves
by at most 2^20 where x moves by at most a, for floors of numbers that are an integer apart are that integer apart. The
larger of two such numbers moves by no more. A score's sensitivity is therefore 2^20 steps exactly.

The integer b. The exact sums of neighbours are at most m C' apart in operator norm, C' = M/(1 - 2^-10), m as for any
sum; Weyl's inequality has eigenvalues no farther apart. The integer sum differs from the exact one, in steps, by at
most E/step + sqrt(D)/2 in norm on and above the diagonal (`bounded_error_grid`), and mirrored by at most sqrt(2) times
that. Each of the two eigenvalues is computed with an error of at most e (`core.mechanisms.enclosure`). Together
m C'/step + 2 sqrt(2) (E/step + sqrt(D)/2) + 2 e, rounded up.

Public figures and scores are cut to what a machine word holds. Otherwise records could decide, where a figure is large
enough, whether there is an answer at all. A cut brings no two scores farther apart.
"""

from functools import lru_cache
from math import ceil, floor, sqrt
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.base.errors import ensure
from core.mechanisms.enclosure import eigenvalue_error, least_eigenvalue
from core.mechanisms.exponential import choose
from core.mechanisms.generator import Generator
from core.mechanisms.laplace import NONE, first_below
from core.mechanisms.lattice import CHARGED_MARGIN, Grid, integer_norm, matrix_grid, norm_grid, round_parts, vector_grid
from core.oracle import Answer
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Scored, gradient_of
from core.queries.hessians import FirstStationary

SCORE_STEPS: Final = 2**20
"""Of a score's sensitivity."""
MOST_STEPS: Final = 2.0**52
"""Of a ridge's gradient, in each coordinate: far above all that is short, and no integer overflows."""
_FARTHEST: Final = 2**62
_UP: Final = 1 + 2.0**-40


class Scales(NamedTuple):
    """The two grids, what the eigenvalues' sizes are capped to, and how far one unit moves an eigenvalue, in steps."""

    slope: Grid
    bend: Grid
    cap: float
    moved: int


@lru_cache(maxsize=16)
def scales_of(question: Scored, facts: Facts, terms: int) -> Scales:
    """Return what scores of sums of at most `terms` terms are made with."""
    gradient, hessian = gradient_of(question), question.hessian()
    dimension, adjacency = facts.dimension, facts.adjacency
    slope = vector_grid(gradient.bound(facts), terms, dimension, adjacency, gradient.diameter(facts))
    bend = matrix_grid(hessian.bound(facts), terms, dimension, adjacency, semidefinite=False)
    charged = hessian.clip * CHARGED_MARGIN / bend.step
    rounded = sqrt(2) * (bend.error / bend.step + sqrt(dimension * (dimension + 1) / 2) / 2)
    cap = (terms * charged + rounded) * _UP
    multiple = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    error = eigenvalue_error(dimension, cap)
    moved = ceil((multiple * charged + 2 * rounded) * _UP) + 2 * error
    return Scales(norm_grid(slope), bend, cap, moved)


class Read(Protocol):
    """Public facts about the records behind the sums."""

    @property
    def terms(self) -> int:
        """A cap on the number of terms."""

    @property
    def divisor(self) -> float:
        """The (expected) number of units."""


def score_of(
    question: Scored, facts: Facts, theta: Tensor, sums: tuple[NDArray[np.int64], NDArray[np.int64]], read: Read
) -> int:
    """Return one point's score in steps of 2^-20.

    Args:
        question: which choice.
        facts: public.
        theta: the point, shape (p,), for a ridge.
        sums: of the gradient, shape (p,), and of the Hessian, shape (p, p), in part steps of their grids.
        read: public facts about the records.
    """
    scales, divisor = scales_of(question, facts, read.terms), read.divisor
    slope, bend = round_parts(sums[0], scales.slope), round_parts(sums[1], scales.bend)
    if facts.ridge:
        ensure(facts.scale is None, "no penalty on a scale")
        moved = facts.ridge * theta.numpy() * (divisor / scales.slope.step)
        # Cut before the cast: a float above 64 bits becomes no certain integer.
        slope = slope + np.rint(moved.clip(-MOST_STEPS, MOST_STEPS)).astype(np.int64)
    steep = integer_norm(slope) - _whole(question.alpha * divisor / scales.slope.step)
    # A ridge moves all eigenvalues alike and knows no record, so it goes to the threshold.
    sharp = -least_eigenvalue(bend, scales.cap) - _whole((question.gamma + facts.ridge) * divisor / scales.bend.step)
    # Python's integers, for the products pass 64 bits; // rounds down for both signs.
    farther = max(steep * SCORE_STEPS // scales.slope.sensitivity, sharp * SCORE_STEPS // scales.moved)
    return max(-_FARTHEST, min(_FARTHEST, farther))


def _whole(figure: float) -> int:
    """Return a public figure in steps, rounded down and cut to what a machine word holds."""
    return floor(min(figure, float(_FARTHEST)))


def exact_score(question: Scored, facts: Facts, theta: Tensor, means: tuple[Tensor, Tensor], terms: int) -> int:
    """Return one point's score from float means, for simulations, in the same steps and with the same scales.

    Args:
        question: which choice.
        facts: public.
        theta: the point, for a ridge.
        means: of the gradient, shape (p,), and of the Hessian, shape (p, p).
        terms: n.
    """
    scales = scales_of(question, facts, terms)
    steep = float(torch.linalg.vector_norm(means[0] + facts.ridge * theta)) - question.alpha
    sharp = -float(torch.linalg.eigvalsh(means[1])[0]) - facts.ridge - question.gamma
    slope, bend = (grid.step / terms for grid in (scales.slope, scales.bend))
    return floor(max(steep / (slope * scales.slope.sensitivity), sharp / (bend * scales.moved)) * SCORE_STEPS)


def decided(generator: Generator, question: Scored, scores: list[int]) -> Answer:
    """Choose a point by the scores of all; an index carries no noise beside the choice."""
    if isinstance(question, FirstStationary):
        threshold = _whole(question.slack * SCORE_STEPS)
        number = first_below(generator, scores, threshold, moved=SCORE_STEPS, sigma=question.sigma)
    else:
        number = choose(generator, scores, question.sigma * SCORE_STEPS * _UP)
    return Answer(value=torch.tensor([number], dtype=torch.float64), scale=0.0)


def in_silence(question: Scored, scores: list[int]) -> int:
    """Return what would be chosen without any noise."""
    if isinstance(question, FirstStationary):
        threshold = _whole(question.slack * SCORE_STEPS)
        return next((number for number, score in enumerate(scores) if score <= threshold), NONE)
    return scores.index(min(scores))
