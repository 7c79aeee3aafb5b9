"""Budgets that protect hardly anybody, at the very borders."""

from decimal import Decimal

import pytest

from core.base.errors import Invalid
from core.privacy.acceptance import refuse_large_delta, refuse_weak
from core.privacy.amounts import BudgetRequest


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(("delta", "units"), [("0.01", 100), ("0.00333333333334", 300), ("1e-6", 10**6)])
def test_one_over_n_is_refused(delta: str, units: int, *, accepted: bool) -> None:
    with pytest.raises(Invalid, match="1/n or more") as refused:
        refuse_large_delta(Decimal(delta), units, accepted=accepted)
    assert refused.value.fields[0].pointer == "/budget/delta"


@pytest.mark.parametrize(("delta", "units"), [("0.0099", 100), ("0.00100001", 100), ("1e-6", 100_001)])
def test_a_tenth_of_it_asks(delta: str, units: int) -> None:
    refuse_large_delta(Decimal(delta), units, accepted=True)
    with pytest.raises(Invalid, match="more than a tenth of 1/n") as refused:
        refuse_large_delta(Decimal(delta), units, accepted=False)
    assert refused.value.fields[0].pointer == "/budget/accept_delta"


@pytest.mark.parametrize(("delta", "units"), [("0.001", 100), ("1e-6", 100_000), ("1e-12", 1), ("1e-5", 9999)])
def test_less_is_taken(delta: str, units: int) -> None:
    refuse_large_delta(Decimal(delta), units, accepted=False)


def test_the_default_never_asks() -> None:
    for units in (1, 2, 9, 10, 11, 999, 10**4, 10**5 + 1, 10**8):
        BudgetRequest.model_validate({"epsilon": "8"}).terms(units)


def test_an_epsilon_above_twenty_asks() -> None:
    refuse_weak(Decimal(20), accepted=False)
    refuse_weak(Decimal(1000), accepted=True)
    with pytest.raises(Invalid, match="hides hardly anything"):
        refuse_weak(Decimal("20.000001"), accepted=False)
    with pytest.raises(Invalid, match="hides hardly anything"):
        BudgetRequest.model_validate({"rho": "6", "delta": "1e-6"}).plan(100)
