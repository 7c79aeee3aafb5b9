"""Where the clients of a federated job meet: on one machine, in a folder that is only theirs, under a fresh key."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from core.training.desk import Client
from core.training.seat import Seat
from workers.gather import patience_seconds
from workers.wire import Order

_KEY_BYTES: Final = 32
_MEETING: Final = "meeting"
_FILE: Final = "file://"


def seated(order: Order, clients: Sequence[Client], asked: int, folder: Path) -> list[Order]:
    """Return each client's order: its own claim and its own dataset's key, and no key that opens anything else.

    Args:
        order: of the federated job.
        clients: those that take part.
        asked: how many the job asked for.
        folder: for this user only, and for this attempt.
    """
    settings = order.settings.model_copy(update={"master_key": None, "master_key_file": Path(os.devnull)})
    key = secrets.token_hex(_KEY_BYTES)
    return [
        order.model_copy(
            update={
                "claim": client.claim,
                "settings": settings,
                "seat": Seat(
                    federation=order.claim.job_id,
                    number=number,
                    size=len(clients),
                    asked=asked,
                    meeting=f"{_FILE}{folder / _MEETING}",
                    key=key,
                    patience_seconds=patience_seconds(settings),
                    dataset_key=client.dataset_key,
                ),
            }
        )
        for number, client in enumerate(clients)
    ]
