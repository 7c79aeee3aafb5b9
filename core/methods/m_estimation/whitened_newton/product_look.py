"""The private look at products of numbers less their centres, which a look at the columns learned before."""

from dataclasses import replace
from math import sqrt

import numpy as np

from core.inference.looks import Columns
from core.methods.m_estimation.whitened_newton.column_scales import CAUTION, number_scale
from core.methods.m_estimation.whitened_newton.inference.recentring import recentring
from core.methods.m_estimation.whitened_newton.shares import PRODUCT_REACH
from core.methods.m_estimation.whitened_newton.whitening import above
from core.oracle import Oracle
from core.queries.looks import ProductMagnitudeCounts


def look_at_products(question: ProductMagnitudeCounts, oracle: Oracle, found: Columns) -> Columns:
    """Ask how far products of centred numbers vary; return columns with them.

    A product's centre is 0, from which its sizes are counted. If none is seen, its scale is that of its columns,
    multiplied.

    Args:
        question: of their sizes.
        oracle: with ranges in its facts.
        found: columns with the centres and scales of all features that are no such products.
    """
    ranges, units = oracle.facts.ranges, oracle.facts.units
    assert ranges is not None, "the planner says where columns lie"
    moved, places = recentring(ranges, found.centre), list(ranges.places("product"))
    numbers = [[one for one in ranges.factors[at] if ranges.kinds[one] != "two"] for at in places]
    usual = [float(found.scale[own].prod()) for own in numbers]
    ends = np.abs(np.array((ranges.lower, ranges.upper)) - found.centre).max(0)
    tops = [min(float(ends[own].prod()), PRODUCT_REACH * one) for own, one in zip(numbers, usual, strict=True)]
    asked = moved.copy()
    asked[places] /= np.array(tops)[:, None]
    answer = oracle.ask(question, above(np.zeros(oracle.facts.dimension), asked))
    counts, deviation = (answer.value * units).numpy().reshape(len(places), -1), answer.scale * units
    for at, own, one, top in zip(places, counts, usual, tops, strict=True):
        total = float(own.sum())
        # All records have a value, unless the noised total is clearly lower.
        records = total if total < units - CAUTION * sqrt(len(own)) * deviation else units
        seen = number_scale(own, deviation, units, records, 0.0)
        found.sparse[at], found.heaped[at] = seen.sparse, seen.heaped
        found.scale[at] = one if seen.sparse else top * seen.scale
    return replace(found, recentring=moved)
