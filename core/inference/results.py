"""A model for people: the coefficient table, ratios, and the notes that belong beside them.

Everything here is arithmetic on one released value, so it costs nothing and never meets a record. No torch: the API
renders these.
"""

from collections.abc import Iterable, Sequence
from math import exp, sqrt
from typing import Any

from scipy.special import ndtr, ndtri

from core.base.errors import FieldError, Invalid
from core.inference import tails
from core.inference.released import Released, declared, residual_scale
from core.inference.wording import complete_records, loss_words, notes, title, weight_words
from core.privacy.reports import Report

RATIOS = {"logistic": "odds_ratio", "poisson": "rate_ratio", "multinomial": "odds_ratio"}
"""Name of exp(coefficient); a multinomial model's odds are against the baseline class."""
LARGEST_EXPONENT = 700.0
"""No float holds exp(710)."""


def summary(released: Released, levels: Sequence[float] = ()) -> dict[str, Any]:
    """Return the coefficient table, as statisticians print it, with its privacy.

    Args:
        released: a model's row.
        levels: of the intervals, in the order to show them; none: the job's own.
    """
    levels = asked(released, levels)
    return {
        "title": title(released),
        "optimizer": released.optimizer,
        "kind": released.kind,
        "target": released.target,
        "loss": loss_words(released),
        "weights": weight_words(released),
        "n": released.units,
        "complete": complete_records(released),
        "steps": released.steps,
        "status": released.status,
        "level": levels[0],
        "levels": list(levels),
        # A method with checks makes its own covariance, of which the setting says nothing.
        "correction": None if released.checks is not None else released.correction,
        "coefficients": table(released, levels),
        "scale": _scale(released, levels),
        "flags": released.flags.model_dump(),
        "notes": notes(released),
        "tails": tails.block(released, levels, line),
        "sweep": None if released.sweep is None else released.sweep.model_dump(mode="json"),
        "privacy": privacy_block(released.privacy),
    }


def asked(released: Released, levels: Sequence[float]) -> tuple[float, ...]:
    """Return the levels to show, each once: the job's own where none was asked for."""
    return tuple(dict.fromkeys(levels)) or (released.level,)


def privacy_block(report: Report) -> dict[str, Any]:
    """Return the promise under the scope's adjacency and what it implies under the other."""
    return {
        **report.promise.model_dump(),
        "adjacency": report.adjacency.value,
        "label": report.label,
        "implies": {relation.value: promise.model_dump() for relation, promise in report.implies.items()},
    }


def caveats(released: Released) -> dict[str, Any]:
    """Return flags and notes, which go wherever intervals and tests do."""
    return {"flags": released.flags.model_dump(), "notes": notes(released)}


def table(released: Released, levels: Sequence[float]) -> list[dict[str, Any]]:
    """Return one line a coefficient, in declared units."""
    shown, errors = declared(released), shown_errors(released)
    return [
        {"name": name, **line(estimate, error, levels), **flags_beside(released, place)}
        for place, (name, estimate, error) in enumerate(zip(shown.names, shown.estimate, errors, strict=True))
    ]


def flags_beside(released: Released, place: int) -> dict[str, Any]:
    """Return what is said beside a coefficient, in words, of methods that check their estimate."""
    if released.checks is None:
        return {}
    foreseen, kept = released.checks.foreseen, released.checks.kept
    return {
        "flags": list(released.checks.words(place)),
        "foreseen_error": foreseen[place] if foreseen else None,
        "kept_weight": kept[place] if kept else None,
    }


def shown_errors(released: Released) -> list[float | None]:
    """Return the coefficients' standard errors in declared units, None where they are withheld or there are none."""
    errors = std_errors(released)
    return [None if place in released.withheld else error for place, error in enumerate(errors)]


def need_sound(released: Released, places: Iterable[int], pointer: str) -> None:
    """Refuse what rests on coefficients whose intervals are withheld.

    Raises:
        Invalid: naming the first of them and what is wrong with it.
    """
    bad = sorted(released.withheld & frozenset(places))
    if bad and released.checks is not None:
        name, words = released.names[bad[0]], ", ".join(released.checks.words(bad[0]))
        raise Invalid(
            f"The interval of {name!r} is withheld: {words}.",
            FieldError(pointer, "leave this coefficient out, or fit a model that the data identify"),
        )


def std_errors(released: Released) -> list[float | None]:
    """Return the coefficients' standard errors in declared units, None without a covariance."""
    shown = declared(released)
    if shown.covariance is None:
        return [None] * len(shown.names)
    return [sqrt(max(row[index], 0.0)) for index, row in enumerate(shown.covariance)]


def line(estimate: float, error: float | None, levels: Sequence[float]) -> dict[str, Any]:
    """Return an estimate with its standard error, z, two-sided p and interval; all of them where levels are several."""
    if error is None:
        found: dict[str, Any] = {"std_error": None, "z": None, "p_value": None, "interval": None}
        return {"estimate": estimate, **found}
    z = estimate / error if error > 0 else None
    return {
        "estimate": estimate,
        "std_error": error,
        "z": z,
        "p_value": None if z is None else float(2 * ndtr(-abs(z))),
        **bands(estimate, error, [(level, pointwise(level)) for level in levels]),
    }


def pointwise(level: float) -> float:
    """Return how many standard errors an interval of its own at `level` reaches to each side."""
    return float(ndtri((1 + level) / 2))


def bands(estimate: float, error: float, reaches: Iterable[tuple[float, float]]) -> dict[str, Any]:
    """Return the interval at the first level, and all of them where there are several.

    Args:
        estimate: the middle.
        error: its standard error.
        reaches: pairs of a level and how many standard errors its interval reaches to each side.
    """
    found = [{"level": level, "interval": [estimate - by * error, estimate + by * error]} for level, by in reaches]
    return {"interval": found[0]["interval"]} | ({"intervals": found} if len(found) > 1 else {})


def ratios(released: Released, levels: Sequence[float] = (), kind: str = "odds_ratio") -> list[dict[str, Any]]:
    """Return exp(coefficient) with its interval, for each coefficient but the intercepts.

    Raises:
        Invalid: this kind of model has no such ratios.
    """
    name = RATIOS.get(released.kind)
    if name != kind:
        wanted, models = ("Odds", "logistic or multinomial") if kind == "odds_ratio" else ("Rate", "Poisson")
        has = f"; this one has {name.replace('_', ' ')}s" if name else ""
        raise Invalid(
            f"{wanted} ratios are for {models} models{has}.",
            FieldError("/model", f"ask for {wanted.lower()} ratios of a {models} model"),
        )
    rows = table(released, asked(released, levels))
    return [
        {
            "name": row["name"],
            kind: _exponential(row["estimate"]),
            "interval": _exponentials(row["interval"]),
            **(
                {"intervals": [{**one, "interval": _exponentials(one["interval"])} for one in row["intervals"]]}
                if "intervals" in row
                else {}
            ),
        }
        for row, column in zip(rows, released.columns, strict=True)
        if column is not None
    ]


def need_covariance(released: Released) -> None:
    """Refuse what needs a covariance where there is none.

    Raises:
        Invalid: naming what to ask for.
    """
    if released.covariance is None:
        raise Invalid(
            notes(released)[0],
            FieldError("/model", "submit a job with inference.intervals true, and Mallows or Schweppe weights"),
        )


def covariance(released: Released) -> dict[str, Any]:
    """Return the coefficients' covariance in declared units, with None where a coefficient's interval is withheld.

    Raises:
        Invalid: the job asked for no intervals, or the method has none.
    """
    need_covariance(released)
    matrix = declared(released).covariance or ()
    return {
        "coefficients": list(released.names),
        "covariance": [
            [None if {row, column} & released.withheld else value for column, value in enumerate(values)]
            for row, values in enumerate(matrix)
        ],
        **caveats(released),
    }


def _scale(released: Released, levels: Sequence[float]) -> dict[str, Any] | None:
    """Return an estimated residual scale with its interval; no test of it against zero means anything."""
    found = residual_scale(released)
    if found is None:
        return None
    figures = line(found.estimate, found.std_error, levels)
    return {name: value for name, value in figures.items() if name not in {"z", "p_value"}}


def _exponentials(ends: Sequence[float] | None) -> list[float | None] | None:
    return None if ends is None else [_exponential(end) for end in ends]


def _exponential(value: float) -> float | None:
    """Return exp(value), None where no float holds it."""
    return exp(value) if value < LARGEST_EXPONENT else None
