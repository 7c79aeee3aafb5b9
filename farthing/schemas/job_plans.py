"""Answers about the plan of a job: the draws and the cost of each chunk."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn


class ChunkRun(View):
    """Chunks one after the other that cost the same."""

    first: Declared[int]
    """Number of the first, from 1."""
    last: Declared[int]
    """Number of the last."""
    kind: Declared[str]
    """Kind of the answer that each draws, such as gaussian or sampled; none: an earlier chunk has paid for it."""
    budget_share: Declared[str]
    """Cost of each as a share of an empty budget, from 0 to 1."""
    epsilon_alone: Declared[str]
    """Epsilon of each at the scope's delta, had nothing else been drawn."""
    mu: Declared[str | None]
    """The same of Gaussian answers alone; null where others are among them."""


class JobPlanView(View):
    """The draws of a job, fixed when it was submitted. Each chunk is paid before it reads."""

    object: Literal["job-plan"] = "job-plan"
    job: Drawn[str]
    """`job_...`."""
    steps: Declared[int]
    """Of its method."""
    chunks: Declared[int]
    """In which they are paid."""
    runs: list[ChunkRun]
    """Chunks in order, those that cost the same together."""
