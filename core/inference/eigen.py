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
    finite = theta.isfinite().all(-1, keepdim=True)
    kept = torch.where(finite, theta, 0.0)
    norm = torch.linalg.vector_norm(kept, dim=-1, keepdim=True)
    left = (norm > radius) | ~finite
    # At norm 0 the quotient is infinite; `where` drops that branch.
    return torch.where(norm > radius, kept * (radius / norm), kept), left.squeeze(-1)
