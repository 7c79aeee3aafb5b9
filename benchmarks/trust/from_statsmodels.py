"""Populations of the data sets that ship with statsmodels.

Ranges are round, of what a column means, by somebody who has not looked: never its extremes.
"""

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from benchmarks.trust.population import PERCENT, TWO, YEARS, Population, made


def _statsmodels(name: str) -> Any:  # noqa: ANN401 - a table of its own kind
    import statsmodels.api  # noqa: PLC0415 - takes seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(statsmodels.api.datasets, name).load_pandas().data


FAIR: Final = {
    "rate_marriage": (0.0, 10.0),
    "age": YEARS,
    "yrs_married": (0.0, 80.0),
    "children": (0.0, 20.0),
    "religious": (0.0, 10.0),
    "educ": (0.0, 30.0),
    "occupation": (0.0, 10.0),
    "occupation_husb": (0.0, 10.0),
}
RANDHIE: Final = {
    "lncoins": (0.0, 5.0),
    "idp": TWO,
    "lpi": (0.0, 10.0),
    "fmde": (0.0, 10.0),
    "physlm": (0.0, 1.0),
    "disea": PERCENT,
    "hlthg": TWO,
    "hlthf": TWO,
    "hlthp": TWO,
}
ANES: Final = {
    "logpopul": (-5.0, 20.0),
    "TVnews": (0.0, 7.0),
    "selfLR": (0.0, 10.0),
    "ClinLR": (0.0, 10.0),
    "DoleLR": (0.0, 10.0),
    "age": YEARS,
    "educ": (0.0, 10.0),
    "income": (0.0, 30.0),
}
TRIP: Final = {
    "ttme": (0.0, 300.0),
    "invc": (0.0, 1000.0),
    "invt": (0.0, 5000.0),
    "gc": (0.0, 1000.0),
    "hinc": (0.0, 500.0),
    "psize": (0.0, 20.0),
}
SCHOOLS: Final = {
    "LOWINC": PERCENT,
    "PERASIAN": PERCENT,
    "PERBLACK": PERCENT,
    "PERHISP": PERCENT,
    "AVYRSEXP": (0.0, 50.0),
    "AVSALK": (0.0, 200.0),
    "PERSPENK": (0.0, 50.0),
    "PTRATIO": PERCENT,
    "PCTCHRT": PERCENT,
    "PCTYRRND": PERCENT,
}
ECONOMY: Final = {
    "unemp": PERCENT,
    "tbilrate": PERCENT,
    "realint": (-50.0, 50.0),
    "realgdp": (0.0, 50_000.0),
    "realinv": (0.0, 50_000.0),
}
STATES: Final = {"hs_grad": PERCENT, "poverty": PERCENT, "single": PERCENT, "white": PERCENT, "urban": PERCENT}


def _fair() -> Population:
    table = _statsmodels("fair")
    return made("logistic", table, (table["affairs"] > 0, TWO), FAIR)


def _fair_linear() -> Population:
    table = _statsmodels("fair")
    columns = {name: bounds for name, bounds in FAIR.items() if name != "rate_marriage"}
    return made("linear", table, (table["rate_marriage"], (0.0, 10.0)), columns)


def _visits() -> Population:
    table = _statsmodels("randhie")
    return made("poisson", table, (table["mdvis"], (0.0, 200.0)), RANDHIE, units=20_000)


def _any_visit() -> Population:
    table = _statsmodels("randhie")
    return made("logistic", table, (table["mdvis"] > 0, TWO), RANDHIE, units=8000)


def _vote() -> Population:
    table = _statsmodels("anes96")
    return made("logistic", table, (table["vote"], TWO), ANES)


def _party() -> Population:
    table = _statsmodels("anes96")
    return made("linear", table, (table["PID"], (0.0, 10.0)), ANES)


def _trip() -> Population:
    table = _statsmodels("modechoice")
    return made("logistic", table, (table["choice"], TWO), TRIP)


def _schools() -> Population:
    table = _statsmodels("star98")
    share = 100 * table["NABOVE"] / (table["NABOVE"] + table["NBELOW"])
    return made("linear", table, (share, PERCENT), SCHOOLS)


def _smoking() -> Population:
    table = _statsmodels("china_smoking").to_numpy().astype(int)
    rows = [
        (1.0 - smokes, *(float(city == other) for other in range(1, len(table))), 1.0 - ill)
        for city, counts in enumerate(table)
        for (smokes, ill), count in zip(((0, 0), (0, 1), (1, 0), (1, 1)), counts, strict=True)
        for _ in range(count)
    ]
    cells = np.array(rows)
    names = ["smokes", *(f"city {city}" for city in range(1, len(table)))]
    columns = {name: cells[:, place] for place, name in enumerate(names)}
    return made("logistic", columns, (cells[:, -1], TWO), dict.fromkeys(names, TWO), units=8000)


def _hearts() -> Population:
    table = _statsmodels("heart")
    return made("linear", table, (np.log(table["survival"]), (0.0, 20.0)), {"age": YEARS, "censors": TWO})


def _food() -> Population:
    table = _statsmodels("engel")
    return made("linear", table, (table["foodexp"], (0.0, 10_000.0)), {"income": (0.0, 100_000.0)})


def _cards() -> Population:
    table = _statsmodels("ccard")
    columns = {"AGE": YEARS, "INCOME": PERCENT, "INCOMESQ": (0.0, 10_000.0), "OWNRENT": TWO}
    return made("linear", table, (table["AVGEXP"], (0.0, 100_000.0)), columns)


def _economy() -> Population:
    table = _statsmodels("macrodata")
    return made("linear", table, (table["infl"], (-50.0, 50.0)), ECONOMY)


def _consumption() -> Population:
    table = _statsmodels("macrodata")
    columns = dict.fromkeys(("realgdp", "realinv", "realgovt", "realdpi"), (0.0, 50000.0))
    return made("linear", table, (table["realcons"], (0.0, 50_000.0)), columns)


def _interest() -> Population:
    table = _statsmodels("interest_inflation")
    columns = {"Dp": (-1.0, 1.0), "year": (1900.0, 2100.0), "quarter": (0.0, 5.0)}
    return made("linear", table, (table["R"], (-1.0, 1.0)), columns)


def _births() -> Population:
    table = _statsmodels("fertility")
    return made("linear", table, (table["2000"], (0.0, 20.0)), {"1960": (0.0, 20.0), "1980": (0.0, 20.0)})


def _air() -> Population:
    table = _statsmodels("co2").dropna()
    year = table.index.year + (table.index.day_of_year - 1) / 365.25
    columns = {"year": year, "sine": np.sin(2 * np.pi * year), "cosine": np.cos(2 * np.pi * year)}
    ranges = {"year": (1900.0, 2100.0), "sine": (-1.0, 1.0), "cosine": (-1.0, 1.0)}
    return made("linear", columns, (table["co2"], (0.0, 1000.0)), ranges)


def _suns() -> Population:
    table = _statsmodels("sunspots")
    angle = 2 * np.pi * table["YEAR"] / 11
    columns = {"year": table["YEAR"], "sine": np.sin(angle), "cosine": np.cos(angle)}
    ranges = {"year": (1000.0, 3000.0), "sine": (-1.0, 1.0), "cosine": (-1.0, 1.0)}
    return made("poisson", columns, (np.round(table["SUNACTIVITY"]), (0.0, 1000.0)), ranges)


def _river() -> Population:
    table = _statsmodels("nile")
    return made("linear", table, (table["volume"], (0.0, 10_000.0)), {"year": (1800.0, 2000.0)})


def _ocean() -> Population:
    table = _statsmodels("elnino")
    columns = {"DEC": (0.0, 50.0), "NOV": (0.0, 50.0), "YEAR": (1900.0, 2100.0)}
    return made("linear", table, (table["JAN"], (0.0, 50.0)), columns)


def _money() -> Population:
    table = _statsmodels("danish_data")
    columns = {"lry": (0.0, 20.0), "ibo": (0.0, 1.0), "ide": (0.0, 1.0)}
    return made("linear", table, (table["lrm"], (0.0, 50.0)), columns)


def _strikes() -> Population:
    table = _statsmodels("strikes")
    return made("poisson", table, (table["duration"], (0.0, 1000.0)), {"iprod": (-1.0, 1.0)})


def _counties() -> Population:
    table = _statsmodels("cancer")
    return made("poisson", {"log": np.log(table["population"])}, (table["cancer"], (0.0, 1000.0)), {"log": (0.0, 20.0)})


def _murder() -> Population:
    table = _statsmodels("statecrime")
    return made("linear", table, (table["murder"], PERCENT), STATES)


def _firms() -> Population:
    table = _statsmodels("grunfeld")
    columns = {"value": (0.0, 100_000.0), "capital": (0.0, 100_000.0), "year": (1900.0, 2000.0)}
    return made("linear", table, (table["invest"], (0.0, 100_000.0)), columns)


STATSMODELS: Final[dict[str, Callable[[], Population]]] = {
    "statsmodels fair, any affair": _fair,
    "statsmodels fair, rating": _fair_linear,
    "statsmodels randhie, visits": _visits,
    "statsmodels randhie, any visit": _any_visit,
    "statsmodels anes96, vote": _vote,
    "statsmodels anes96, party": _party,
    "statsmodels modechoice": _trip,
    "statsmodels star98": _schools,
    "statsmodels china_smoking": _smoking,
    "statsmodels heart": _hearts,
    "statsmodels engel": _food,
    "statsmodels ccard": _cards,
    "statsmodels macrodata, inflation": _economy,
    "statsmodels macrodata, consumption": _consumption,
    "statsmodels interest_inflation": _interest,
    "statsmodels fertility": _births,
    "statsmodels co2": _air,
    "statsmodels sunspots": _suns,
    "statsmodels nile": _river,
    "statsmodels elnino": _ocean,
    "statsmodels danish_data": _money,
    "statsmodels strikes": _strikes,
    "statsmodels cancer": _counties,
    "statsmodels statecrime": _murder,
    "statsmodels grunfeld": _firms,
}
