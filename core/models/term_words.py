"""Words about a model's interactions, offset and sampling weights; all of it public."""

from core.models.design import Design
from core.models.terms import missing_terms
from core.privacy.facts import Sampling


def term_notes(design: Design, units: int | None = None, learned: Sampling | None = None) -> list[str]:
    """Return a sentence for each thing that changes what coefficients mean.

    Args:
        design: of the model.
        units: n, for the effective number of records.
        learned: a job's noised answers about the weights; None: none.
    """
    said = [
        f"{term} is in the model without {lower}: its coefficient depends on where the columns have their zero and "
        "their first value. Add the missing term unless you mean this."
        for term, lower in missing_terms(_terms(design), [column.name for column in design.columns])
    ]
    offset, sampling = design.offset, design.sampling
    if offset is not None and offset.log:
        said.append(
            f"The logarithm of the exposure {offset.column.name} enters the linear predictor with coefficient one: "
            "coefficients are of the log rate for one unit of it."
        )
    elif offset is not None:
        said.append(f"The offset {offset.column.name} enters the linear predictor with coefficient one.")
    if sampling is not None:
        most = sampling.largest
        said.append(
            f"Each record counts in proportion to {sampling.column.name}: estimates and intervals are about the "
            "population that the sampling weights stand for."
        )
        if learned is not None and units is not None:
            said.append(
                f"The weights have a mean of about {learned.mean * most:.3g} and a design effect of about "
                f"{learned.effect:.3g}: {units:,} records are worth about {_rounded(units / learned.effect)}. Privacy "
                f"noise is {learned.reach / learned.mean:.3g} times what it is without weights."
            )
        if learned is not None and learned.beyond is not None:
            cut = f"{learned.reach * most:.3g}"
            said.append(
                f"Weights above {cut} were counted as {cut}; the noise could hide {_rounded(learned.beyond)} such "
                "records."
            )
    return said


def _terms(design: Design) -> list[tuple[str, ...]]:
    """Return the columns of each interaction."""
    products = (tuple(factor.column for factor in feature.factors) for feature in design.features if feature.factors)
    # A category's values give one term several features.
    return list(dict.fromkeys(products))


def _rounded(number: float) -> str:
    """Return three digits of a number of records."""
    # Twice: to three digits first, then without an exponent.
    return f"{float(f'{number:.3g}'):,.0f}"
