"""Certify: rounds of escape at a given point; the same controller as Gauss-PSGD's, which ends where that would descend.

Source: [derived] ours; rounds as in Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in private
stochastic non-convex optimization, algorithm 1.
Sensitivity: that of the estimator's questions; the point was released before, and is public here.
Failure: depends on noised values only, so it tells no more than the release.
"""

from torch import Tensor

from core.catalogue.second_order.certify import Certify
from core.inference.estimate import Estimate
from core.optimizers.ada_spider import nothing_known
from core.optimizers.gauss_psgd import beginning, search
from core.oracle import Oracle, Status


def iterate(settings: Certify, oracle: Oracle, points: Tensor) -> tuple[Estimate, Status]:
    """Look whether a point is an approximate second-order stationary one.

    Args:
        settings: public settings, nothing open.
        oracle: the only way to the records; each question reads the next units of a stream.
        points: of the released model, shape (K, p); the last of them is its estimate.

    Returns:
        That very point, shape (p,), with what is claimed of it.

    Raises:
        Diverged: an iterate left the public radius at the last step.
    """
    point = points[-1]
    return search(settings, oracle, oracle.resume({**beginning(point), **nothing_known(point)}))
