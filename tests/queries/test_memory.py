"""A job's memory: the encoded data and blocks, measured in a fresh process."""

from benchmarks.memory import DIMENSION, UNITS, allowed_bytes, measure

GRADIENT_PER_RECORD = """
from core.queries.sums import linear

genuine = linear.LinearProblem._factors

def materialised(self, question, facts, records, at):
    factors = genuine(self, question, facts, records, at)
    self.kept = getattr(self, "kept", None)
    if self.kept is None or len(self.kept) >= self.units * self.dimension * 8:
        self.kept = bytearray()
    self.kept += bytes(range(256)) * (len(records.target) * self.dimension * 8 // 256)
    return factors

linear.LinearProblem._factors = materialised
"""


def test_peak_memory_is_the_data_and_little_more() -> None:
    seen = measure(UNITS, DIMENSION)
    assert seen["above_idle"] <= allowed_bytes(seen["encoded"])


def test_a_gradient_per_record_is_caught() -> None:
    """Planted bug: n x p gradients are kept until the pass is over."""
    seen = measure(UNITS, DIMENSION, GRADIENT_PER_RECORD)
    assert seen["above_idle"] > allowed_bytes(seen["encoded"])
