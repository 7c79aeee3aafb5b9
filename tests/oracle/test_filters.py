"""Privacy filters without a ledger."""

import pytest
import torch

from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.privacy.events import Gaussian, Repeated


def test_unmetered_affords_everything_and_holds_the_last_state() -> None:
    payments = UnlimitedFilter()
    payments.pay(Gaussian(sigma=1e-6))
    assert payments.affords(Gaussian(sigma=1e-6))
    assert payments.log.resume() is None
    payments.log.keep({"theta": torch.ones(2)}, 1)
    kept = payments.log.resume()
    assert kept is not None
    assert torch.equal(kept["theta"], torch.ones(2))


def test_counting_refuses_what_a_ledger_would() -> None:
    payments = CountingFilter(priced=Repeated(event=Gaussian(sigma=1.0), times=3))
    payments.pay(Repeated(event=Gaussian(sigma=1.0), times=2))
    with pytest.raises(AssertionError, match="follow"):
        payments.pay(Gaussian(sigma=1.0), length=0)
    with pytest.raises(AssertionError, match="its price"):
        payments.pay(Repeated(event=Gaussian(sigma=1.0), times=2))
    assert len(payments.totals) == len(payments.positions) == 1
