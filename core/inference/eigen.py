"""Eigenvalue floors: the projection onto matrices that are at least `floor` times the identity.

Source: Avella-Medina, Bradshaw and Loh (2023), Remark 6. Post-processing of noised matrices.
"""

from typing import Final

import torch
from torch import Tensor

MANY: Final = 2**16
"""A point within the ball that has more parameters is returned at once; another takes as long within as outside."""


def floor_eigenvalues(matrix: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return the nearest symmetric matrix, in Frobenius norm, with no eigenvalue below `floor`.

    Args:
        matrix: shape (..., p, p); its symmetric part is taken.
        floor: the smallest eigenvalue allowed.

    Returns:
        The matrix, shape (..., p, p), and how many eigenvalues were moved, shape (...).
    """
    values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
    moved = (values < floor).sum(-1)
    floored = (vectors * values.clamp(min=floor).unsqueeze(-2)) @ vectors.mT
    # Rounding leaves the product not quite symmetric.
    return (floored + floored.mT) / 2, moved


def solve(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return matrix^-1 vector along the last axis, shapes (..., p, p) and (..., p)."""
    solution: Tensor = torch.linalg.solve(matrix, vector.unsqueeze(-1))
    return solution.squeeze(-1)


def inside(theta: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Project onto the ball of `radius` around zero and say what had left it; non-finite iterates become zero.

    Returns:
        The iterate, shape (..., p), and whether it had left, bool, shape (...).
    """
    # Networks have millions of parameters. A regression may be a run of a sweep, whose time must not tell its iterates.
    if theta.ndim == 1 and len(theta) > MANY and bool(torch.linalg.vector_norm(theta) <= radius):
        return theta, torch.tensor(data=False)
    norm = torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
    # At most 1, so that a point within the ball stays to the bit. With an entry that is not finite, products are NaN,
    # which all become zero.
    kept = (theta * (radius / norm).clamp_(max=1.0)).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return kept, (norm <= radius).logical_not_().squeeze(-1)
