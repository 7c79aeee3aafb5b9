"""The estimate that objective perturbation would give: its leading term, with all that favours it.

To first order its estimate is the non-private one plus H^-1 times normal noise of deviation S/(n mu), with S the
largest length of a record's gradient. Here H is exact and costs nothing. Columns are encoded by their declared ranges
to [-1, 1], so that S = sqrt(p) b. The factor b is 1 for a logistic model, the declared bound for counts, and Huber's c
times the residual scale, as if that was public.
"""

from math import sqrt

import numpy as np

from benchmarks.trust.exact import Array, derivatives
from core.inference.checks import Learned
from core.losses.categorical import Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.privacy.facts import Adjacency, Facts


def objective_perturbation(
    facts: Facts,
    settings: WhitenedNewtonPlan,
    learned: Learned,
    records: tuple[Array, Array],
    plain: tuple[Array, Array],
    sampling: Array | None = None,
) -> Array:
    """Return the covariance of its estimate, shape (p, p), in encoded units.

    Args:
        facts: of the scope.
        settings: of the job it is compared with: budget and loss.
        learned: the figures that the job learned; of these the residual scale alone is used.
        records: encoded features and target.
        plain: the non-private estimate without weights, and its covariance.
        sampling: the records' sampling weights, 0 to 1; None: 1 each.
    """
    loss, ranges = settings.loss, facts.ranges
    assert ranges is not None, "the planner says where columns lie"
    assert not isinstance(loss, Multinomial), "several classes have cells of their own"
    assert settings.mu is not None, "as planned"
    features, target = records
    theta, covariance = plain
    unit = learned.residual_scale if isinstance(loss, Huber | Squared) and learned.residual_scale is not None else 1.0
    largest = ranges.target[1] if isinstance(loss, Poisson) else 1.0
    _, bend = derivatives(loss, features @ theta / unit, target / unit, max(largest, 1.0))
    lower, upper = np.array(ranges.lower), np.array(ranges.upper)
    middle, half = (lower + upper) / 2, np.maximum((upper - lower) / 2, 1e-12)
    middle[0], half[0] = 0.0, 1.0
    rows = (features - middle) / half
    bend = bend if sampling is None else bend * sampling
    hessian = rows.T @ (rows * bend[:, None]) / len(rows)
    bound = {"logistic": 1.0, "poisson": largest, "squared": learned.cut or 1.0}.get(
        loss.kind, loss.c if isinstance(loss, Huber) else 1.0
    )
    moved = 2.0 if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
    deviation = moved * sqrt(facts.dimension) * bound / (facts.units * settings.mu)
    back = np.diag(1 / half)
    back[0, 1:] = -middle[1:] / half[1:]
    spread = unit * deviation * back @ np.linalg.pinv(hessian)
    found: Array = covariance + spread @ spread.T
    return found
