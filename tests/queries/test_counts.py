"""The cut score of counts: its bounds, its mean, and the Hessian that belongs to it."""

from math import inf, log, nan
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy.stats import nbinom, poisson
from torch import Tensor

from core.losses.counts import CutPoisson, Poisson
from core.losses.counts_torch import CutPoissonRecords
from core.privacy.facts import Adjacency
from core.queries.reencoded import ReencodedGradient
from tests.laws.test_look_questions import BOUND, Case, known, moves

LOSSES = {
    "small": CutPoisson(rate_cap=1.5, cut=2.0),
    "usual": CutPoisson(rate_cap=6.0, cut=4.0),
    "dispersed": CutPoisson(rate_cap=8.0, cut=12.0, dispersion=0.5),
    "wild": CutPoisson(rate_cap=32.0, cut=90.0, dispersion=4.0),
    "large": CutPoisson(rate_cap=400.0, cut=60.0),
}
every = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
RATES = np.geomspace(0.05, 8.0, 9)
"""Means as parts of the rate's cap."""


def law(loss: CutPoisson, mean: float) -> tuple[Tensor, Tensor]:
    """Return counts and masses, all of them."""
    a = loss.dispersion
    own = nbinom(1 / a, 1 / (1 + a * mean)) if a else poisson(mean)
    values = np.arange(own.ppf(1 - 1e-13) + 1)
    return torch.from_numpy(values), torch.from_numpy(own.pmf(values))


def mean_score(loss: CutPoisson, mean: float, margin: float) -> tuple[float, float]:
    """Return the mean of psi and of psi' at a margin, of counts with a mean of their own."""
    values, masses = law(loss, mean)
    records, at = CutPoissonRecords(loss), torch.tensor(margin, dtype=torch.float64)
    return float(masses @ records.score(at, values)), float(masses @ records.curvature(at, values))


@every
def test_the_score_has_mean_zero_under_its_law(loss: CutPoisson) -> None:
    for mean in RATES * loss.rate_cap:
        found, _ = mean_score(loss, mean, log(mean))
        assert abs(found) < 2.5e-3 * min(mean, loss.rate_cap)  # interpolation between log means


@pytest.mark.parametrize("name", ["usual", "dispersed", "wild"])
def test_a_lost_correction_would_be_seen(name: str) -> None:
    """Planted bug: residuals are cut about the mean, and the cut's mean is not taken back."""
    loss = LOSSES[name]
    table = loss.centres()
    with patch.object(CutPoisson, "centres", lambda _: table._replace(ratios=np.ones_like(table.ratios))):
        found = [abs(mean_score(loss, mean, log(mean))[0]) / min(mean, loss.rate_cap) for mean in RATES * loss.rate_cap]
    assert max(found) > 6e-3


@every
def test_the_hessian_is_the_derivative_of_the_mean_score(loss: CutPoisson) -> None:
    """Counts keep their law while the margin moves: by a part in fifty of the mean, and no more where v bends."""
    for mean in RATES * loss.rate_cap:
        if abs(log(mean / loss.rate_cap)) < 0.1:
            continue
        step = 2e-3
        (high, _), (low, _) = (mean_score(loss, mean, log(mean) + sign * step) for sign in (1, -1))
        _, bent = mean_score(loss, mean, log(mean))
        assert (high - low) / (2 * step) == pytest.approx(bent, rel=0.05, abs=0.02 * min(mean, loss.rate_cap))


@every
def test_no_record_passes_the_bounds(loss: CutPoisson) -> None:
    """This holds for every margin and count, and at the corners where something is cut."""
    draws = np.random.default_rng(5)
    corners = [log(loss.rate_cap) + shift for shift in (-30, -5, -1e-9, 0, 1e-9, 3, 30)]
    margins = torch.tensor([*corners, -800.0, 800.0, *draws.normal(log(loss.rate_cap), 2, 300)]).unsqueeze(-1)
    counts = torch.tensor(
        [0.0, loss.cut, loss.rate_cap, loss.rate_cap + loss.cut, 1e6, 1e300, *draws.exponential(9, 60)]
    )
    records = CutPoissonRecords(loss)
    score, bent = records.score(margins, counts), records.curvature(margins, counts)
    assert float(score.abs().max()) <= loss.score_bound
    assert float(bent.min()) >= 0
    assert float(bent.max()) <= loss.curvature_peak
    assert float(score.abs().max()) == loss.score_bound


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_margin_that_is_no_number_makes_no_error(value: float) -> None:
    """Its results are left out later: see `core.queries.sums.looking`."""
    records = CutPoissonRecords(LOSSES["usual"])
    at = torch.tensor([value], dtype=torch.float64)
    assert records.score(at, torch.ones(1).double()).shape == records.curvature(at, torch.ones(1).double()).shape


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_bound_in_deviations_in_place_of_counts_would_be_seen(adjacency: Adjacency) -> None:
    """Planted bug: t k with k = 2.75 Pearson units, where t b is what a record moves."""
    loss = CutPoisson(rate_cap=6.0, cut=2.75 * 2.0)
    case = Case("planted", ReencodedGradient(sigma=1.0, loss=loss, weight_bound=BOUND), Poisson(cap=1e7))
    right = case.question.sensitivity(known(1, adjacency))
    found = moves(case)[adjacency]
    assert found <= right * (1 + 1e-9)
    assert found > 1.9 * right * 2.75 / loss.cut


def test_residuals_that_are_not_cut_would_be_seen() -> None:
    """Planted bug: the cut is left out, and its bound is kept."""
    loss = LOSSES["usual"]
    case = Case("planted", ReencodedGradient(sigma=1.0, loss=loss, weight_bound=BOUND), Poisson(cap=1e7))
    with patch.object(CutPoissonRecords, "score", CutPoissonRecords._residual):
        found = moves.__wrapped__(case)[Adjacency.ZERO_OUT]
        assert found > 100 * case.question.sensitivity(known(1, Adjacency.ZERO_OUT))
