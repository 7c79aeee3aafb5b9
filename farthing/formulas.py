"""Formulas as R and statsmodels write them, as the model of a job: `y ~ age + C(region)*sex`.

formulaic reads them, and nothing in them is evaluated. A formula names declared columns: whether one is a number or a
category is in the dataset's declaration, and a category's first declared value is its baseline.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from farthing.errors import WrongInput
from farthing.extras import needed

_LONGEST: Final = 10_000
_CATEGORY: Final = re.compile(r"C\(\s*(?:`(?P<tick>[^`]+)`|(?P<plain>[^\W\d][\w.]*))\s*\)")
_QUOTED: Final = re.compile(r"Q\(\s*(?P<mark>['\"])(?P<name>.+)(?P=mark)\s*\)")
_FIXES: Final = {
    "C": "write C(x): its baseline is the first declared value, so declare them in another order",
    "offset": "name it beside the formula: formula(..., offset='x'), or exposure='x' of counts",
    "bs": "splines are not offered: upload their basis as columns with declared bounds",
    "cr": "splines are not offered: upload their basis as columns with declared bounds",
    "cc": "splines are not offered: upload their basis as columns with declared bounds",
}
_TRANSFORMED: Final = "name a declared column: upload a transformed one beside it, with its own bounds"
_CODED: Final = frozenset({"category", "binary"})
_OWN: Final = frozenset({"target", "features", "interactions", "intercept"})


def formula(
    text: str,
    kind: str = "linear",
    *,
    columns: Iterable[Mapping[str, Any]] | None = None,
    **settings: Any,  # noqa: ANN401 - the model's own, which the service checks
) -> dict[str, Any]:
    """Return the model of a job that a formula means.

    Args:
        text: `target ~ terms`, of columns, `C(column)`, `+ - : * /` and `(...)**2`; `- 1` takes the intercept away.
        kind: of the model, such as `logistic`.
        columns: the dataset's, as `client.dataset(id).columns`. With them a category without its baseline's term, and
            `C(x)` of a number, are refused; without them `C(x)` means `x`, and products need all their main effects.
        settings: other fields of the model, such as `ridge=1`, `offset="x"` or `weights={...}`.

    Raises:
        MissingExtra: formulaic is not installed.
        WrongInput: the formula cannot be read, or has what no job offers; it points at the place.
    """
    tokenize = needed("formulaic.parser.algos.tokenize", "a formula").tokenize
    parser = needed("formulaic.parser", "a formula").DefaultFormulaParser()
    clash = sorted(_OWN & settings.keys())
    if clash:
        fix = "leave it out, or write the model as a dict"
        raise WrongInput(f"The formula says `{clash[0]}`.", f"/{clash[0]}", fix)
    if len(text) > _LONGEST:
        raise _refused(text, None, f"it is longer than {_LONGEST:,} letters")
    types = {str(one["name"]): str(one["type"]) for one in columns or ()}
    try:
        tokens = list(tokenize(text))
        plain, categories = _plain(text, tokens, types)
        sides = parser.get_terms(plain)
    except WrongInput:
        raise
    except Exception as wrong:  # whatever formulaic meets is of this text
        raise _refused(text, None, _first_line(wrong)) from wrong
    target, terms = _sides(text, sides)
    _check_coding(text, terms, categories | {name for name, of in types.items() if of in _CODED}, types)
    model: dict[str, Any] = {"kind": kind, "target": target, "intercept": () in terms}
    model["features"] = [names[0] for names in terms if len(names) == 1]
    if not model["features"]:
        raise _refused(text, None, "it names no column for itself beside the target, such as y ~ x")
    interactions = [list(names) for names in terms if len(names) > 1]
    return model | ({"interactions": interactions} if interactions else {}) | settings


def _plain(text: str, tokens: list[Any], types: Mapping[str, str]) -> tuple[str, set[str]]:
    """Return a formula with plain names in place of `C(x)` and `Q("x")`, and the names that stood in a `C`.

    Raises:
        WrongInput: something would be evaluated, or read as something else; it points at the place.
    """
    plain, end = "", 0
    parts: list[str] = []
    categories: set[str] = set()
    for token in tokens:
        kind, written, at = token.kind.value, token.token, token.source_start
        if written == ".":
            raise _refused(text, at, "for all other columns leave `features` out of a model written as a dict")
        if kind == "python":
            coded, quoted = _CATEGORY.fullmatch(written), _QUOTED.fullmatch(written)
            if coded is None and quoted is None:
                function = re.match(r"\w*", written)
                raise _refused(text, at, _FIXES.get(function[0] if function else "", _TRANSFORMED))
            written = quoted["name"] if quoted else (coded["tick"] or coded["plain"] if coded else "")
            plain, end = f"{plain}{text[end:at]}`{written}`", token.source_end + 1
            if coded:
                categories.add(written)
                if types.get(written, "category") not in _CODED:
                    fix = f"`{written}` is declared as {types[written]}: declare a category, or write {written}"
                    raise _refused(text, at, fix)
        # In a formula a column times itself is the column: no square comes of it, and nobody would see that.
        if kind in {"name", "python"}:
            written = f"`{written}`"
            if parts[-1:] in ([":"], ["*"]) and parts[-2:-1] == [written]:
                raise _refused(text, at, f"{written} times itself is no square here: upload its square as a column")
        if kind == "operator" and written in {"**", "^"} and parts[-1:] != [")"]:
            raise _refused(text, at, "a power is of terms, as in (a + b)**2: upload a column's square as a column")
        parts.append(written)
    return plain + text[end:], categories


def _check_coding(text: str, terms: list[tuple[str, ...]], categories: set[str], types: Mapping[str, str]) -> None:
    """Refuse terms whose categories R would code in full: here each value but the first has a coefficient.

    Raises:
        WrongInput: naming the absent term.
    """
    there = {frozenset(term) for term in terms}
    for term in terms:
        for name in term:
            # A main effect may be a number; a product is refused unless its columns are known to be numbers.
            known = name in categories if len(term) == 1 else name in categories or name not in types
            if known and (rest := frozenset(term) - {name}) not in there:
                lacking = ":".join(one for one in term if one in rest) or "the intercept"
                fix = f"`{':'.join(term)}` without {lacking} would have no coefficient for the first value of `{name}`"
                hint = "" if types else ", unless columns=client.dataset(id).columns says that it is a number"
                raise _refused(text, None, f"{fix}: add {lacking}{hint}")


def _sides(text: str, sides: Any) -> tuple[str, list[tuple[str, ...]]]:  # noqa: ANN401 - formulaic's
    """Return the target, and the columns of each term; none of the intercept."""
    found = getattr(sides, "_structure", {})
    left, right = found.get("lhs"), found.get("rhs")
    if left is None or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        raise _refused(text, None, "it must be one target ~ terms")
    targets = [_names(text, term) for term in left]
    if len(targets) != 1 or len(targets[0]) != 1:
        raise _refused(text, 0, "one column stands to the left of ~: a model has one target")
    return targets[0][0], [_names(text, term) for term in right]


def _names(text: str, term: Any) -> tuple[str, ...]:  # noqa: ANN401 - formulaic's
    factors = [(one.expr, one.eval_method.value) for one in term.factors]
    if factors == [("1", "literal")]:
        return ()
    number = next((written for written, method in factors if method == "literal"), None)
    if number is not None:
        raise _refused(text, None, f"a column cannot be multiplied by {number}")
    return tuple(written for written, _ in factors)


def _first_line(wrong: Exception) -> str:
    return (str(wrong).strip() or type(wrong).__name__).splitlines()[0]


def _refused(text: str, at: int | None, why: str) -> WrongInput:
    shown = text[:200].replace("\n", " ")
    place = "" if at is None or at > len(shown) else f"\n  {' ' * at}^"
    return WrongInput(f"this formula cannot be taken: {why}\n  {shown}{place}")
