"""The points of released models: theta as it was released, for methods that are about such models."""

import torch
from torch import Tensor

from core.base.errors import ensure
from core.inference.description import ReleasedDescription
from core.inference.looks import Columns, columns_of
from core.inference.network import ReleasedNetwork, read_released
from core.jobs.subjects import Subjects
from core.planning.about import known_scale
from core.planning.planner import PlannedJob
from core.training.network import PublicWeights, change_of


def look_of(planned: PlannedJob, subjects: Subjects | None) -> Columns | None:
    """Return where a job's columns lie as the description that it names found it; None: it names none."""
    if subjects is None or "looked" not in planned.spec.optimizer.given:
        return None
    (row,) = subjects.releases
    released = read_released(row)
    assert isinstance(released, ReleasedDescription), "it was compared with the job when it came in"
    return columns_of(planned.design, released)


def points_of(planned: PlannedJob, subjects: Subjects | None, weights: PublicWeights) -> Tensor | None:
    """Return what models are, encoded, float64, shape (K, p), in the order in which the job names them.

    A model that was released with its iterates stands for all of these.

    Args:
        planned: the job, whose loss they are points of.
        subjects: the models; None: the job is about none.
        weights: public ones that networks start from.
    """
    if subjects is None:
        return None
    found: list[Tensor] = []
    for row in subjects.releases:
        released = read_released(row)
        assert not isinstance(released, ReleasedDescription), "a description is no point"
        if isinstance(released, ReleasedNetwork):
            found.append(change_of(planned, weights, released).unsqueeze(0))
        else:
            own = torch.tensor(released.iterates or (released.theta,), dtype=torch.float64)
            # A scale that the job takes for known is no parameter of its loss, so it is cut off.
            found.append(own if known_scale(planned, released) is None else own[:, :-1])
    points = torch.cat(found)
    ensure(points.shape[-1] == planned.facts.dimension, "they were compared with the job when it came in")
    return points
