"""Offers: typical jobs on a dataset, their price, and how many of each still fit."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid


class OfferView(View):
    """A typical job at one privacy target."""

    name: Declared[str]
    """In words, such as `Logistic regression, 17 coefficients`."""
    kind: Declared[str]
    """Kind of the model."""
    method: Declared[str]
    """Kind of the optimizer."""
    target: Declared[str | None]
    """Column that the model predicts; null of a description."""
    coefficients: Declared[int | None]
    """Numbers that the job estimates, encoded; null of a description."""
    epsilon: Declared[str]
    """Privacy target of the job, at the scope's delta."""
    budget_share: Declared[str]
    """Price, as a share of the whole budget from 0 to 1."""
    reserved_share: Declared[str]
    """Price and retry allowance together, which the ledger reserves first."""
    fits: Paid[int]
    """Such jobs that the budget, and the caller's cap, would admit one after the other."""
    width_ratio: Declared[float | None]
    """Predicted width of the private intervals, in widths without privacy; null: no intervals are predicted."""
    request: Declared[dict[str, Any]]
    """Body of `POST /v1/jobs` for this job."""


class OffersView(View):
    """The typical jobs that still fit in a dataset's budget; no record is read."""

    dataset: Drawn[str]
    """`ds_...`."""
    object: Literal["offers"] = "offers"
    head: Drawn[str]
    """Of the ledger that the counts are of."""
    capped: Operational[bool]
    """Whether the caller has a cap in this scope, which the counts obey."""
    offers: list[OfferView]
    """One a job and privacy target; a job that cannot be planned for these columns is left out."""
