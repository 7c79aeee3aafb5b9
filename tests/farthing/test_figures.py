"""Privacy figures as numbers: the shortest decimal of each, and refusals that name the field."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.privacy.amounts import parse_figure
from farthing import Client, FarthingError, WrongInput
from farthing.figures import exact, figures
from tests.farthing.conftest import Released, body


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1"),
        (0.1, "0.1"),
        (1.0, "1"),
        (100, "100"),
        (1e-6, "0.000001"),
        (1.25e-15, "1.25e-15"),
        (2e-20, "2e-20"),
        (Decimal("0.10"), "0.1"),
        (Decimal("1E+2"), "100"),
        (np.float64(0.3), "0.3"),
        (np.float32(0.1), "0.1"),
        (np.int64(3), "3"),
        (0, "0"),
        ("0.50", "0.50"),
    ],
)
def test_a_number_is_the_decimal_that_it_prints_as(number: Any, text: str) -> None:
    assert figures({"epsilon": number}, "/privacy") == {"epsilon": text}


@pytest.mark.parametrize(
    "wrong",
    [float("nan"), float("inf"), -0.1, -1, True, 1 / 3, 0.1 + 0.2, 1e6, 10**30, 5e-324, Fraction(1, 3), 1j, [0.1],
     np.float64("nan"), np.array([0.1, 0.2]), np.bool_(True), Decimal("sNaN"), Decimal("-Infinity")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    ("part", "pointer"), [("privacy", "/privacy/mu"), ("budget", "/budget/mu"), ("budget_cap", "/budget_cap/mu")]
)
def test_no_figure_is_refused_at_its_field(wrong: Any, part: str, pointer: str) -> None:
    with pytest.raises(WrongInput) as refused:
        exact({part: {"mu": wrong}})
    assert refused.value.errors[0]["pointer"] == pointer


def test_too_many_digits_say_what_to_write() -> None:
    with pytest.raises(WrongInput, match=r'as "0\.3"'):
        figures({"epsilon": 0.1 + 0.2}, "/privacy")


@given(st.floats(min_value=1e-90, max_value=999_999, allow_nan=False))
def test_the_service_reads_the_very_number(number: float) -> None:
    try:
        found = figures({"mu": number}, "")["mu"]
    except WrongInput:
        # Only figures of more digits than the service reads are refused.
        assert len(repr(number).replace(".", "")) > 12
        return
    assert parse_figure(found) == Decimal(repr(number))
    assert float(found) == number


def test_what_is_no_figure_is_left() -> None:
    asked = {"budget": {"epsilon": 1, "accept_delta": True, "delta": None}, "goal": {"power": 0.8}, "budget_cap": "all"}
    assert exact(asked) == {**asked, "budget": {"epsilon": "1", "accept_delta": True, "delta": None}}
    assert asked["budget"]["epsilon"] == 1, "the caller's own mapping stays"


def test_jobs_estimates_caps_and_declarations_take_numbers(client: Client, released: Released) -> None:
    job = body(released.dataset) | {"privacy": {"mu": 0.25}}
    found = client.estimate(job)
    assert found.cost is not None
    assert found.cost.mu == "0.25"
    assert "0.25" in [point.mu for point in client.curve(job).points]
    columns = [
        {name: value for name, value in one.items() if value is not None}
        for one in client.dataset(released.dataset).columns
    ]
    declaration = {"columns": columns, "rows": 2000, "adjacency": "zero_out", "budget": {"epsilon": 3, "delta": 1e-6}}
    planned = {name: value for name, value in job.items() if name != "dataset"}
    assert client.estimate(planned, declaration=declaration).cost
    analyst = client.create_key("num", "analyst")
    assert client.share(released.dataset, analyst.principal, {"budget_share": 0.05}).budget_cap == {
        "budget_share": "0.05"
    }
    client.unshare(released.dataset, analyst.principal)
    with pytest.raises(WrongInput, match="/privacy/mu"):
        client.submit(job | {"privacy": {"mu": -1}})
    with pytest.raises(FarthingError, match="/privacy"):
        client.submit(job | {"privacy": 0.25})
