"""Version 1 of the bodies, as databases made before have them: read as version 2 where it says as much.

Its reservations repeat the price as one event and the allowance in nano-nats, which the schedule and the number of
times say already. A whole charge is a spend with a reason, after the last chunk. It says neither a scope's unit nor
a job's dataset nor what a witness had seen, and counts no draws.
"""

import json
from typing import Any

from core.store.ledger.bodies import canonical

_SAID_TWICE = {"reserve": {"event", "allowance"}, "spend": {"repeats", "allowance"}, "settle": {"allowance"}}


def modernised(text: str) -> tuple[str, str]:
    """Return a body's text in the form of version 2, and the kind to read it as.

    Raises:
        ValueError: the text is not the canonical one of its value, or the version is unknown.
        KeyError, TypeError: it is no body.
    """
    body: dict[str, Any] = json.loads(text)
    if canonical(body) != text:
        raise ValueError("its text is not canonical JSON")
    kind = str(body["kind"])
    if body["v"] != 1:
        return text, kind
    told = {name: value for name, value in body.items() if name not in _SAID_TWICE.get(kind, set())}
    if kind == "open":
        told["unit"] = None
    elif kind == "grant":
        told["closed"] = False
    elif kind == "reserve":
        told.setdefault("retry_allowance", 0)
        told["draws"], told["dataset"] = 0, None
    elif kind == "settle":
        told["draws"] = 0
    elif kind == "spend" and "reason" in body:
        kind = "charge"
    elif kind == "spend":
        told["again"] = "repeats" in body
    elif kind == "reconcile":
        told["seen"] = None
    return canonical(told), kind
