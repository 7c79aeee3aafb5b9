"""Files that nobody here made, from packages of statistics, made messy in the usual ways, go from file to intervals.

Each is drafted with a sniffed form, sealed, rehearsed, trained and predicted by the SDK, as a user would. The files lie
in statsmodels and scikit-learn; their rows are public.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from farthing import Client, FarthingError, formula

WORDS = ("NA", "n/a", "-", "unbekannt", "")
NOTES = ('Größe; "nicht" gemessen', "ça va\nbien", "", "naïve")
SEEN = {"name": "seen", "type": "date", "lower": "2020-01-01", "upper": "2023-12-31"}
STATSMODELS = files("statsmodels.datasets")
EPSILON = "20"


def number(name: str, lower: float, upper: float) -> dict[str, Any]:
    words = [word for word in WORDS if word]
    return {
        "name": name,
        "type": "number",
        "lower": lower,
        "upper": upper,
        "missing": words,
        "fill": (lower + upper) / 2,
    }


def category(name: str, *values: str) -> dict[str, Any]:
    return {"name": name, "type": "category" if len(values) > 2 else "binary", "values": list(values)}


@dataclass(frozen=True)
class Foreign:
    """A file as its package ships it, its codebook, the question, and the mess that is made of it."""

    path: Any
    columns: tuple[dict[str, Any], ...]
    question: str
    kind: str = "linear"
    read: dict[str, Any] = field(default_factory=dict)
    separator: str = ";"
    decimal: str = ","
    encoding: str = "cp1252"
    form: str = "%d.%m.%Y"
    header: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, str]]:
        """Return its rows as texts."""
        text = io.StringIO(self.path.read_text())
        if self.header:
            next(text)
        return list(csv.DictReader(text, fieldnames=self.header or None, **self.read))

    def names(self) -> list[str]:
        return [one["name"] for one in self.columns if one is not SEEN]

    def write(self, path: Path) -> None:
        """Write it with a note, two forms of dates, words for missing numbers, and other marks."""
        days = (date(2020, 1, 1) + timedelta(days=7 * turn % 1400) for turn in range(10**6))
        forms, notes, words = cycle((self.form, "%Y-%m-%d", self.form)), cycle(NOTES), cycle(WORDS)
        numbers = {one["name"] for one in self.columns if one["type"] == "number"} - {self.target()}
        with path.open("w", encoding=self.encoding, newline="") as file:
            writer = csv.writer(file, delimiter=self.separator)
            writer.writerow([*self.names(), "seen", "note"])
            for place, row in enumerate(self.rows()):
                cells = [self.cell(row[name], name in numbers and place % 97 == 5, words) for name in self.names()]
                writer.writerow([*cells, next(days).strftime(next(forms)), next(notes)])

    def cell(self, text: str, lost: bool, words: Iterator[str]) -> str:
        return next(words) if lost else text.replace(".", self.decimal)

    def target(self) -> str:
        return self.question.partition(" ~ ")[0]


CANCER = [f"f{place}" for place in range(30)] + ["benign"]
FOREIGN = {
    "fair": Foreign(
        STATSMODELS / "fair" / "fair.csv",
        (
            number("age", 17, 45),
            number("yrs_married", 0, 25),
            number("educ", 8, 20),
            number("rate_marriage", 1, 5),
            SEEN,
        ),
        "rate_marriage ~ age + educ + yrs_married + seen",
    ),
    "randhie": Foreign(
        STATSMODELS / "randhie" / "randhie.csv",
        (
            {"name": "mdvis", "type": "integer", "lower": 0, "upper": 40},
            number("lncoins", 0, 5),
            number("disea", 0, 60),
            category("idp", "0", "1"),
            category("hlthp", "0", "1"),
            SEEN,
        ),
        "mdvis ~ lncoins + disea + idp + hlthp",
        "poisson",
        encoding="utf-8-sig",
        form="%d/%m/%Y",
    ),
    "anes96": Foreign(
        STATSMODELS / "anes96" / "anes96.csv",
        (number("age", 18, 95), number("educ", 1, 7), number("PID", 0, 6), category("vote", "0", "1"), SEEN),
        "vote ~ age + PID + educ",
        "logistic",
        read={"delimiter": "\t", "quotechar": "'"},
        separator="\t",
        encoding="utf-16",
        decimal=".",
        form="%d %b %Y",
    ),
    "modechoice": Foreign(
        STATSMODELS / "modechoice" / "modechoice.csv",
        (
            number("ttme", 0, 100),
            number("gc", 0, 300),
            category("mode", "1", "2", "3", "4"),
            category("choice", "0", "1"),
            SEEN,
        ),
        "choice ~ gc + ttme",
        "logistic",
        read={"delimiter": ";"},
        separator="|",
        decimal=".",
        encoding="latin-1",
        form="%m/%d/%Y",
    ),
    "co2": Foreign(
        STATSMODELS / "co2" / "co2.csv",
        (number("co2", 300, 400), SEEN),
        "co2 ~ seen",
        encoding="iso-8859-15",
        form="%d-%m-%Y",
    ),
    "breast_cancer": Foreign(
        files("sklearn.datasets.data") / "breast_cancer.csv",
        (number("f1", 5, 40), number("f4", 0, 0.2), category("benign", "0", "1"), SEEN),
        "benign ~ f1 + f4",
        "logistic",
        header=tuple(CANCER),
    ),
}


def reference(foreign: Foreign, frame: pd.DataFrame) -> Any:
    """Return the estimates without privacy, of the rows as they are declared: statsmodels' own."""
    rows = frame.copy()
    for column in foreign.columns:
        if "fill" in column:
            filled = rows[column["name"]].fillna(column["fill"])
            rows[column["name"]] = filled.clip(column["lower"], column["upper"])
    dotted = pd.to_datetime(rows["seen"], format=foreign.form, errors="coerce")
    days = dotted.fillna(pd.to_datetime(rows["seen"], format="%Y-%m-%d", errors="coerce"))
    rows["seen"] = (days - pd.Timestamp(SEEN["lower"])).dt.days
    families = {"linear": sm.families.Gaussian, "logistic": sm.families.Binomial, "poisson": sm.families.Poisson}
    return smf.glm(foreign.question, rows, family=families[foreign.kind]()).fit().params.to_numpy()


@pytest.mark.statistical  # by eight standard errors
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_goes_from_mess_to_intervals(client: Client, name: str, tmp_path: Path) -> None:
    foreign = FOREIGN[name]
    path = tmp_path / f"{name}.csv"
    foreign.write(path)
    rows = len(foreign.rows())
    declared = {
        "name": name,
        "budget": {"epsilon": EPSILON, "delta": "1e-6"},
        "columns": list(foreign.columns),
        # The made-up days are those of the other files, and so would be an alarm.
        "distinct_because": "Rows of another package, about other people.",
    }
    draft = client.draft(client.upload(path, declared | {"reading": "sniff", "seal": False}).id)
    assert draft.rows == rows
    taken = draft.sniffed.reading
    assert (taken["separator"], taken["decimal"]) == (foreign.separator, foreign.decimal)
    assert draft.sniffed.formats == {"seen": [foreign.form]}
    assert not any(column.unreadable or column.unknown for column in draft.columns), draft.columns
    dataset = client.seal(draft.dataset)
    job = {
        "dataset": dataset.id,
        "model": formula(foreign.question, foreign.kind, columns=dataset.columns),
        "privacy": {"epsilon": "10"},
    }
    assert client.estimate(job).fits
    assert client.train(job, mock=True).conf_int().shape[1] == 2
    model = client.train(job)
    ends = model.conf_int(alpha=0.1)
    assert ends.notna().all(axis=None)
    assert list(model.params.index) == list(ends.index) == list(model.bse.index)
    assert (ends[0] < ends[1]).all()
    frame = pd.read_csv(
        path, sep=foreign.separator, decimal=foreign.decimal, encoding=foreign.encoding, na_values=WORDS
    )
    off = (model.params.to_numpy() - reference(foreign, frame)) / model.bse.to_numpy()
    assert (abs(off) < 8).all(), off
    columns = [one | {"formats": [foreign.form]} if one is SEEN else one for one in foreign.columns]
    # The service compares cells: the frame has the very records of the file.
    with pytest.raises(FarthingError, match="duplicate-dataset"):
        client.upload(frame, declared | {"columns": columns})
    few = frame.head(40).drop(columns=["note", foreign.target()])
    predicted = model.predict(few)
    assert len(predicted) == 40
    assert predicted.filter(like="predicted").notna().all(axis=None)


@pytest.mark.parametrize("name", [name for name, one in FOREIGN.items() if not one.header])
def test_a_foreign_file_is_read_as_it_comes(client: Client, name: str) -> None:
    foreign = FOREIGN[name]
    columns = [one for one in foreign.columns if one is not SEEN]
    declared = {"name": name, "budget": {"epsilon": 1, "delta": 1e-6}, "columns": columns}
    file = io.BytesIO(foreign.path.read_bytes())
    draft = client.draft(client.upload(file, declared | {"reading": "sniff", "seal": False}).id)
    assert draft.rows == len(foreign.rows())
    assert not any(column.unreadable or column.unknown for column in draft.columns), draft.columns
    client.erase(draft.dataset)
