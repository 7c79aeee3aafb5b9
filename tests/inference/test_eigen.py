"""Eigenvalue floors (U8) and the ball of iterates."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.inference.eigen import MANY, floor_eigenvalues, inside


def symmetric(seed: int, *replicates: int) -> torch.Tensor:
    drawn = torch.from_numpy(np.random.default_rng(seed).standard_normal((*replicates, 5, 5)))
    return drawn + drawn.mT


@pytest.mark.parametrize("seed", range(5))
def test_a_floor_holds_is_idempotent_and_counts(seed: int) -> None:
    matrix = symmetric(seed, 7)
    floored, moved = floor_eigenvalues(matrix, 0.3)
    assert torch.linalg.eigvalsh(floored).min() > 0.3 - 1e-10
    assert torch.equal(moved, (torch.linalg.eigvalsh(matrix) < 0.3).sum(-1))
    again, _ = floor_eigenvalues(floored, 0.3)
    assert torch.allclose(again, floored, atol=1e-10)


def test_a_matrix_above_the_floor_stays() -> None:
    matrix = symmetric(1) @ symmetric(1).mT + torch.eye(5, dtype=torch.float64)
    floored, moved = floor_eigenvalues(matrix, 0.5)
    assert torch.allclose(floored, matrix, atol=1e-10)
    assert moved == 0


def test_nothing_allowed_is_nearer() -> None:
    matrix = symmetric(2)
    floored, _ = floor_eigenvalues(matrix, 0.1)
    distance = torch.linalg.matrix_norm(floored - matrix)
    for seed in range(300):
        other = floor_eigenvalues(floored + 0.3 * symmetric(seed + 10), 0.1)[0]
        assert torch.linalg.matrix_norm(other - matrix) >= distance - 1e-10


def test_iterates_stay_in_the_ball() -> None:
    theta = torch.tensor([[3.0, 4.0], [0.3, 0.4], [torch.nan, 1.0], [torch.inf, 0.0]], dtype=torch.float64)
    kept, left = inside(theta, 1.0)
    assert left.tolist() == [True, False, True, True]
    assert torch.allclose(kept[0], torch.tensor([0.6, 0.8], dtype=torch.float64))
    assert torch.equal(kept[1], theta[1])
    assert kept.isfinite().all()


def test_a_single_iterate_inside_is_told_as_it_is() -> None:
    many = torch.zeros(MANY + 1, dtype=torch.float64)
    assert inside(many, 0.5)[0] is many
    theta = torch.tensor([0.3, 0.4], dtype=torch.float64)
    kept, left = inside(theta, 0.5 + 1e-9)
    assert torch.equal(kept, theta)
    assert (left.dtype, left.shape, bool(left)) == (torch.bool, (), False)
    for far in ([3.0, 4.0], [torch.nan, 0.1], [torch.inf, 0.1], [-torch.inf, torch.inf]):
        kept, left = inside(torch.tensor(far, dtype=torch.float64), 1.0)
        replicates, lefts = inside(torch.tensor([far], dtype=torch.float64), 1.0)
        assert bool(left)
        assert torch.equal(kept, replicates[0])
        assert left == lefts[0]


class _Operations(TorchDispatchMode):
    """Notes every operation on tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_regressions_iterate_takes_the_same_operations_within_the_ball_and_outside() -> None:
    """The time of a run of a sweep that does not count must not tell where its iterates were."""
    seen = []
    for point in ([0.1, 0.2], [7.0, 0.2], [inf, 0.2], [nan, 0.2]):
        with _Operations() as operations:
            inside(torch.tensor(point, dtype=torch.float64), 1.0)
        seen.append(operations.names)
    assert all(names == seen[0] for names in seen)
