"""A trial on the job's GPU before a record is opened: one small sum of the job's kind, over made-up records.

The trial reads, draws and pays nothing. A GPU that cannot compute the job therefore costs the job nothing.
"""

from typing import Final

import numpy as np
import torch

from core.models.description import DescriptionModel
from core.planning.planner import PlannedJob
from core.queries.gradients import Gradient
from core.queries.looks import CellCounts
from core.records.records import Encoded
from core.training.device import own_device
from core.training.fitting import make_problem
from core.training.network import PublicWeights
from core.training.order import NoGpu

_UNITS: Final = 4
_STEP: Final = 2.0**-20
"""Of the sum's grid."""


def rehearse(planned: PlannedJob, weights: PublicWeights) -> None:
    """Compute a gradient of a few made-up records where the job's will be; nothing on a CPU.

    Args:
        planned: the job, nothing open.
        weights: public ones that a network starts from.

    Raises:
        NoGpu: the device cannot compute it.
    """
    if own_device().type == "cpu":
        return
    try:
        _sum(planned, weights)
    except (MemoryError, NoGpu):
        raise
    # Made-up records: no failure here can depend on a real one, so its class may be said.
    except Exception as error:
        raise NoGpu(type(error).__name__) from error


def _sum(planned: PlannedJob, weights: PublicWeights) -> None:
    """Ask for a gradient over a list under a mask; for counts as well, where the method looks at columns."""
    design = planned.design
    facts = planned.facts.model_copy(update={"units": _UNITS})
    problem = make_problem(
        planned,
        Encoded(
            np.zeros((_UNITS, design.dimension), dtype=design.number_type),
            np.zeros(_UNITS),
            np.ones(_UNITS, dtype=np.bool_),
            None if design.margin_offset is None else np.zeros(_UNITS),
            None if design.sampling is None else np.ones(_UNITS),
        ),
        weights,
    )
    theta = torch.zeros(facts.dimension, dtype=torch.float64)
    if facts.scale is not None:
        # The loss divides by the residual scale, so it has no gradient at 0.
        theta[-1] = facts.scale.start
    chosen = {"rows": torch.arange(_UNITS), "included": torch.ones(_UNITS, dtype=torch.bool)}
    if isinstance(planned.spec.model, DescriptionModel):
        return
    # A GPU computes asynchronously: only a copy to the CPU waits for its errors.
    problem.integer_sum(Gradient(sigma=1.0), facts, theta, _STEP, **chosen).cpu()
    if facts.ranges is not None:
        cells = CellCounts(of="target", sigma=1.0, level=1, cells=((0, 1),))
        problem.integer_sum(cells, facts, theta, _STEP, **chosen).cpu()
