"""Studies of clipped descent in full size: every figure that the page compares agrees."""

import pytest

from studies.clipped import certificates, neighbourhoods, tails

STUDIES = {
    neighbourhoods: ("skewed", "symmetric", "tradeoff", "escape", "nonconvex"),
    tails: ("last_iterate", "rates", "three_ways"),
    certificates: ("runs_as_certified", "power", "averages"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "study"), [(module, study) for module, all_of_it in STUDIES.items() for study in all_of_it]
)
def test_in_full_size_all_of_it_agrees(module: object, study: str) -> None:
    result = getattr(module, study)(full=True)
    assert not [f"{row.what}: {row.ours:.4g}, not {row.reference}" for row in result.rows if row.agrees is False]
