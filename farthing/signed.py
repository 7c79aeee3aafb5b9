"""Texts that a service has signed, as they come; `farthing.certificates` reads and checks them."""

import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from farthing.errors import FarthingError
from farthing.schemas.checks import CertificateCheckView
from farthing.wire import Wire, retry_after_seconds

ACCEPTED: Final = 202
WAIT_SECONDS: Final = 600.0
Progress = Callable[[int], object]
"""Takes how many per cent of the entries are verified."""


class SignedResources:
    """The part of a client that gets certificates, signed heads, and the keys that both are checked with."""

    _wire: Wire

    def certificate(self, job: str, *, wait_seconds: float = WAIT_SECONDS, progress: Progress | None = None) -> str:
        """Return what a job that has ended drew, cost and promises, signed.

        Args:
            job: `job_...`.
            wait_seconds: as for `signed_head`.
            progress: as for `signed_head`.
        """
        return self._signed(f"/v1/jobs/{job}/certificate", wait_seconds, progress)

    def signed_head(self, scope: str, *, wait_seconds: float = WAIT_SECONDS, progress: Progress | None = None) -> str:
        """Return where a scope's ledger stands, signed: to keep, and to compare with a later one.

        Args:
            scope: `sc_...`.
            wait_seconds: for so long the service may verify the ledger first; a hundred thousand entries that nobody
                has verified, as after some upgrades, take about half a minute.
            progress: called with the per cent that are verified, each time the service says so.

        Raises:
            FarthingError: `ledger-behind` (202) where the ledger was not verified in that time; else as the service
                refuses.
        """
        return self._signed(f"/v1/scopes/{scope}/head/signed", wait_seconds, progress)

    def signing_keys(self) -> dict[str, Any]:
        """Return the installation's public keys, those that signed earlier among them."""
        return self._wire.get("/.well-known/jwks.json")

    def check_certificate(self, text: str) -> CertificateCheckView:
        """Have the service check a certificate or a signed head with its keys and its ledger.

        `farthing.certificates.check` does the same offline, and trusts no service.
        """
        return CertificateCheckView.model_validate(self._wire.post("/v1/certificates/check", {"certificate": text}))

    def _signed(self, path: str, wait_seconds: float, progress: Progress | None) -> str:
        """Ask until the ledger is verified."""
        until = time.monotonic() + wait_seconds
        while (answer := self._wire.send("GET", path)).status_code == ACCEPTED:
            # Cut down, so that 100 is never said before the end.
            percent = int(100 * Decimal(answer.json()["verified_share"]))
            if progress is not None:
                progress(percent)
            pause_seconds = max(1.0, retry_after_seconds(answer))
            if time.monotonic() + pause_seconds > until:
                detail = f"the service verifies the ledger first, {percent} % so far; ask again later"
                raise FarthingError(ACCEPTED, {"code": "ledger-behind", "detail": detail, "retryable": True})
            self._wire.pause(pause_seconds)
        return answer.text
