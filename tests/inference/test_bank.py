"""The bank data with planned settings: agreement without noise, coverage and width of intervals with it.

Noise seeds are fixed; the thresholds are those promised or stricter, and the planned settings pass.
"""

import numpy as np
import pytest

from benchmarks.bank_accuracy import BOUNDS, CENTRES, GENEROUS, RARE_FIRST, declare, plan, read, study
from core.models.design import Design

UNITS = 45_211


@pytest.fixture(scope="module")
def data() -> dict[str, list[str]]:
    return read()


def test_with_almost_no_noise_estimates_agree_to_three_digits(data: dict[str, list[str]]) -> None:
    assert len(data["y"]) == UNITS
    seen = study(plan(declare(data), UNITS, "1000"), data, 1)
    assert seen.errors.max() < 0.02, "in non-private standard errors"
    assert np.median(seen.errors) < 0.002


@pytest.mark.parametrize(
    ("bounds", "centres", "first"),
    [
        pytest.param(BOUNDS, None, None, marks=pytest.mark.slow),
        (BOUNDS, None, RARE_FIRST),
        pytest.param(BOUNDS, CENTRES, None, marks=pytest.mark.slow),
        pytest.param(GENEROUS, None, None, marks=pytest.mark.slow),
    ],
    ids=["exact", "rare baselines", "centres", "generous"],
)
def test_intervals_cover_and_are_no_wider_than_promised(
    data: dict[str, list[str]],
    bounds: dict[str, tuple[int, int]],
    centres: dict[str, int] | None,
    first: dict[str, str] | None,
) -> None:
    seen = study(plan(declare(data, bounds, centres, first), UNITS, "1"), data, 20, seed=1000)
    assert seen.coverage[seen.key].mean() >= 0.95
    assert np.median(seen.ratio[seen.key]) <= 1.8
    assert seen.coverage.mean() >= 0.92
    assert np.median(seen.ratio) <= 5
    assert seen.coverage.min() >= 0.6, "no coefficient is left out"


def test_slow_steps_that_are_not_owned_up_to_are_seen_to_fail(data: dict[str, list[str]]) -> None:
    """Planted: with a floor of .05, larger than most eigenvalues, and no plausible radius, intervals are wrong."""
    planned = plan(declare(data), UNITS, "1")
    assert planned.spec.inference.plausible_radius is not None
    slow = planned.spec.model_copy(
        update={
            "optimizer": planned.spec.optimizer.model_copy(update={"eigenvalue_floor": 0.05}),
            "inference": planned.spec.inference.model_copy(update={"plausible_radius": 1e-6}),
        }
    )
    seen = study(planned.model_copy(update={"spec": slow}), data, 5)
    assert seen.coverage.mean() < 0.9


def test_forgetting_that_contrasts_share_a_baseline_is_seen_to_fail(
    data: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: without the shared direction, contrasts with a rare baseline are short and wrong."""
    planned = plan(declare(data, first=RARE_FIRST), UNITS, "1")
    monkeypatch.setattr(Design, "baseline_shifts", lambda design: np.zeros((0, design.dimension)))
    assert study(planned, data, 5).coverage.mean() < 0.9
