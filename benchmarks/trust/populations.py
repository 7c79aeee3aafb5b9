"""Data sets that ship with statsmodels and scikit-learn, and the bank's, as populations to draw records from.

Every one that has 50 records at least, an outcome, and a predictor that varies. Left out of statsmodels are committee,
copper, cpunish, longley, scotland, spector and stackloss, tables of 16 to 32 rows, and elec_equip, which has no columns
but a date and its value. The 8 rows of china_smoking count 8,419 persons: it is in. Left out of scikit-learn are
linnerud, 20 rows, and all that is fetched from a server. Of digits' 64 pixels the sums of rows are taken.
"""

from functools import cache
from typing import Final

from benchmarks.trust.from_elsewhere import OTHERS
from benchmarks.trust.from_statsmodels import STATSMODELS
from benchmarks.trust.population import Population

NAMES: Final = (*STATSMODELS, *OTHERS)
SEED: Final = 9_041


@cache
def population(name: str) -> Population:
    """Return a population by its name."""
    return (STATSMODELS | OTHERS)[name]()
