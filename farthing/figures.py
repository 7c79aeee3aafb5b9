"""Privacy figures on their way to the service: numbers become the exact decimal strings that they print as.

A float stands for its shortest decimal: 0.1 is "0.1". The service itself takes strings alone, so that no float decides
a budget.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from numbers import Number
from typing import Any, Final

from farthing.errors import WrongInput

_FIGURES: Final = frozenset({"mu", "rho", "epsilon", "delta", "budget_share"})
_PARTS: Final = ("privacy", "budget", "budget_cap")
"""Members of a request that hold figures."""
_DECIMALS: Final = 12
"""That a figure may have, beside its exponent."""
_MOST: Final = Decimal(10**6)
_LEAST_EXPONENT: Final = -99


def exact(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with its privacy figures as strings: those of privacy, budget, cap and declaration.

    Raises:
        WrongInput: a figure is negative, not finite, no number, or has more digits than figures have; it is named.
    """
    found = dict(body)
    for part in _PARTS:
        if isinstance(found.get(part), Mapping):
            found[part] = figures(found[part], f"/{part}")
    declared = found.get("declaration")
    if isinstance(declared, Mapping) and isinstance(declared.get("budget"), Mapping):
        found["declaration"] = {**declared, "budget": figures(declared["budget"], "/declaration/budget")}
    return found


def figures(given: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """Return a target, budget or cap with its figures as strings; texts, nulls and other members are left.

    Raises:
        WrongInput: as `exact`.
    """
    return {
        name: value if name not in _FIGURES or value is None or isinstance(value, str) else _text(value, pointer, name)
        for name, value in given.items()
    }


def _text(value: object, pointer: str, name: str) -> str:
    where = f"{pointer}/{name}"
    try:
        # NumPy's scalars are numbers, too, and print their own shortest decimal; True would be read as 1.
        figure = None if isinstance(value, bool) or not isinstance(value, Number) else Decimal(str(value))
    except InvalidOperation:  # of a fraction, or of a complex number
        figure = None
    if figure is None:
        fix = 'must be a number or a decimal string, as "0.1"'
        raise WrongInput(f"{name} is of type {type(value).__name__}.", where, fix)
    if not figure.is_finite() or figure < 0:
        raise WrongInput(f"{name} is {value}.", where, "must be finite and at least 0")
    if figure >= _MOST or (figure and figure.adjusted() <= _LEAST_EXPONENT):
        raise WrongInput(f"{name} is {value}.", where, "must be below 1,000,000, and no smaller than 1e-98")
    plain = format(figure.normalize(), "f")
    if len(plain.partition(".")[2]) <= _DECIMALS:
        return plain
    digits = "".join(map(str, figure.normalize().as_tuple().digits))
    if len(digits) - 1 > _DECIMALS:
        near = f"{figure:.{_DECIMALS}f}".rstrip("0")
        raise WrongInput(
            f"{name} is {value}.", where, f'has more digits than figures have: write it as text, as "{near}"'
        )
    return f"{digits[0]}{f'.{digits[1:]}' if digits[1:] else ''}e{figure.adjusted()}"
