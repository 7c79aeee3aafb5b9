"""Uploads in parts: large files that go on after a broken connection."""

from typing import Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Drawn, Operational, OwnerOnly, Timed


class UploadPartView(View):
    """A part of an upload that is there."""

    number: Operational[int]
    """Its place in the file, from 1."""
    bytes: OwnerOnly[int]
    """Its size."""
    digest: OwnerOnly[str]
    """SHA-256 of its bytes, as `Content-Digest` has it: `sha-256=:...:` with base64 between the colons."""


class UploadView(View):
    """An upload in parts, for its owner alone."""

    id: Drawn[str]
    """`upl_...`."""
    object: Literal["upload"] = "upload"
    dataset: Drawn[str]
    """The dataset or draft whose records it brings, `ds_...`."""
    state: Operational[Literal["open", "completed"]]
    """Open: it takes parts. Completed: the dataset has its records."""
    bytes: OwnerOnly[int]
    """Size of the whole file."""
    media_type: OwnerOnly[str]
    """Of the file; `application/octet-stream`: the service looks at it."""
    part_bytes: OwnerOnly[int]
    """Size of each part but the last, which has the rest."""
    part_count: OwnerOnly[int]
    """Number of parts of the whole file."""
    received_count: OwnerOnly[int]
    """Number of parts that are there."""
    created_at: Timed[str]
    """Time at which it was opened."""
    expires_at: Timed[str]
    """Time at which it is erased: a day after its last part, at most seven days after it was opened."""


class UploadWithPartsView(UploadView):
    """An upload with the parts that are there, so that a client sends the others."""

    parts: OwnerOnly[list[UploadPartView]]
    """In order; empty once the upload is completed."""
