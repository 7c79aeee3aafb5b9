"""The final result of a verification: on a busy host an answer comes before it, with `running`."""

import time
from typing import Any

import httpx

from core.service import scopes
from core.service.context import Caller, Context
from farthing.schemas.ledger import VerificationView

_MOST_SECONDS = 120.0


def verified(client: httpx.Client, scope: str) -> dict[str, Any]:
    """Ask a running API to verify a scope until the pass has ended, and return the answer's body."""
    until = time.monotonic() + _MOST_SECONDS
    while True:
        answer = client.post(f"/v1/scopes/{scope}/verify")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        if not found["running"]:
            return found
        assert time.monotonic() < until, found


def verified_here(context: Context, caller: Caller, scope: str) -> VerificationView:
    """Do the same in this process."""
    until = time.monotonic() + _MOST_SECONDS
    while (found := scopes.verify(context, caller, scope)).running:
        assert time.monotonic() < until, found
    return found
