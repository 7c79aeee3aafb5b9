"""Service: its state, in one view for those who run it and those who audit it."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


class PartView(View):
    """A part that the service stands on."""

    name: Operational[str]
    """`database`, `storage`, `ledger`, `broker` or `signing`."""
    state: Operational[str]
    """`ok`, or its state in words."""


class QueueView(View):
    """The jobs that wait for one kind of device."""

    device: Operational[str]
    """`auto`, `cpu` or `cuda`."""
    waiting: Operational[int]
    """Jobs that are queued."""
    oldest_since: Timed[str | None]
    """Time at which the oldest of them was submitted; null: none waits."""


class WaitingView(View):
    """A job that is queued."""

    job: Drawn[str]
    """`job_...`."""
    name: Declared[str | None]
    """Its label `name`; null: it has none."""
    principal: Drawn[str]
    """Its sender, `pr_...`."""
    principal_name: Declared[str]
    """The sender's name."""
    device: Operational[str]
    """Device that it asks for."""
    waits_for: Operational[str | None]
    """Worker that it lacks, in words; null: one is alive, perhaps busy."""
    since: Timed[str]
    """Time of its submission."""


class LeaseView(View):
    """A job that a worker holds."""

    job: Drawn[str]
    """`job_...`."""
    name: Declared[str | None]
    """Its label `name`; null: it has none."""
    principal: Drawn[str]
    """Its sender, `pr_...`."""
    principal_name: Declared[str]
    """The sender's name."""
    worker: Drawn[str | None]
    """Name of the worker; null: no attempt has begun."""
    device: Operational[str]
    """Device that it asked for."""
    attempt: Paid[int]
    """Number of the attempt, from 1."""
    step: Paid[int]
    """Steps done, as the job's own page shows."""
    steps: Declared[int]
    """Steps planned."""
    started_at: Timed[str | None]
    """Start of its first attempt."""
    held_since: Timed[str | None]
    """Start of this attempt; another one begins where the worker falls silent for a lease."""


class ServingView(View):
    """A worker of the last day."""

    name: Drawn[str]
    """Machine and process."""
    site: Operational[str]
    """Site whose records it reads; empty: the service's own."""
    queues: Operational[list[str]]
    """Devices that it serves."""
    slots: Operational[int]
    """Jobs that it runs at a time."""
    busy: Operational[int]
    """Jobs that it holds now."""
    gpus: Operational[int]
    """GPUs that it has."""
    version: Operational[str]
    """Version of its code."""
    alive: Operational[bool]
    """Whether it was seen within a few leases."""
    seen_at: Timed[str]
    """Time at which it was last seen."""


class FailureCountView(View):
    """Failed jobs of the last day with one code; no text of an error is kept."""

    code: Paid[str]
    """From the closed list of failure codes."""
    times: Paid[int]
    """Jobs that failed with it."""
    last_at: Timed[str]
    """Time of the last one."""
    last_job: Drawn[str]
    """The last one, `job_...`."""
    last_name: Declared[str | None]
    """Its label `name`; null: it has none."""


class VersionsView(View):
    """Versions of code and tables."""

    version: Operational[str]
    """Version of Farthing."""
    python: Operational[str]
    """Version of Python."""
    database_revision: Operational[str | None]
    """Revision of the database's tables."""
    api: Operational[str]
    """Version in the path of the API."""


class LimitsView(View):
    """Settings that limit each principal, in requests, jobs, bytes and seconds."""

    requests_per_minute: Operational[int]
    """Requests of one principal."""
    max_queued_per_principal: Operational[int]
    """Jobs of one principal that have not ended."""
    max_running_per_principal: Operational[int]
    """Jobs of one principal that run at a time."""
    max_upload_bytes: Operational[int]
    """Size of one upload."""
    max_rows: Operational[int]
    """Rows of one upload."""
    disk_bytes_per_owner: Operational[int]
    """Records and weights that one principal may store."""
    max_runtime_seconds: Operational[float]
    """Time of one attempt of a job."""
    max_memory_bytes: Operational[int]
    """Memory of one trainer."""


class ServiceView(View):
    """The state of the service: its parts, its waiting jobs, its workers, and its failures."""

    object: Literal["service"] = "service"
    status: Operational[Literal["ready", "degraded", "not-ready"]]
    """`degraded` while only the broker is away."""
    trouble: Operational[str | None]
    """Why it is not ready, and what an operator does about it; null: it is."""
    parts: list[PartView]
    """Parts that it stands on; empty while it is not ready."""
    free_disk_bytes: Operational[int]
    """Free on the file system of its home."""
    witness_behind: Operational[int | None]
    """Entries that the witness does not know; null: it does not answer."""
    scopes: Operational[int]
    """Ledgers, one a scope."""
    scopes_frozen: Operational[int]
    """Ledgers that admit no job."""
    entries: Paid[int]
    """Entries of all ledgers."""
    jobs: Paid[dict[str, int]]
    """Jobs by state."""
    queues: list[QueueView]
    """Queue by device."""
    waiting: list[WaitingView]
    """Jobs that are queued, the oldest first; at most 20."""
    leases: list[LeaseView]
    """Jobs that workers hold, the oldest first; at most 100."""
    workers: list[ServingView]
    """Workers of the last day, the last seen first."""
    failures: list[FailureCountView]
    """Failures of the last day, the last first."""
    versions: VersionsView
    """Versions that run here."""
    limits: LimitsView
    """Limits of a principal's requests."""


class WorkerView(View):
    """A supervisor of trainers, and when it was last seen."""

    name: Drawn[str]
    """Its own, one for each process."""
    object: Literal["worker"] = "worker"
    queues: Operational[list[str]]
    """Devices that it serves."""
    slots: Operational[int]
    """Jobs at a time."""
    gpus: Operational[int]
    """That it has."""
    site: Operational[str]
    """Site whose records it reads; empty: the service's own."""
    version: Operational[str]
    """Of its code."""
    alive: Operational[bool]
    """Whether it was seen within a few leases."""
    started_at: Timed[str]
    """When it registered."""
    seen_at: Timed[str]
    """When it last said that it is there."""
