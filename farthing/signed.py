"""What a service has signed, as it comes; `farthing.certificates` reads and checks it."""

from typing import Any

from farthing.wire import Wire


class SignedResources:
    """The part of a client that gets certificates, signed heads, and the keys that both are checked with."""

    _wire: Wire

    def certificate(self, job: str) -> str:
        """Return what a job that has ended drew, cost and promises, signed."""
        return self._wire.send("GET", f"/v1/jobs/{job}/certificate").text

    def signed_head(self, scope: str) -> str:
        """Return where a scope's ledger stands, signed: to keep, and to compare with a later one."""
        return self._wire.send("GET", f"/v1/scopes/{scope}/head/signed").text

    def signing_keys(self) -> dict[str, Any]:
        """Return the installation's public keys, those that signed earlier among them."""
        return self._wire.get("/.well-known/jwks.json")
