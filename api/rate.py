"""The in-process bucket of requests: enough for one machine; replicas each count their own."""

import math
import time

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter


class Rate:
    """So many requests a minute for each key, or for each address without one."""

    def __init__(self, per_minute: int) -> None:
        """Start counting."""
        self._item = RateLimitItemPerMinute(per_minute)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def hit(self, bucket: str) -> tuple[bool, dict[str, str], int]:
        """Count one request; return whether it is allowed, the headers that say so, and the seconds to wait."""
        allowed = self._limiter.hit(self._item, bucket)
        window = self._limiter.get_window_stats(self._item, bucket)
        seconds = max(1, math.ceil(window.reset_time - time.time()))
        headers = {
            "RateLimit-Limit": str(self._item.amount),
            "RateLimit-Remaining": str(max(0, window.remaining)),
            "RateLimit-Reset": str(seconds),
        }
        return allowed, headers, seconds
