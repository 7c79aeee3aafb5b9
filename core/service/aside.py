"""Work of this process beside its requests: in a thread, piece by piece, with rests between.

All threads of a process share one interpreter, so that one that computes without a pause delays every request. After a
piece the thread rests for a multiple of the processor time that it took, three times it unless somebody waits for it.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

_RESTS: Final = 3.0
_LONGEST_REST_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class Aside:
    """A thread that is there while there is work; safe to use from several threads.

    Args:
        name: the thread's.
        most: pieces that wait; of more, those that have waited longest are dropped.
        rests: rest of the thread after a piece, in multiples of its processor time.
    """

    def __init__(self, name: str, most: int, rests: float = _RESTS) -> None:
        self._name = name
        self._rests = rests
        self._most = most
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, Callable[[], bool]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def put(self, key: Hashable, piece: Callable[[], bool]) -> None:
        """Have a piece of work done when those before it are.

        Args:
            key: its key; it replaces one that waits under the same key.
            piece: does it, and tells whether there is more to do; then it is called again, after what else waits.
        """
        with self._lock:
            self._waiting[key] = piece
            while len(self._waiting) > self._most:
                self._waiting.popitem(last=False)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Begin no piece any more; wait a moment for the one that is being done. No process waits for the thread."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._stop.is_set():
                    # Under the lock, so that `put` never counts on a thread that is about to end.
                    self._thread = None
                    return
                key, piece = self._waiting.popitem(last=False)
            begun = time.thread_time()
            try:
                if piece():
                    with self._lock:
                        # A piece that was put under the same key meanwhile is newer, and stays.
                        self._waiting.setdefault(key, piece)
            except Exception:  # noqa: BLE001 - of this piece only: others wait for the thread
                _log.exception("work beside requests failed")
            self._stop.wait(min(self._rests * (time.thread_time() - begun), _LONGEST_REST_SECONDS))
