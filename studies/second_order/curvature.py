"""The least curvature of a loss over public or synthetic records; of private ones it would be private itself.

A Hessian is only ever multiplied with vectors. Lanczos finds its smallest eigenvalue in some dozens of products; a
power iteration shifted by its largest is the second opinion.
"""

from collections.abc import Callable
from math import sqrt
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""From a vector, float64, shape (p,), to the Hessian times it."""
PRECISION: Final = 1e-6
MOST_PRODUCTS: Final = 10_000


def hessian_product(loss: Callable[[Tensor], Tensor], theta: Tensor) -> Product:
    """Return products with the Hessian of a loss at theta: its gradient, differentiated along vectors.

    Args:
        loss: from parameters, float64, shape (p,), to a number; records of its own, the same at each call.
        theta: shape (p,). Where a ReLU has its kink there is no Hessian, and products are those of one side.
    """
    place = theta.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(place), place, create_graph=True)

    def product(vector: Tensor) -> Tensor:
        (turned,) = torch.autograd.grad(gradient, place, vector, retain_graph=True)
        return turned

    return product


def least_eigenvalue(product: Product, dimension: int, precision: float = PRECISION) -> float:
    """Return the smallest eigenvalue of a symmetric matrix, by Lanczos.

    Args:
        product: with the matrix.
        dimension: p.
        precision: relative to the largest eigenvalue in size.

    Raises:
        ArithmeticError: it has not converged.
    """
    if dimension <= 2:  # noqa: PLR2004 - Lanczos needs more than two dimensions for one eigenvalue
        matrix = torch.stack([product(axis) for axis in torch.eye(dimension, dtype=torch.float64)])
        return float(torch.linalg.eigvalsh((matrix + matrix.mT) / 2)[0])

    def multiplied(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        told: NDArray[np.float64] = product(torch.from_numpy(np.ascontiguousarray(vector).reshape(-1))).numpy()
        return told

    operator = LinearOperator((dimension, dimension), matvec=multiplied, dtype=np.float64)
    start = np.ones(dimension) + np.arange(dimension) / dimension  # no record decides where it begins
    try:
        (value,) = eigsh(
            operator, k=1, which="SA", tol=precision, v0=start, maxiter=MOST_PRODUCTS, return_eigenvectors=False
        )
    except ArpackNoConvergence as never:
        raise ArithmeticError(f"no eigenvalue within {precision:g} after {MOST_PRODUCTS} products") from never
    return float(value)


def least_by_power(product: Product, dimension: int, precision: float = PRECISION) -> float:
    """Return the smallest eigenvalue by two power iterations: for the largest in size, c, and then on c I - H.

    Slow where the two smallest are close, relative to c; the same arguments and errors as `least_eigenvalue`. The
    iteration for c applies H twice, for H may have two largest eigenvalues, one on each side of 0: a network that
    starts at zero has.
    """
    squared = _dominant(lambda vector: product(product(vector)), dimension, precision)
    size = sqrt(abs(squared)) * (1 + precision)
    return size - _dominant(lambda vector: size * vector - product(vector), dimension, precision)


def _dominant(product: Product, dimension: int, precision: float) -> float:
    """Return the eigenvalue that is largest in size, from an even start."""
    vector = 1 + torch.arange(dimension, dtype=torch.float64) / dimension
    vector /= torch.linalg.vector_norm(vector)
    for _ in range(MOST_PRODUCTS):
        image = product(vector)
        value, length = float(vector @ image), float(torch.linalg.vector_norm(image))
        if length == 0 or float(torch.linalg.vector_norm(image - value * vector)) <= precision**0.5 * length:
            return value  # an eigenvalue errs as the square of its vector's residual
        vector = image / length
    raise ArithmeticError(f"no eigenvalue within {precision:g} after {MOST_PRODUCTS} products")
