"""Privacy figures as they cross the wire: decimal strings, never JSON numbers, so that no float decides a budget."""

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from math import isfinite, sqrt
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Tag,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from core.base.errors import ensure
from core.privacy.acceptance import refuse_large_delta, refuse_weak
from core.privacy.budget import NANO, Terms, default_delta, plan_orders, terms_from_rho
from core.privacy.conversions import gdp_mu, mu_of_rho
from core.privacy.facts import Frozen

PATTERN: Final = r"^\d{1,6}(\.\d{1,12})?(e-\d{1,2})?$"
"""The form of a privacy figure; digits are ASCII."""

SHOWN_DIGITS: Final = 4
_FIGURE = re.compile(PATTERN.removeprefix("^").removesuffix("$"), re.ASCII)
_DECIMALS = 12
_LEAST_EXPONENT = -99  # the pattern reads back no smaller one
_SAFE = 1 - 1e-12  # kept back from a target, so that rounding in a plan made for it never passes it

Rounding = Literal["up", "down"]


def parse_figure(value: object) -> Decimal:
    """Read a privacy figure; a Decimal is taken as it is.

    Raises:
        ValueError: the figure is no string, or not of the form in `PATTERN`.
    """
    if isinstance(value, Decimal) and value.is_finite() and value >= 0:
        return value
    if not isinstance(value, str):
        raise ValueError('privacy figures are strings, such as "0.1" or "1e-6", never JSON numbers')  # noqa: TRY004 - pydantic reads ValueError
    if not _FIGURE.fullmatch(value):
        raise ValueError('write a decimal with up to 6 digits before and 12 after the point, such as "0.1" or "1e-6"')
    figure = Decimal(value)
    if figure and figure.adjusted() < _LEAST_EXPONENT:
        raise ValueError("is too small to mean anything")
    return figure


def write_figure(value: Decimal) -> str:
    """Write a figure the short way: plain where 12 decimals show it all, otherwise with an exponent."""
    if value == 0:
        return "0"
    sign_digits_exponent = value.normalize(Context(prec=40)).as_tuple()
    digits, exponent = sign_digits_exponent.digits, int(sign_digits_exponent.exponent)
    if exponent >= -_DECIMALS and len(digits) + exponent > -4:  # noqa: PLR2004 - as many leading zeros stay readable
        return format(value.normalize(Context(prec=40)), "f")
    fraction = min(len(digits) - 1, _DECIMALS)
    text = "".join(map(str, digits))
    whole = len(digits) - fraction
    return text[:whole] + (f".{text[whole:]}" if fraction else "") + f"e{exponent + fraction}"


def _positive(value: Decimal) -> Decimal:
    if value <= 0:
        raise ValueError("must be above 0")
    return value


def _refuse_above_one(share: Decimal | None, whole: str) -> None:
    """Refuse a share of a budget above 1, which is `whole`."""
    if share is not None and share > 1:
        raise ValueError(f"budget_share is at most 1, which is {whole}")


def write_share(percent: Decimal) -> str:
    """Write a percentage as a share from 0 to 1, with the same digits; write 0 if rounding made it negative."""
    return write_figure(max(percent, Decimal(0)).scaleb(-2))


_WIRE = {"type": "string", "pattern": PATTERN, "examples": ["0.1", "1e-6"]}
PrivacyFigure = Annotated[
    Decimal, BeforeValidator(parse_figure), PlainSerializer(write_figure, return_type=str), WithJsonSchema(_WIRE)
]
"""A figure of at least 0: a string in JSON, a Decimal inside."""

PositiveFigure = Annotated[
    Decimal,
    BeforeValidator(parse_figure),
    AfterValidator(_positive),
    PlainSerializer(write_figure, return_type=str),
    WithJsonSchema(_WIRE),
]
"""A figure above 0."""


def format_figure(value: float | Decimal, rounding: Rounding, digits: int = SHOWN_DIGITS) -> str:
    """Return a canonical decimal string with at most `digits` significant digits. Spent is rounded up, remaining down.

    Figures of 10,000 and more keep all their whole digits. A float's own error, up to 1e-12 of it, is not shown:
    the float .30000000000000004 rounds up to "0.3".
    """
    ensure(isfinite(value), "a figure shown to people is finite")
    ensure(value >= 0, "a figure shown to people is at least 0")
    slack = Decimal(0 if isinstance(value, Decimal) else "1e-12")
    exact = Decimal(value) * (1 - slack if rounding == "up" else 1 + slack)
    direction = ROUND_CEILING if rounding == "up" else ROUND_FLOOR
    precision = max(digits, exact.adjusted() + 1) if exact else digits
    rounded = Context(prec=precision, rounding=direction).plus(exact)
    if rounded and rounded.adjusted() < _LEAST_EXPONENT + digits:
        return f"1e{_LEAST_EXPONENT + digits}" if rounding == "up" else "0"
    return write_figure(rounded)


def _one_of(required: tuple[str, ...], optional: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the closed oneOf for exactly one of `required`, with any of `optional` and of `flags`."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {name: dict(_WIRE) for name in (choice, *optional)}
                | {name: {"type": "boolean"} for name in flags},
                "required": [choice],
                "additionalProperties": False,
            }
            for choice in required
        ]
    }


class _Choice(Frozen):
    """A closed choice; fields that were left out are not written back."""

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_names(cls, given: Any) -> Any:  # noqa: ANN401 - whatever was sent
        """Name the field that took the place of a retired one."""
        if "budget_share" in cls.model_fields and isinstance(given, dict):
            for old in {"percent", "share"} & given.keys():
                raise ValueError(f'give budget_share in place of {old}, a decimal string from 0 to 1: "0.2" is 20 %')
        return given

    def _demand_one(self, *names: str) -> None:
        # A null that was sent counts, too: the schema has no nulls.
        given = [name for name in names if name in self.model_fields_set]
        if len(given) != 1 or getattr(self, given[0]) is None:
            raise ValueError(f"give exactly one of {', '.join(names)}")


def _replace_schema(schema: dict[str, Any], choices: dict[str, Any]) -> None:
    """Put a oneOf in place of the properties that pydantic lists."""
    for key in ("properties", "required", "type", "additionalProperties"):
        schema.pop(key, None)
    schema.update(choices)


class PrivacyTarget(_Choice):
    """The total privacy cost of a job, inference included: exactly one of mu, rho, epsilon, budget_share."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: _replace_schema(schema, _one_of(("mu", "rho", "epsilon", "budget_share")))
    )

    mu: PositiveFigure | None = None
    rho: PositiveFigure | None = None
    epsilon: PositiveFigure | None = None
    budget_share: PositiveFigure | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        self._demand_one("mu", "rho", "epsilon", "budget_share")
        _refuse_above_one(self.budget_share, "the whole budget")
        return self

    def total_mu(self, terms: Terms) -> float:
        """Return the job's total mu under the terms of the scope that pays.

        rho is that of Gaussian answers; epsilon is taken at the scope's delta, exactly, rounded down; budget_share
        is of the empty budget: mu^2/2 = budget_share * max_j (cap_j / order_j), less one nano-nat for rounding.
        """
        if self.mu is not None:
            return float(self.mu)
        if self.rho is not None:
            return mu_of_rho(float(self.rho))
        if self.epsilon is not None:
            return gdp_mu(float(self.epsilon), float(terms.delta)) * _SAFE
        assert self.budget_share is not None, "one of the four is given"
        rooms = zip(terms.caps_nano, terms.orders, strict=True)
        per_cent = float(self.budget_share.scaleb(2))  # the float that jobs of 0.1.0 were planned with
        rho = per_cent / 100 * max(max(cap - 1, 0) / (order * NANO) for cap, order in rooms)
        return sqrt(2 * rho) * _SAFE


Acceptance = Annotated[bool, Field(strict=True)]
"""Acceptance of a weak promise; false is the same as leaving it out."""


class BudgetRequest(_Choice):
    """A budget as its owner declares it: epsilon or rho, with a delta or the default one.

    A delta above a tenth of 1/n, and an epsilon above 20, are taken only with `accept_delta` and `accept_weak_privacy`.
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: _replace_schema(
            schema, _one_of(("epsilon", "rho"), ("delta",), ("accept_delta", "accept_weak_privacy"))
        )
    )

    epsilon: PositiveFigure | None = None
    rho: PositiveFigure | None = None
    delta: PositiveFigure | None = None
    accept_delta: Acceptance | None = None
    accept_weak_privacy: Acceptance | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        self._demand_one("epsilon", "rho")
        return self

    def terms(self, units: int) -> Terms:
        """Return the fixed terms of this budget for a scope of `units` units.

        Raises:
            Invalid: as `plan`; or delta is too large for this number of units.
        """
        terms = self.plan(units)
        refuse_large_delta(terms.delta, units, accepted=bool(self.accept_delta))
        return terms

    def plan(self, units: int) -> Terms:
        """Return the fixed terms for at most `units` units, without the check of delta against their number.

        Raises:
            Invalid: epsilon, rho or delta is out of range or too small to keep, or epsilon so large that it must be
                accepted, and is not.
        """
        terms = self._planned(units)
        refuse_weak(terms.epsilon, accepted=bool(self.accept_weak_privacy))
        return terms

    def _planned(self, units: int) -> Terms:
        delta = self.delta if self.delta is not None else default_delta(units)
        if self.rho is not None:
            return terms_from_rho(self.rho, delta)
        assert self.epsilon is not None, "one of the two is given"
        return plan_orders(self.epsilon, delta)


class CapRequest(_Choice):
    """A part of a scope's budget: a share of it, or an epsilon or rho, at the scope's delta unless delta is given."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: _replace_schema(
            schema, {"oneOf": _one_of(("epsilon", "rho"), ("delta",))["oneOf"] + _one_of(("budget_share",))["oneOf"]}
        )
    )

    epsilon: PositiveFigure | None = None
    rho: PositiveFigure | None = None
    budget_share: PositiveFigure | None = None
    delta: PositiveFigure | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        self._demand_one("epsilon", "rho", "budget_share")
        _refuse_above_one(self.budget_share, 'the same as "all"')
        if self.budget_share is not None and self.delta is not None:
            raise ValueError("a budget_share has the scope's delta: leave delta out")
        return self


BudgetCap = Annotated[
    Annotated[Literal["all"], Tag("all")] | Annotated[CapRequest, Tag("part")],
    Discriminator(lambda value: "all" if isinstance(value, str) else "part"),
]
"""The part of a scope's budget that a principal may use: all of it, or less."""
