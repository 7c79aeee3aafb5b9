"""A hospital's visits as an export has them: a made-up file with each mess of real ones.

`write` makes it: semicolons, decimal commas, an encoding of letters, two forms of dates, misspelt categories, several
words for "not known", free text with separators and line ends, and patients who came more than once. No record is real.
"""

from collections.abc import Mapping
from datetime import date, timedelta
from math import exp
from pathlib import Path
from random import Random  # noqa: TID251 - made-up people are drawn here, no noise
from typing import Any, Final

NAME: Final = "visits"
PATIENTS, VISITS = 5_200, 8_000
BEGIN: Final = date(2023, 1, 1)
DAYS: Final = 730
WARDS: Final = {
    "medicine": ("Medicine", "medicine ", "medicin", "Int. Med."),
    "surgery": ("Surgery", "surgrey", "SURGERY"),
    "geriatrics": ("Geriatrics", "geriatric", "geriatrcs"),
    "emergency": ("Emergency", "ER", "emergancy"),
}
"""Wards of the codebook, and texts that people typed."""
SEXES: Final = {"female": ("F", "f", "Female", "femal"), "male": ("M", "m", "Male")}
ANSWERS: Final = {"no": ("No", "n"), "yes": ("Yes", "y")}
UNKNOWN: Final = ("", "NA", "-", "not known")
NOTES: Final = (
    "",
    "Fühlt sich gut; Entlassung",
    'called "Jürgen", no reply',
    "two lines:\nsecond one; same visit",
    "Größe nicht gemessen",
)
HEADER: Final = (
    "patient",
    "admitted",
    "age",
    "sex",
    "ward",
    "weight_kg",
    "creatinine",
    "stay_days",
    "readmitted",
    "note",
)

COLUMNS: Final[list[dict[str, Any]]] = [
    {"name": "admitted", "type": "date", "lower": "2023-01-01", "upper": "2024-12-31"},
    {"name": "age", "type": "integer", "lower": 18, "upper": 95, "centre": 60, "deviation": 17, "missing": [999]},
    {"name": "sex", "type": "binary", "values": ["female", "male"]},
    {"name": "ward", "type": "category", "values": list(WARDS)},
    {"name": "weight_kg", "type": "number", "lower": 40, "upper": 140, "centre": 75, "deviation": 15},
    {"name": "creatinine", "type": "number", "lower": 0.3, "upper": 4, "centre": 1, "deviation": 0.4},
    {"name": "stay_days", "type": "integer", "lower": 0, "upper": 30, "centre": 5, "deviation": 4},
    {"name": "readmitted", "type": "binary", "values": ["no", "yes"]},
]
"""The codebook of the file: no name, no free text, and nothing that was computed from its rows."""


def write(path: Path, *, seed: int | None = None, encoding: str = "latin-1") -> None:
    """Write 8,000 visits of 5,200 patients.

    Args:
        path: of the file.
        seed: of the draws; None: other people each time, so that an upload meets no earlier one of the same people.
        encoding: of its letters; `utf-8-sig` puts a byte order mark before them.
    """
    draw = Random(seed)
    people = [_patient(draw, number) for number in range(PATIENTS)]
    came = people + [draw.choice(people) for _ in range(VISITS - PATIENTS)]
    draw.shuffle(came)
    lines = [";".join(HEADER), *(";".join(_visit(draw, one)) for one in came)]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode(encoding))


def _patient(draw: Random, number: int) -> dict[str, Any]:
    male = _happens(draw, 0.48)
    return {
        "patient": f"P{100_000 + 7 * number}",
        "age": int(min(max(draw.gauss(60, 17), 18), 99)),
        "sex": "male" if male else "female",
        "weight": draw.gauss(82 if male else 69, 13),
        "creatinine": max(draw.gauss(1.05 if male else 0.85, 0.3), 0.3),
    }


def _visit(draw: Random, person: dict[str, Any]) -> list[str]:
    ward = draw.choices(list(WARDS), (4, 3, 2, 2))[0]
    stay = min(int(draw.expovariate(1 / 5)), 60)
    score = -1.4 + 0.03 * (person["age"] - 60) + 0.9 * (person["creatinine"] - 1) + 0.06 * (stay - 5)
    score += {"medicine": 0.0, "surgery": -0.5, "geriatrics": 0.5, "emergency": 0.3}[ward]
    back = draw.random() < 1 / (1 + exp(-score))
    day = BEGIN + timedelta(days=draw.randrange(DAYS))
    form = "%d.%m.%Y" if _happens(draw, 0.3) else "%Y-%m-%d"
    note = draw.choice(NOTES).replace('"', '""')
    return [
        person["patient"],
        day.strftime(form),
        "999" if _happens(draw, 0.004) else str(person["age"]),
        _typed(draw, person["sex"], SEXES),
        _typed(draw, ward, WARDS),
        _figure(draw, person["weight"], 1),
        _figure(draw, person["creatinine"], 2),
        str(stay),
        _typed(draw, "yes" if back else "no", ANSWERS),
        f'"{note}"' if note else "",
    ]


def _happens(draw: Random, chance: float) -> bool:
    return draw.random() < chance


def _typed(draw: Random, value: str, other: Mapping[str, tuple[str, ...]]) -> str:
    return draw.choice(other[value]) if _happens(draw, 0.15) else value


def _figure(draw: Random, value: float, digits: int) -> str:
    return draw.choice(UNKNOWN) if _happens(draw, 0.008) else f"{value:.{digits}f}".replace(".", ",")
