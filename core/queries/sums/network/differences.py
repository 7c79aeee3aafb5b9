"""Each record's change of its clipped gradient between two points, cut to a norm of its own.

Both gradients come from passes over the same records in the same slots, at public parameters. They are written out as
rows of floats, g_i and h_i. With v_i and w_i the weights that clip them, d_i = v_i h_i - w_i g_i is computed number by
number. The norm of the row d_i itself is measured, and u_i d_i is added up, u_i = min(1, bound/|d_i|), the bound being
min(cap, 2 C).

Terms. The measured norm is of the very floats of d_i, whatever was rounded on the way to them. The bound makes no
assumption about the change of gradients: a kink of the network, which may turn a gradient by any angle, is cut too.
Norms are added up in double precision, where the square of every single-precision number is exact and no square
underflows. With at most 2^23 numbers the measured square is within 2^-29 of the exact one, relatively. The factor u_i,
rounded to the rows' precision, is within 2^-23. The exact term's norm is thus at most bound (1 + 2^-22), inside the
bound / (1 - 2^-10) that the lattice charges.

Error. Each coordinate of a term is the product of two floats, one rounding: that of a gradient's sum, or less.

Accuracy of the difference: v_i h_i and w_i g_i are floats, so d_i differs from the exact change by about 2^-22 C. A cap
far below that cuts rounding noise; it costs accuracy, never privacy.
"""

from typing import Final

import torch
from torch import Tensor

from core.queries.sums.network.terms import LayerTerms, exact_squares, put_rows, selected

SMALLEST_BOUND: Final = 2.0**-50
"""Bounds below this are refused: the lattice's step would be near what a single-precision product may lose."""

Measured = tuple[list[LayerTerms], Tensor, Tensor]
"""Some records' gradients of all layers, their weights in the sum, and which of them count."""


class DifferenceTerms:
    """Of all parameters at once: a row of numbers for each record.

    Args:
        rows: d, shape (m, p), contiguous; they become this object's.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        # On a CPU one by one: a double is made of one at a time.
        size = 1 if rows.is_cpu else max(1, len(rows))
        found = [exact_squares(rows[at : at + size]) for at in range(0, len(rows), size)]
        self.squares = torch.cat(found) if len(found) > 1 else found[0]

    def write(self, rows: Tensor) -> None:
        """Write all numbers; see `LayerTerms`."""
        rows.copy_(self._rows)

    def add(self, total: Tensor, weights: Tensor, kept: Tensor, rows: slice) -> None:
        """Add the rows times their weights; see `LayerTerms`."""
        total.addmv_(selected(self._rows[rows], kept).mT, weights)

    def put(self, totals: Tensor, weights: Tensor, kept: Tensor) -> None:
        """Make a product for each part; see `LayerTerms`."""
        put_rows(self._rows, totals, weights, kept)


@torch.no_grad()
def changes(before: Measured, after: Measured, dimension: int, bound: float) -> Measured:
    """Return the change of some records' clipped gradients, cut to the bound.

    A record counts where both its gradients do.

    Args:
        before: their gradients at the first point, with the weights that clip them.
        after: at the second point, of the same records in the same order.
        dimension: p.
        bound: on the norm of one record's term.
    """
    changed, earlier = (clipped_rows(one, dimension) for one in (after, before))
    terms = DifferenceTerms(changed.sub_(earlier))
    kept = before[2] & after[2]
    scales = torch.where(kept, (bound / terms.squares.sqrt()).clamp_(max=1.0), 0.0)
    return [terms], scales.to(changed.dtype), kept


def clipped_rows(measured: Measured, dimension: int) -> Tensor:
    """Return each record's clipped gradient of all parameters, shape (m, p); not finite where the gradient is not."""
    terms, scales, _ = measured
    rows = scales.new_zeros((len(scales), dimension))
    for one in terms:
        one.write(rows)
    return rows.mul_(scales.unsqueeze(-1))
