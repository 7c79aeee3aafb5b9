"""A site's session in one attempt at a federated job: the facts that its process gets beside its own claim."""

from pydantic import Field

from core.privacy.facts import Frozen


class SiteConnection(Frozen):
    """Where the client's process meets the others, and what opens its own records and nobody else's."""

    federation: str
    """The federated job; common randomness is made of it."""
    number: int
    """Of those that take part in this attempt, from 0."""
    size: int
    """The number of sites that take part."""
    asked: int
    """The number of sites that the job asked for: more than take part, once one is lost."""
    meeting: str | None
    """Where they find each other; None: on several machines, at a place that the first of them notes in the database.
    """
    host: str | None = None
    """By which the others reach this machine, where they are on several."""
    port: int = 0
    """Where this client would listen for them; 0: wherever is free."""
    key: str = Field(repr=False)
    """By which they know one another, in hexadecimal digits; fresh in each attempt."""
    patience_seconds: float
    """Seconds to wait for messages of the others."""
    mark_keys: tuple[str, ...] = Field(default=(), repr=False)
    """By which it tells what was verified of its ledger from what others write of it, in hexadecimal digits; they open
    nothing."""
    dataset_key: str | None = Field(repr=False)
    """Opens this client's records, in hexadecimal digits; None: they were stored before there was encryption."""
    location: str | None
    """Of the file that this key opens."""
