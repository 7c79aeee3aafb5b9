"""Predicted widths of a job's intervals, from public facts alone, beside the widths without privacy.

The intervals' formula is applied to the matrices of the public reference design (`core.models.reference`), with as
much noise as the job's questions will have. A width is the median over some noise patterns, the same ones every time.
The noise of the optimizer, of Hessian and score matrix, and all floors thus count in full, and nothing is drawn. No
public fact gives the distance of the records from the reference. The most frequent reason for wider intervals is
columns that fill a small part of their declared range.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.inference.settings import Inference
from core.methods.registry import AnyPlan
from core.models.outlook import Outlook
from core.privacy.facts import Facts, Frozen

Array = NDArray[np.float64]
MOST_COEFFICIENTS: Final = 80
"""No prediction of larger models: their matrices would be inverted again and again while somebody waits."""


class PredictedWidth(Frozen):
    """One coefficient's interval, in declared units."""

    name: str
    width: float = Field(description="median width of the private interval")
    nonprivate_width: float
    ratio: float


def predict(
    outlook: Outlook, facts: Facts, optimizer: AnyPlan, inference: Inference
) -> tuple[PredictedWidth, ...] | None:
    """Return the width of each coefficient's interval; None where none is predicted.

    Args:
        outlook: the public reference.
        facts: of the job.
        optimizer: nothing open.
        inference: nothing open.
    """
    if not inference.intervals or facts.dimension > MOST_COEFFICIENTS:
        return None
    try:
        with np.errstate(all="ignore"):
            found = optimizer.predict_widths(outlook, facts, inference)
    except np.linalg.LinAlgError:
        return None
    if found is None:
        return None
    private, nonprivate = found
    # Extreme figures overflow in silence above; no width is shown then.
    if not (np.isfinite(private).all() and np.isfinite(nonprivate).all() and (nonprivate > 0).all()):
        return None
    return tuple(
        PredictedWidth(name=name, width=width, nonprivate_width=without, ratio=width / without)
        for name, width, without in zip(outlook.names, private.tolist(), nonprivate.tolist(), strict=True)
    )
