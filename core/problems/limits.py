"""What no integer sum passes, whatever computes it."""

from typing import Final

LARGEST_SUM: Final = 2.0**62
"""Steps that no part may reach; what the lattice allows for is half of it."""

SMALLEST_SINGLE_STEP: Final = 2.0**-120
"""Steps for sums in single precision are above it and below its inverse, so that both are ordinary numbers."""
