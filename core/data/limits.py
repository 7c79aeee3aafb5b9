"""Upper limit of every integer sum, and lower limit of a record's numbers, on every processor."""

from typing import Final

LARGEST_SUM: Final = 2.0**62
"""Steps that no part may reach; the lattice allows half of it."""

SMALLEST_SINGLE_STEP: Final = 2.0**-120
"""Steps for sums in single precision are above it and below its inverse, so that both are ordinary numbers."""

LEAST_NUMBER: Final = 2.0**-200
"""Of a record's numbers, before any clip: smaller ones are zero, by selection. A product below the smallest normal
float takes a hundred times as long, which would reveal facts about the record. Its features are 2^-300 or more
(`core.data.tiny`), and at most two of them are multiplied by its number or by its square."""

LEAST_SINGLE: Final = 2.0**-50
"""The same in single precision, of features, points and numbers: products are 2^-100 or more, in multiples of 2^-123,
and so are their sums."""
