"""Predictions of a job's model for new records, beside those of its base rate."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Final, cast

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.trust.exact import Array
from core.inference.predictions import predict_encoded
from core.methods.fits import Fitted
from core.oracle import Release
from core.planning.planner import PlannedJob
from core.privacy.budget import plan_orders
from core.privacy.events import compose
from core.training.fitting import describe
from core.training.order import PublicInput

BUDGET, DELTA = Decimal(8), Decimal("1e-7")
LEAST_CHANCE: Final = 1e-12


def log_losses(
    plan: PlannedJob, release: Release[Fitted], fresh: tuple[Array, Array], base_rate: float
) -> tuple[float, float]:
    """Return the mean log loss of a logistic model's predictions, and of its base rate.

    Args:
        plan: of the job.
        release: its result; the row that the service would store is made of it.
        fresh: encoded features and outcomes of records that the job has not seen.
        base_rate: of the job's own records.
    """
    features, target = fresh
    order = SimpleNamespace(
        units=plan.facts.units,
        schedule=plan.schedule,
        terms=plan_orders(BUDGET, DELTA),
        adjacency=plan.facts.adjacency,
        subjects=None,
    )
    row = describe(plan, cast("PublicInput", order), release, compose(dict.fromkeys(plan.schedule, 1)))
    chances = predict_encoded(row, features, np.zeros(len(features)), None).middle[:, 0]
    return log_loss(target, chances), log_loss(target, base_rate)


def log_loss(target: Array, chance: ArrayLike) -> float:
    """Return the mean log loss of chances, one for each outcome or one for all."""
    sure = np.clip(chance, LEAST_CHANCE, 1 - LEAST_CHANCE)
    return float(-np.mean(target * np.log(sure) + (1 - target) * np.log(1 - sure)))
