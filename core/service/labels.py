"""The smallest epsilons of what scopes have spent, looked for off the request path.

Composing privacy loss distributions takes half a second, and every paid chunk makes another composition. A reader gets
the smallest epsilon if it is ready, and else an upper bound that is computed at once. A thread of this process looks
for the smallest one of each scope's last read state, one scope after the other, for later readers.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from core.privacy.events import Event
from core.privacy.reports import epsilon_at
from core.service.aside import Aside

Label = tuple[float, str]
"""An epsilon in nats and the method that gave it."""

MOST_DRAWS: Final = 100
"""Different draws whose losses are composed, in some seconds; of more, the upper bound is all there is."""
_MOST_SCOPES: Final = 1024


class Composition(NamedTuple):
    """The events that a scope has spent."""

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
        self._aside = Aside("epsilons", _MOST_SCOPES)
        self._kept: OrderedDict[str, tuple[Hashable, Label | None]] = OrderedDict()

    def smallest(self, scope_id: str, key: Hashable, load: Callable[[], Composition]) -> Label | None:
        """Return the smallest known epsilon of a composition if it is ready; else have the thread look for it.

        Args:
            scope_id: the scope of the composition.
            key: the version; a result of another is not returned.
            load: returns the scope's composition as it is when the thread comes to it.
        """
        with self._lock:
            known = self._kept.get(scope_id)
            if known is not None and known[0] == key:
                self._kept.move_to_end(scope_id)
                return known[1]  # None stays: there are too many different draws
        self._aside.put(scope_id, lambda: self._find(scope_id, load))
        return None

    def stop(self) -> None:
        """Look for no more; the thread never keeps the process."""
        self._aside.stop()

    def _find(self, scope_id: str, load: Callable[[], Composition]) -> bool:
        """Find one; there is no more to do after that."""
        found = load()
        label = epsilon_at(found.event, found.delta) if found.distinct <= MOST_DRAWS else None
        with self._lock:
            self._kept[scope_id] = found.key, label
            while len(self._kept) > _MOST_SCOPES:
                self._kept.popitem(last=False)
        return False
