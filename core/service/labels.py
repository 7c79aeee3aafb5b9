"""The smallest epsilons of what scopes have spent, looked for off the request path.

Composing privacy loss distributions takes half a second, and every paid chunk makes another composition. So a reader
gets the smallest epsilon if it is ready, and else an upper bound that is worked out at once; a thread of this process
looks for the smallest of what was read last of each scope, one scope after the other, and later readers get it.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from core.privacy.events import Event
from core.privacy.reports import epsilon_at

Label = tuple[float, str]
"""An epsilon in nats and the method that gave it."""

MOST_DRAWS: Final = 100
"""Different draws whose losses are composed, in some seconds; of more, the upper bound is all there is."""
_MOST_SCOPES: Final = 1024
_REST: Final = 3.0
"""Of the time that a composition took: the interpreter is shared with requests, and these come first."""
_LOAD_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class Composition(NamedTuple):
    """What a scope has spent."""

    key: Hashable
    """By which a reader knows it again."""
    event: Event
    distinct: int
    """Different draws in it."""
    delta: float
    """At which the epsilon is to hold."""


class Labels:
    """The smallest epsilons by scope; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[Hashable, Label | None]] = OrderedDict()
        self._waiting: OrderedDict[str, Callable[[], Composition]] = OrderedDict()
        self._is_composing = False
        self._stop = threading.Event()
        self._loading = threading.Lock()

    def smallest(self, scope_id: str, key: Hashable, load: Callable[[], Composition]) -> Label | None:
        """Return the smallest known epsilon of a composition if it is ready; else have the thread look for it.

        Args:
            scope_id: whose composition.
            key: which one; what is ready of another is not returned.
            load: returns the scope's composition as it is when the thread comes to it.
        """
        with self._lock:
            known = self._kept.get(scope_id)
            if known is not None and known[0] == key:
                self._kept.move_to_end(scope_id)
                return known[1]
            self._waiting[scope_id] = load
            while len(self._waiting) > _MOST_SCOPES:
                self._waiting.popitem(last=False)  # the next reader of that scope puts it back
            if not self._is_composing and not self._stop.is_set():
                self._is_composing = True
                threading.Thread(target=self._compose, name="epsilons", daemon=True).start()
        return None

    def stop(self) -> None:
        """Have the thread end after the composition that it is at, which needs no database; no process waits for it."""
        self._stop.set()
        if self._loading.acquire(timeout=_LOAD_SECONDS):
            self._loading.release()

    def _compose(self) -> None:
        """Look for what waits, until nothing does."""
        while True:
            with self._lock:
                if not self._waiting or self._stop.is_set():
                    self._is_composing = False
                    return
                scope_id, load = self._waiting.popitem(last=False)
            begun = time.monotonic()
            try:
                with self._loading:
                    if self._stop.is_set():
                        continue
                    found = load()
                label = epsilon_at(found.event, found.delta) if found.distinct <= MOST_DRAWS else None
            except Exception:  # noqa: BLE001 - of this scope only: others wait for the thread, and the bound holds
                _log.exception("the smallest epsilon of a scope was not found")
                continue
            with self._lock:
                self._kept[scope_id] = found.key, label
                while len(self._kept) > _MOST_SCOPES:
                    self._kept.popitem(last=False)
            self._stop.wait(_REST * (time.monotonic() - begun))
