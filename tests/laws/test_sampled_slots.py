"""Zeroed is distributed as absent: the law of a sampled list's sum is the same for an excluded row as for padding.

The price of subsampling rests on this: given everybody else's coins, a zeroed record in the sample gives the law that
an absent one does. Here it holds exactly. Shuffled lists are one to one with the orders of their slots. With x zeroed
in one of them, the slots hold the same as with x absent, and sums are functions of the slots' content.
"""

from collections import Counter
from itertools import cycle
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from core.mechanisms import sampling, shuffle
from core.mechanisms.generator import Generator
from core.mechanisms.sampling import ListedSample, ListKernels
from core.oracle.filters import UnlimitedFilter
from core.oracle.samples import PoissonOracle
from core.queries.sums import Problem
from core.queries.sums import rows as compiled
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.network.slots import Slots
from tests.support.networks import NETWORKS
from tests.support.problems import repeatable_generator
from tests.support.slots import KERNELS, Case, cases, contents, lists_of, poison

OTHERS, X = {0, 6}, 2
LENGTH = 4
"""Two places for padding, or one beside x; 24 orders."""

SMALL, LARGE = cases(8), cases(400)
ALTERNATING = [
    case
    for name, kind in zip(NETWORKS, cycle(("gradient", "gradient_difference")), strict=False)
    for case in LARGE
    if case.name == f"{name}, {kind}"
]
"""Of each network one question: a pass over all of it is hundreds of parts."""
RATE = sampling.rate_parts(0.05)
by_both = pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: "compiled" if kernels else "numpy")


def asked_by_both(cases: list[Case]) -> Any:
    """Run a test for each case, compiled and in NumPy; networks have no kernels."""
    both = [
        (case, kernels)
        for case in cases
        for kernels in KERNELS
        if kernels is None or case.name.split(",")[0] not in NETWORKS
    ]
    return pytest.mark.parametrize(
        ("case", "kernels"), both, ids=lambda one: "compiled" if isinstance(one, ListKernels) else str(one)
    )


def tensors(listed: ListedSample) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a list as sums take it."""
    return torch.from_numpy(listed.rows), torch.from_numpy(listed.included)


def sums(case: Case, held: Problem, lists: list[ListedSample]) -> Counter[bytes]:
    """Return how often each integer sum comes of lists."""
    return Counter(case.sum(held, *tensors(one)) for one in lists)


def check_slots(kernels: ListKernels | None) -> None:
    """Fail unless slots hold the same, as often, with x zeroed in the sample and with x absent."""
    inside, outside = lists_of(kernels, {*OTHERS, X}, LENGTH), lists_of(kernels, OTHERS, LENGTH)
    assert contents(inside, zeroed=X) == contents(outside)
    assert set(contents(inside).values()) == {1}, "every order of three units and one padding comes once"


def check_sums(case: Case, kernels: ListKernels | None) -> None:
    """Fail unless sums have the same law with x zeroed in the sample and with x absent."""
    inside, outside = lists_of(kernels, {*OTHERS, X}, LENGTH), lists_of(kernels, OTHERS, LENGTH)
    assert sums(case, case.make(X), inside) == sums(case, case.make(None), outside)


@by_both
def test_slots_hold_the_same_as_often(kernels: ListKernels | None) -> None:
    check_slots(kernels)


@asked_by_both(SMALL)
def test_sums_have_the_same_law(case: Case, kernels: ListKernels | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels is None:
        monkeypatch.setattr(compiled, "KERNELS", None)
    check_sums(case, kernels)


@asked_by_both(LARGE)
def test_what_is_left_out_may_be_anything(
    case: Case, kernels: ListKernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding and an absent x, overwritten in memory by what would spoil any sum, against x zeroed in its slot."""
    if kernels is None:
        monkeypatch.setattr(compiled, "KERNELS", None)
    oracle = PoissonOracle(case.make(None), case.public, UnlimitedFilter(), repeatable_generator(), RATE)
    listed = oracle._sample(400)
    assert isinstance(listed, ListedSample)
    rows, included = tensors(listed)
    everybody = case.sum(case.make(None), rows, included)
    several = ((int(x), case.sum(case.make(int(x)), rows, included)) for x in rows[included])
    x, zeroed = next((x, total) for x, total in several if total != everybody)
    absent, held = included & (rows != x), case.make(None)
    assert zeroed == case.sum(held, rows, absent)
    poison(held, torch.tensor(sorted(set(range(400)) - set(rows[absent].tolist()))))
    assert zeroed == case.sum(held, rows, absent)


@asked_by_both([case for case in LARGE if case.name.split(",")[0] not in NETWORKS] + ALTERNATING)
def test_full_passes_add_up_the_same_with_x_zeroed_or_left_out(
    case: Case, kernels: ListKernels | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels is None:
        monkeypatch.setattr(compiled, "KERNELS", None)
    included = torch.rand(400, generator=torch.Generator().manual_seed(6)) < 0.6
    x = int(included.nonzero()[7])
    absent, held = included.index_fill(0, torch.tensor(x), value=False), case.make(None)
    if isinstance(held, BlockProblem):  # as long as a record may be
        held._records.features[x] *= 1e100
        held._records.norms[x] *= 1e100
    assert case.sum(case.make(x), None, included) == case.sum(held, None, absent)


def _unshuffled(generator: Generator, *rest: object) -> None:
    """Planted bug: lists stay in ascending order, padding behind them."""
    generator.bits(LENGTH - 1)
    del rest


@by_both
def test_lists_in_ascending_order_are_caught(kernels: ListKernels | None) -> None:
    """By their slots in any case; by a network's sums, whose parts are of two slots here."""
    with (
        patch.object(sampling, "shuffle", _unshuffled),
        patch.object(sampling, "compiled_shuffle", lambda _, generator, *rest: _unshuffled(generator, *rest)),
    ):
        with pytest.raises(AssertionError):
            check_slots(kernels)
        with pytest.raises(AssertionError):
            check_sums(next(case for case in SMALL if case.name == "perceptron, gradient"), kernels)


def test_lists_rotated_at_random_are_caught() -> None:
    """Planted bug: an order that is random and not uniformly so."""

    def rotated(generator: Generator, rows: NDArray[np.int64], included: NDArray[np.bool_]) -> None:
        first = int(generator.bits(LENGTH - 1)[0] % np.uint64(LENGTH))
        rows[:], included[:] = np.roll(rows, first), np.roll(included, first)

    with patch.object(sampling, "shuffle", rotated), pytest.raises(AssertionError):
        check_slots(None)


def test_padding_that_is_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: records that are left out count as nothing, and are not overwritten."""
    genuine = Slots.some

    def read(self: Slots, chosen: torch.Tensor | slice, included: torch.Tensor | None) -> Slots:
        found = genuine(self, chosen, None)
        return found if included is None else found._replace(kept=found.kept & included)

    monkeypatch.setattr(Slots, "some", read)
    case = next(case for case in LARGE if case.name == "tokens, gradient")
    with pytest.raises((AssertionError, IndexError)):
        test_what_is_left_out_may_be_anything(case, None, monkeypatch)


def test_uneven_places_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: every slot changes with any other, as in a shuffle that is often written."""

    def uneven(places: list[int]) -> NDArray[np.int64]:
        order = list(range(len(places) + 1))
        for last in range(len(places), 0, -1):
            at = places[last - 1] * len(order) // (last + 1)
            order[last], order[at] = order[at], order[last]
        return np.array(order, dtype=np.int64)

    monkeypatch.setattr(shuffle, "_order", uneven)
    with pytest.raises(AssertionError):
        check_slots(None)
