"""Where the sites of a federated job meet, under a fresh key: in a folder of their own, or as the database says."""

import os
import secrets
from pathlib import Path
from typing import Final

from core.ledger.witness.trusting import mark_keys
from core.training.seat import SiteConnection
from core.training.taken import ClaimedJob
from workers.gather import patience_seconds
from workers.wire import TrainerMessage

_KEY_BYTES: Final = 32
_MEETING: Final = "meeting"
_FILE: Final = "file://"


def seated(order: TrainerMessage, taken: ClaimedJob, folder: Path | None) -> list[TrainerMessage]:
    """Return each site's order: its own claim and its own dataset's key, and no key that opens anything else.

    Args:
        order: of the federated job.
        taken: its sites that this supervisor runs.
        folder: where they meet, for this user only, and for this attempt; None: other supervisors run some, too.
    """
    # A site's trainer gets one dataset's key; with the master key it could open all.
    settings = order.settings.model_copy(update={"master_key": None, "master_key_file": Path(os.devnull)})
    # These keys come from the master key, which the trainer does not get, and open nothing.
    marks = tuple(key.secret.hex() for key in mark_keys(order.settings))
    key = (taken.meeting_key or secrets.token_bytes(_KEY_BYTES)).hex()
    return [
        order.model_copy(
            update={
                "claim": client.claim,
                "settings": settings,
                "seat": SiteConnection(
                    federation=order.claim.job_id,
                    number=client.number,
                    size=taken.size,
                    asked=taken.asked,
                    meeting=None if folder is None else f"{_FILE}{folder / _MEETING}",
                    host=settings.meeting_host,
                    port=settings.meeting_port,
                    key=key,
                    patience_seconds=patience_seconds(settings),
                    mark_keys=marks,
                    dataset_key=client.dataset_key,
                    location=client.location,
                ),
            }
        )
        for client in taken.clients
    ]
