"""Every record's own gradient, of every kind of layer, against torch's vmap of grad in double precision."""

import pytest
import torch

from core.queries.gradients import Gradient
from core.queries.sums.network.modules import MET_NUMBERS
from tests.support.networks import NETWORKS, clipped_sum, facts, gradients, problem

UNITS = 21
"""No multiple of a micro-batch."""


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("share", "met"), [(0.3, MET_NUMBERS), (100.0, MET_NUMBERS), (0.3, 1), (0.3, 700)])
def test_clipped_sums_are_those_of_every_records_own_gradient(
    name: str, share: float, met: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one record at a time, of some, or of all."""
    monkeypatch.setattr("core.queries.sums.network.modules.MET_NUMBERS", met)
    held = problem(NETWORKS[name], UNITS, torch.float64)
    generator = torch.Generator().manual_seed(5)
    theta = 0.1 * torch.randn(held.dimension, generator=generator, dtype=torch.float64)
    rows = gradients(held, theta)
    clip = share * float(torch.linalg.vector_norm(rows, dim=-1).median())
    found = held.bounded_sum(Gradient(sigma=1.0, clip=clip), facts(UNITS, held.dimension, clip), theta)
    expected = clipped_sum(rows, clip)
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10 * float(expected.abs().max()))
