"""A job's memory: the encoded data and blocks, measured in a fresh process."""

from benchmarks.memory import DIMENSION, UNITS, allowed_bytes, measure

GRADIENT_PER_RECORD = """
from core.queries.sums import linear

genuine = linear.LinearProblem.integer_sum

def materialised(self, *given, **named):
    kept = bytes(range(256)) * (self.units * self.dimension * 8 // 256)
    found = genuine(self, *given, **named)
    del kept
    return found

linear.LinearProblem.integer_sum = materialised
"""


def test_peak_memory_is_the_data_and_little_more() -> None:
    seen = measure(UNITS, DIMENSION)
    assert seen["above_idle"] <= allowed_bytes(seen["encoded"])


def test_a_gradient_per_record_is_caught() -> None:
    """Planted bug: n x p gradients are kept until the pass is over."""
    seen = measure(UNITS, DIMENSION, GRADIENT_PER_RECORD)
    assert seen["above_idle"] > allowed_bytes(seen["encoded"])
