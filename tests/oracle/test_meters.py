"""Meters without a ledger."""

import pytest
import torch

from core.oracle.meters import CountingMeter, Unmetered
from core.privacy.events import Gaussian, Repeated


def test_unmetered_affords_everything_and_holds_the_last_state() -> None:
    meter = Unmetered()
    meter.cover(Gaussian(sigma=1e-6), 1)
    assert meter.affords(Gaussian(sigma=1e-6))
    assert meter.resume() is None
    meter.keep({"theta": torch.ones(2)}, 1)
    kept = meter.resume()
    assert kept is not None
    assert torch.equal(kept["theta"], torch.ones(2))


def test_counting_refuses_what_a_ledger_would() -> None:
    meter = CountingMeter(priced=Repeated(event=Gaussian(sigma=1.0), times=3))
    meter.cover(Repeated(event=Gaussian(sigma=1.0), times=2), 1)
    with pytest.raises(AssertionError, match="grows"):
        meter.cover(Gaussian(sigma=1.0), 2)
    with pytest.raises(AssertionError, match="follow"):
        meter.cover(Repeated(event=Gaussian(sigma=1.0), times=3), 1)
    with pytest.raises(AssertionError, match="priced"):
        meter.cover(Repeated(event=Gaussian(sigma=1.0), times=4), 2)
    assert len(meter.totals) == len(meter.positions) == 1
