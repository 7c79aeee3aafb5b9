"""Problems of every kind with a record that may be zeroed, for laws of sampled lists; every draw has a fixed seed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.losses.phase import SmoothPhase
from core.losses.robust import Cauchy
from core.losses.weights import Clip, Mallows
from core.mechanisms import sampling
from core.mechanisms.generator import Generator
from core.mechanisms.sampling import ListedSample, ListKernels, _groups, list_by, rate_parts
from core.oracle.noise import grid_for
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums import Problem
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.single import PART_ROWS
from studies.second_order.saddle_records import ComponentRecords
from tests.support import networks
from tests.support.situations import SITUATIONS, Situation

STRANGE = (torch.nan, torch.inf, 5e-324, -1e300)
"""Values that must not matter: no number, infinity, a denormal number, and a huge one."""

BOTH_SIGNS = [
    Situation("phase", SmoothPhase(cap=3.0), Clip(bound=0.8)),
    Situation("cauchy", Cauchy(scale=0.7), Mallows(bound=sqrt(2))),
]


@dataclass(frozen=True)
class Case:
    """A question about a problem of n records, which a test may zero one of."""

    name: str
    question: Question
    public: Facts
    theta: Tensor
    other: Tensor
    make: Callable[[int | None], Problem]
    """Returns the problem with one record zeroed, or none."""

    def sum(self, held: Problem, rows: Tensor | None, included: Tensor) -> bytes:
        """Return the integer sum of some slots, or of all records under a mask, as bytes."""
        step = grid_for(self.question, self.public, self.public.units).part_step
        other = self.other if self.question.places == "pair" else None
        total = held.integer_sum(
            self.question, self.public, self.theta, step, other=other, rows=rows, included=included
        )
        return total.numpy().tobytes()

    def __str__(self) -> str:
        return self.name


def cases(units: int) -> list[Case]:
    """Return every question about every kind of problem of n records."""
    found = [case for situation in (*SITUATIONS, *BOTH_SIGNS) for case in _of_situation(situation, units)]
    found += [case for name in networks.NETWORKS for case in _of_network(name, units)]
    return [*found, *_of_components(units)]


def _of_situation(situation: Situation, units: int) -> list[Case]:
    rows, public = situation.rows(units), situation.facts(units)
    asked = [one for one in situation.questions if one.kind != "curvature" or public.curvature_bound is not None]
    is_linear = isinstance(situation.problem(rows), LinearProblem)
    if is_linear:
        asked += [Hessian(sigma=1.0, clip=0.7), HessianProduct(sigma=1.0, clip=0.7)]

    def make(zeroed: int | None) -> BlockProblem:
        x, y, present = (one.clone() for one in rows)
        if zeroed is not None:
            present[zeroed] = False
        return situation.problem((x, y, present))

    theta, other = situation.point(1), situation.point(2)
    found = [
        Case(f"{situation.name}, {number} {one.kind}", one, public, theta, other, make)
        for number, one in enumerate(asked)
    ]
    if is_linear:
        single = public.model_copy(update={"part_rows": PART_ROWS})
        gradients = [one for one in asked if isinstance(one, Gradient)]
        found += [
            Case(f"{situation.name}, {number} in single precision", one, single, theta, other, make)
            for number, one in enumerate(gradients)
        ]
    return found


def _of_network(name: str, units: int) -> list[Case]:
    held = networks.records(networks.NETWORKS[name], units)

    def make(zeroed: int | None) -> NetworkProblem:
        features, target, present = (one.clone() for one in held)
        if zeroed is not None:
            present[zeroed] = False
        return networks.problem(networks.NETWORKS[name], units, micro=2, held=(features, target, present))

    dimension = make(None).dimension
    public = networks.facts(units, dimension, clip=0.5, part_rows=2)
    draws = torch.Generator().manual_seed(3)
    theta, other = (0.1 * torch.randn(dimension, generator=draws, dtype=torch.float64) for _ in range(2))
    asked = Gradient(sigma=1.0, clip=0.5), GradientDifference(sigma=1.0, clip=0.5, cap=0.2)
    return [Case(f"{name}, {one.kind}", one, public, theta, other, make) for one in asked]


def _of_components(units: int) -> list[Case]:
    draws = torch.Generator().manual_seed(4)
    rows = torch.randn(units, 3, generator=draws, dtype=torch.float64)
    theta, other = (torch.randn(3, generator=draws, dtype=torch.float64) for _ in range(2))
    public = SITUATIONS[0].facts(units)

    def make(zeroed: int | None) -> ComponentRecords:
        kept = rows.clone()
        if zeroed is not None:
            kept[zeroed] = torch.nan
        return ComponentRecords(kept)

    asked = Gradient(sigma=1.0, clip=0.5), Hessian(sigma=1.0, clip=0.7), HessianProduct(sigma=1.0, clip=0.7)
    return [Case(f"components, {one.kind}", one, public, theta, other, make) for one in asked]


def poison(held: Problem, rows: Tensor) -> None:
    """Write what is no number, infinite, denormal or huge over records, in all memory that a sum reads."""
    for number, value in enumerate(STRANGE):
        some = rows[number :: len(STRANGE)]
        if isinstance(held, NetworkProblem):
            features, target, kept, squares = held._records
            features[some] = max(value, -3e38) if features.dtype.is_floating_point else 2**40
            target[some], kept[some] = 1e9, True
            if squares is not None:
                squares[some] = value
        elif isinstance(held, BlockProblem):
            for one in held._records.tensors:
                one[some] = value
            if isinstance(held, LinearProblem):
                _poison_copies(held, some.numpy(), value)
        else:
            assert isinstance(held, ComponentRecords)
            held._rows[some] = value


def _poison_copies(held: LinearProblem, rows: NDArray[np.int64], value: float) -> None:
    if held._single is not None:
        held._single._table[rows] = value
    if held._beside is not None:
        for one in held._beside.all:
            one[rows] = value
        if held._beside._rows is not None:
            held._beside._rows[rows] = value
        if held._beside.compiled is not None and held._beside.compiled._highest is not None:
            held._beside.compiled._highest[torch.from_numpy(rows)] = value


class Words(Generator):
    """Words that a test chose."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def bits(self, count: int) -> NDArray[np.uint64]:
        drawn, self._words = self._words[:count], self._words[count:]
        assert len(drawn) == count, "there are words for all draws"
        return np.array(drawn, dtype=np.uint64)


PARTS = rate_parts(0.4)


def lists_of(kernels: ListKernels | None, sample: set[int], length: int) -> list[ListedSample]:
    """Return the lists of a sample of eight units, one for every choice of places that shuffling makes."""
    byte = sum(1 << (7 - unit) for unit in sample)
    leading = int(np.flatnonzero(_groups(PARTS)._guide == byte)[0])
    found = []
    for places in product(*(range(last + 1) for last in range(1, length))):
        words = [-(-place * 2**64 // (last + 2)) + 1 for last, place in enumerate(places)]
        listed = list_by(kernels, Words([leading, *words]), PARTS, 8, length)
        assert isinstance(listed, ListedSample)
        assert set(listed.rows[listed.included].tolist()) == sample
        found.append(listed)
    return found


def contents(lists: list[ListedSample], zeroed: int | None = None) -> Counter[tuple[int | None, ...]]:
    """Return how often slots hold which records; None is padding, or a zeroed record."""
    return Counter(
        tuple(
            int(row) if counts and row != zeroed else None for row, counts in zip(one.rows, one.included, strict=True)
        )
        for one in lists
    )


KERNELS = [sampling.KERNELS, None]
