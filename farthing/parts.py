"""Uploads, for a client of the service: small files in one request, large ones in parts that go on where they broke."""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, BinaryIO, Final
from uuid import uuid4

from farthing.errors import DraftRefused, FarthingError
from farthing.figures import exact
from farthing.schemas.datasets import Dataset
from farthing.schemas.uploads import UploadView, UploadWithPartsView
from farthing.sending import FromStart, Records, content_type, rewindable
from farthing.wire import KEY, WAITED_OUT, Wire

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and those of the whole file."""
IN_PARTS_BYTES: Final = 16 * 2**20
"""A larger file is sent in parts."""
PART_SENDS: Final = 8
"""Sends of one part at most: some 40 seconds without an answer."""
_PASSING: Final = WAITED_OUT | {"body-too-slow", "digest-mismatch"}
_ROUNDS: Final = 3
"""Of completing, where the service has lost parts."""
_TURNS: Final = 20
"""Declarations of one file that were erased, before another name is drawn at random."""
_OF_THE_CALLER: Final = frozenset({401, 403, 408, 429})
"""Refusals that say nothing about the file."""
_PIECE_BYTES: Final = 2**20


@contextmanager
def _shown(progress: Progress | bool) -> Iterator[Progress]:  # noqa: FBT001 - as callers give it
    """Yield a function that shows how much has arrived, or one that does nothing."""
    if progress is not True:
        yield progress or (lambda *_: None)
        return
    # A script without bars does not wait for rich.
    from farthing.bars import sending  # noqa: PLC0415

    with sending() as look:
        yield look


class UploadResources:
    """The part of a client that sends records."""

    _wire: Wire

    def upload(
        self,
        file: Records,
        metadata: Mapping[str, Any],
        *,
        key: str | None = None,
        progress: Progress | bool = False,
    ) -> Dataset:
        """Upload records with their declared columns and budget.

        A file of more than 16 MiB is sent in parts. Call this again with the same file and metadata after it broke,
        also in another process: the parts that are there are not sent again, for a day.

        Args:
            file: a path to, or an open binary file of, CSV, Parquet, Arrow IPC or NPZ; NumPy arrays by their columns'
                names, the rows first; or a data frame of pandas, polars or Arrow. It is sent from its start, and again
                where no answer comes or the service is busy: a pipe is kept in a temporary file.
            metadata: name, columns, and a budget or a scope to join; `"seal": False` makes a draft of it.
            key: idempotency key; made here unless given.
            progress: True: show a bar with the time left, on a terminal or in a notebook; a function is called after
                each part with the bytes that are there and those of the whole file.

        Raises:
            DraftRefused: a draft's file in parts; the draft keeps it for a day.
            FarthingError: with the wrong fields named; nothing was stored.
            WrongInput: a column of a frame, or a figure of the budget; nothing was sent.
        """
        metadata = exact(metadata)
        with _shown(progress) as look, rewindable(file) as (stream, name):
            size = stream.seek(0, os.SEEK_END)
            if size > IN_PARTS_BYTES:
                return self._upload_in_parts(stream, size, name, metadata, key, look)
            stream.seek(0)
            parts = [
                ("metadata", (None, json.dumps(metadata).encode(), "application/json")),
                ("file", (name, stream, content_type(name))),
            ]
            headers = {KEY: key or str(uuid4())}
            answer = self._wire.send("POST", "/v1/datasets", files=parts, headers=headers, timeout=None)
            look(size, size)
        return Dataset.model_validate(answer.json())

    def send_records(self, dataset: str, file: Records, *, progress: Progress | bool = False) -> Dataset:
        """Send the file of a draft, in place of the one that it has, or of a declaration without records.

        A file of more than 16 MiB is sent in parts, and goes on where it broke, as in `upload`.

        Args:
            dataset: `ds_...`.
            file: as for `upload`.
            progress: as for `upload`.
        """
        with _shown(progress) as look, rewindable(file) as (stream, name):
            size, media = stream.seek(0, os.SEEK_END), content_type(name)
            if size > IN_PARTS_BYTES:
                return self._send_parts(dataset, stream, size, media, look)
            path, headers = f"/v1/datasets/{dataset}/content", {"Content-Type": media}
            answer = self._wire.send("PUT", path, content=FromStart(stream), headers=headers, timeout=None)
            look(size, size)
        return Dataset.model_validate(answer.json())

    def uploads(self, dataset: str) -> list[UploadView]:
        """Return the open uploads in parts of a dataset or draft of yours, newest first."""
        return [UploadView.model_validate(item) for item in self._wire.pages(f"/v1/datasets/{dataset}/uploads")]

    def end_upload(self, dataset: str, upload: str) -> None:
        """End an upload in parts and erase what it has; the dataset or draft stays."""
        self._wire.send("DELETE", f"/v1/datasets/{dataset}/uploads/{upload}")

    def _upload_in_parts(
        self,
        stream: BinaryIO,
        size: int,
        name: str,
        metadata: Mapping[str, Any],
        key: str | None,
        progress: Progress,
    ) -> Dataset:
        dataset = self._declared(metadata, key) if key else self._declared_for(stream, metadata)
        if dataset.state == "ready":  # it was completed, and its answer was lost
            return dataset
        try:
            return self._send_parts(dataset.id, stream, size, content_type(name), progress)
        except FarthingError as refusal:
            if not 400 <= refusal.status < 500 or refusal.status in _OF_THE_CALLER:  # noqa: PLR2004 - of HTTP
                raise
            if dataset.state == "draft":
                raise DraftRefused(refusal, dataset.id) from refusal
            # The refusal of the file is the one to raise, whatever becomes of the removal.
            with suppress(FarthingError):
                self._wire.send("DELETE", f"/v1/datasets/{dataset.id}")
            raise

    def _declared_for(self, stream: BinaryIO, metadata: Mapping[str, Any]) -> Dataset:
        """Declare a dataset, or find the one that an earlier call declared for the same file.

        The idempotency key is worked out from the file under the API key: the service learns no hash of records by it.
        """
        digest = sha256(json.dumps(metadata, sort_keys=True).encode())
        stream.seek(0)
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
        for turn in range(_TURNS):
            # An erased declaration still answers under its key, so each turn has another key.
            found = self._declared(metadata, self._wire.name_of(digest.digest() + bytes([turn])))
            if found.state not in {"erasing", "erased"}:
                return found
        return self._declared(metadata, str(uuid4()))

    def _declared(self, metadata: Mapping[str, Any], key: str) -> Dataset:
        made = self._wire.send("POST", "/v1/datasets", json=dict(metadata), headers={KEY: key}).json()
        # A repeated answer shows the dataset as it was when it was declared, so its present state is asked.
        return Dataset.model_validate(self._wire.get(f"/v1/datasets/{made['id']}"))

    def _send_parts(self, dataset: str, stream: BinaryIO, size: int, media: str, progress: Progress) -> Dataset:
        place = f"/v1/datasets/{dataset}/uploads"
        upload = self._opened(place, size, media)
        for rounds_left in reversed(range(_ROUNDS)):
            self._send_absent(f"{place}/{upload.id}", upload, stream, progress)
            try:
                answer = self._wire.send("POST", f"{place}/{upload.id}/complete", timeout=None)
                return Dataset.model_validate(answer.json())
            except FarthingError as refusal:
                # Only parts that the service lost are worth another round.
                if "missing" not in refusal.problem or not rounds_left:
                    raise
            upload = self._upload(place, upload.id)
        raise AssertionError("the last round returns or raises")

    def _opened(self, place: str, size: int, media: str) -> UploadWithPartsView:
        """Return the open upload of a file of this size and type, or a new one; parts of another file are replaced."""
        for item in self._wire.pages(place):
            found = UploadView.model_validate(item)
            if (found.bytes, found.media_type) == (size, media):
                return self._upload(place, found.id)
        wanted = {"bytes": size, "media_type": media}
        headers = {KEY: str(uuid4())}
        return self._upload(place, str(self._wire.send("POST", place, json=wanted, headers=headers).json()["id"]))

    def _upload(self, place: str, upload: str) -> UploadWithPartsView:
        return UploadWithPartsView.model_validate(self._wire.get(f"{place}/{upload}"))

    def _send_absent(self, place: str, upload: UploadWithPartsView, stream: BinaryIO, progress: Progress) -> None:
        """Send the parts of a file that are not there, or are another file's."""
        there = {one.number: one.digest for one in upload.parts}
        stream.seek(0)
        for number in range(1, upload.part_count + 1):
            part = stream.read(upload.part_bytes)
            digest = f"sha-256=:{base64.b64encode(sha256(part).digest()).decode()}:"
            # By digest and not by number alone: the open upload may be of another file of this size.
            if there.get(number) != digest:
                headers = {"Content-Digest": digest, "Content-Type": "application/octet-stream"}
                self._wire.send(
                    "PUT",
                    f"{place}/parts/{number}",
                    sends=PART_SENDS,
                    passing=_PASSING,
                    content=part,
                    headers=headers,
                )
            progress(min(number * upload.part_bytes, upload.bytes), upload.bytes)
