"""Noise that repeats: in test processes a system generator's key follows from the test's name, not from the system.

`tests/conftest.py` names each fixture and each test before it runs, so that a run repeats the draws of the last one and
no test of this process fails by chance. Tests marked `statistical` judge fresh draws and keep the system's keys. Forked
children and the processes that tests start keep them too.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from core.mechanisms import generator


class _Keys:
    """The keys of the name in force, or the system's where there is none."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.drawn = 0
        self._process = os.getpid()

    def urandom(self, size: int) -> bytes:
        """Return the name's next bytes, shape (size,)."""
        if self.name is None or os.getpid() != self._process:
            return os.urandom(size)
        self.drawn += 1
        return hashlib.shake_256(f"{self.name}#{self.drawn}".encode()).digest(size)


_KEYS = _Keys()


def force_keys() -> None:
    """Let system generators of this process take their keys from the name in force; no public way leads here."""
    vars(generator)["os"] = SimpleNamespace(urandom=_KEYS.urandom, getpid=os.getpid)


@contextmanager
def keys_of(name: str | None) -> Iterator[None]:
    """Put a name in force for a while; the one before goes on where it was.

    Args:
        name: the keys follow from it; None for the system's own.
    """
    before = _KEYS.name, _KEYS.drawn
    _KEYS.name, _KEYS.drawn = name, 0
    try:
        yield
    finally:
        _KEYS.name, _KEYS.drawn = before
