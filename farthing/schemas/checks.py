"""Checks: the verdict on a certificate, or on a signed head, that somebody uploaded."""

from typing import Any, Literal

from farthing.schemas.base import View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


class CertificateCheckView(View):
    """The verdict on an uploaded certificate or signed head.

    The service checks with its own keys and its own ledger. To trust neither, check offline.
    """

    object: Literal["certificate-check"] = "certificate-check"
    valid: Operational[bool]
    """Whether the signature holds, and the ledger here agrees where it was compared."""
    signature: Operational[Literal["good", "bad"]]
    """Whether a key of this installation signed it while the key was in use."""
    signature_fault: Operational[str | None]
    """The fault of the signature; null: it is good."""
    ledger: Paid[Literal["agrees", "differs", "not-compared"]]
    """Whether the ledger here has the entries that it names, and says what it says."""
    ledger_note: Paid[str | None]
    """The difference, or the reason why the ledger was not compared; null: it agrees."""
    kind: Declared[Literal["certificate", "head"] | None]
    """The kind of text that was signed; null where the signature is bad, like each field below."""
    issuer: Drawn[str | None]
    """Installation that signed it."""
    key: Drawn[str | None]
    """Name of the key that signed it."""
    signed_at: Timed[str | None]
    """Time of the signature, by the installation's word."""
    scope: Drawn[str | None]
    """Scope whose ledger it speaks of; null of a federated job."""
    job: Drawn[str | None]
    """Job that it is of; null of a head."""
    model: Drawn[str | None]
    """Model that the job released; null: none, or a head."""
    promise: Paid[dict[str, Any] | None]
    """Its promise, under both adjacencies; null of a head and of a federated job."""
    uncovered: Declared[list[str]]
    """Members of the certificate that no entry of the ledger covers, by name."""
