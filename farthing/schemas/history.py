"""History of a budget: one point for each job that ended, in the order of the ledger."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Drawn, Operational, Paid, Timed


class PointView(View):
    """A budget after a job ended, or after a charge was given back; shares are of the whole budget, from 0 to 1."""

    seq: Operational[int]
    """Number of the ledger's entry that ended the job."""
    object: Literal["point"] = "point"
    at: Timed[str]
    """Time of that entry."""
    kind: Operational[Literal["settle", "charge", "compensate"]]
    """`settle` gives back the rest, `charge` spends all that was reserved, `compensate` gives a charge back."""
    job: Drawn[str]
    """`job_...`; of a federated job its site here."""
    dataset: Drawn[str]
    """The dataset that the job was for, `ds_...`."""
    principal: Drawn[str]
    """Sender of the job, `pr_...`."""
    name: Operational[str | None]
    """The sender's name; null: it is not for this key."""
    method: Operational[str | None]
    """Kind of the optimizer; null: the job is not for this key."""
    held: Paid[str]
    """The job's first reservation, its retry allowance included."""
    charged: Paid[str]
    """The job's spending in all, less the part that was given back."""
    spent: Paid[str]
    """The part of the budget that was spent after it, by all jobs."""
    reserved: Paid[str]
    """The part that was reserved then, by jobs that went on."""
    remaining: Paid[str]
    """The part that was left then."""
