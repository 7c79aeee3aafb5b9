"""Figures on the wire: strings in, Decimals inside, the same figures out."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from core.privacy.amounts import (
    PATTERN,
    BudgetRequest,
    PositiveFigure,
    PrivacyFigure,
    PrivacyTarget,
    format_figure,
    write_figure,
)
from core.privacy.budget import admits, percent_of, plan_orders
from core.privacy.conversions import gdp_epsilon
from core.privacy.events import Gaussian, Repeated
from core.privacy.renyi import cost_nano

FIGURE: TypeAdapter[Decimal] = TypeAdapter(PrivacyFigure)
POSITIVE: TypeAdapter[Decimal] = TypeAdapter(PositiveFigure)
BAD = [0.1, 1, True, None, "", "-1", "+1", "1e400", "1e+4", "nan", "NaN", "inf", "1.", ".5", "1e-100", " 1", "1\n", "٣"]


@pytest.mark.parametrize("value", [*BAD, "1234567", "1.1234567890123", "0.000000000001e-99", [], {}], ids=repr)
def test_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        FIGURE.validate_python(value)
    with pytest.raises(ValidationError):
        FIGURE.validate_json(json.dumps(value))


def test_zero_is_a_figure_and_no_amount() -> None:
    assert FIGURE.validate_python("0") == 0
    with pytest.raises(ValidationError):
        POSITIVE.validate_python("0.0e-3")


@example("0.0000100001e-92")
@given(st.from_regex(re.compile(PATTERN, re.ASCII), fullmatch=True))
def test_round_trip(text: str) -> None:
    text = text.strip("\n")
    if Decimal(text) and Decimal(text).adjusted() < -99:
        return
    figure = FIGURE.validate_python(text)
    written = json.loads(FIGURE.dump_json(figure))
    assert re.fullmatch(PATTERN, written)
    assert Decimal(written) == figure == Decimal(text)
    assert write_figure(Decimal(written)) == written


@given(st.floats(1e-90, 999_999))
def test_format_rounds_to_its_side(value: float) -> None:
    up, down = format_figure(value, "up"), format_figure(value, "down")
    assert re.fullmatch(PATTERN, up)
    assert re.fullmatch(PATTERN, down)
    assert Decimal(down) * (1 - Decimal("2e-12")) <= Decimal(value) <= Decimal(up) * (1 + Decimal("2e-12"))
    assert Decimal(up) <= Decimal(value) * Decimal("1.0011")
    assert Decimal(down) >= Decimal(value) * Decimal("0.9989")


def test_format() -> None:
    assert format_figure(0.0, "up") == "0"
    assert format_figure(1.23401, "up") == "1.235"
    assert format_figure(1.23499, "down") == "1.234"
    assert format_figure(0.1 + 0.2, "up") == "0.3"
    assert format_figure(505_250.2, "up") == "505251"
    assert format_figure(5e-324, "up") == "1e-95"
    assert format_figure(Decimal("1e-90"), "up", digits=18) == "1e-81"  # no smaller figure of 18 digits is read back


@pytest.mark.parametrize(
    "body",
    [{}, {"mu": "1", "rho": "1"}, {"mu": None}, {"mu": 0.1}, {"mu": "0"}, {"budget_share": "1.01"}, {"sigma": "1"}],
    ids=repr,
)
def test_target_is_one_closed_choice(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PrivacyTarget.model_validate(body)


def test_schemas_are_closed_choices() -> None:
    schema = PrivacyTarget.model_json_schema()
    assert [choice["required"] for choice in schema["oneOf"]] == [["mu"], ["rho"], ["epsilon"], ["budget_share"]]
    assert not any(choice["additionalProperties"] for choice in schema["oneOf"])
    assert [sorted(choice["properties"]) for choice in BudgetRequest.model_json_schema()["oneOf"]] == [
        ["accept_delta", "accept_weak_privacy", "delta", "epsilon"],
        ["accept_delta", "accept_weak_privacy", "delta", "rho"],
    ]


def test_only_what_was_given_is_written_back() -> None:
    assert PrivacyTarget.model_validate_json('{"mu": "0.10"}').model_dump(mode="json") == {"mu": "0.1"}
    assert BudgetRequest.model_validate({"rho": "0.2"}).model_dump_json() == '{"rho":"0.2"}'


@pytest.mark.parametrize("epsilon", ["0.02", "1", "3", "8", "40"])
@pytest.mark.parametrize("share", ["0.0001", "0.075", "0.4", "1"])
def test_a_target_of_a_share_takes_that_share_and_fits(epsilon: str, share: str) -> None:
    terms = plan_orders(Decimal(epsilon), Decimal("1e-6"))
    nothing = (0,) * len(terms.orders)
    mu = PrivacyTarget.model_validate({"budget_share": share}).total_mu(terms)
    price = cost_nano(Repeated(event=Gaussian(sigma=24**0.5 / mu), times=24), terms.orders)
    assert admits(terms, nothing, nothing, price)
    assert percent_of(terms, nothing, nothing, price) == pytest.approx(100 * Decimal(share), abs=Decimal("0.001"))


def test_other_targets() -> None:
    terms = plan_orders(Decimal(3), Decimal("1e-6"))
    mus = {kind: PrivacyTarget.model_validate({kind: "0.5"}).total_mu(terms) for kind in ("mu", "rho", "epsilon")}
    assert mus["mu"] == 0.5
    assert mus["rho"] == 1.0
    assert gdp_epsilon(mus["epsilon"], 1e-6) == pytest.approx(0.5)
    assert gdp_epsilon(mus["epsilon"], 1e-6) <= 0.5


def test_budget_requests() -> None:
    assert BudgetRequest.model_validate({"epsilon": "3"}).terms(45_211).delta == Decimal("1e-7")
    assert BudgetRequest.model_validate({"epsilon": "3", "delta": "1e-6"}).terms(10) == plan_orders(
        Decimal(3), Decimal("1e-6")
    )
    assert BudgetRequest.model_validate({"rho": "0.5", "delta": "1e-6"}).terms(10).epsilon > 5
    for body in ({}, {"delta": "1e-6"}, {"epsilon": "1", "rho": "1"}, {"epsilon": 1}):
        with pytest.raises(ValidationError):
            BudgetRequest.model_validate(body)
