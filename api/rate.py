"""Requests a minute: counted in Redis for all API processes together, or in this process without Redis.

Redis is a convenience here. A server that is slow or gone is left alone for a moment, and every process counts for
itself meanwhile: a request waits for it at most `ANSWER_SECONDS`, and none fails for it.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage

log = structlog.get_logger("farthing.api")

WINDOW_SECONDS: Final = 60
ANSWER_SECONDS: Final = 0.05
"""Seconds that a connection, and an answer, may each take; most requests wait for neither, see `AWAY_SECONDS`."""
AWAY_SECONDS: Final = 1.0
"""For so long after a failure Redis is not asked again."""
POLICY: Final = "requests"


class Hit(NamedTuple):
    """One request, counted."""

    allowed: bool
    headers: dict[str, str]
    """The headers that give the number of requests left."""
    wait_seconds: int
    """Until the next minute begins."""


class Rate:
    """A limit on requests in each minute of the clock for each key, or for each address without a key."""

    def __init__(self, per_minute: int, broker_url: str | None = None) -> None:
        """Start counting.

        Args:
            per_minute: requests allowed.
            broker_url: redis://... or rediss://...; None counts in this process.
        """
        self._limit = per_minute
        self._own = MemoryStorage()
        self._shared = None if broker_url is None else _connect(broker_url)
        self._away_until = 0.0

    def hit(self, bucket: str) -> Hit:
        """Count one request."""
        return self.hits([bucket])[0]

    def hits(self, buckets: Sequence[str]) -> list[Hit]:
        """Count requests that came at the same time, one for each bucket named, as if one by one in this order."""
        # The clock of the day, since all processes must mean the same minute.
        minute, second = divmod(time.time(), WINDOW_SECONDS)
        # Rounded to 0, it would ask clients to come again within the same minute.
        seconds = max(1, round(WINDOW_SECONDS - second))
        many = Counter(buckets)
        # One increment a bucket for the whole batch; the loop below then numbers its requests in order.
        counted = {name: self._count(f"requests/{name}/{minute:.0f}", more) - more for name, more in many.items()}
        found = []
        for name in buckets:
            counted[name] += 1
            found.append(self._hit(counted[name], seconds))
        return found

    def _hit(self, count: int, seconds: int) -> Hit:
        """Tell of the request that is number `count` of its window."""
        left = max(0, self._limit - count)
        headers = {
            "RateLimit-Policy": f'"{POLICY}";q={self._limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"{POLICY}";r={left};t={seconds}',
            "RateLimit-Limit": str(self._limit),
            "RateLimit-Remaining": str(left),
            "RateLimit-Reset": str(seconds),
        }
        return Hit(count <= self._limit, headers, seconds)

    def _count(self, key: str, more: int) -> int:
        """Return how many requests this window has had with these, as far as whoever counts now knows."""
        if self._shared is not None and time.monotonic() >= self._away_until:
            try:
                # The key names its minute, so the expiry only cleans up; twice the minute outlives it for certain.
                return self._shared.incr(key, 2 * WINDOW_SECONDS, more)
            except StorageError as error:
                self._leave_alone(self._shared, type(error.storage_error).__name__)
        return self._own.incr(key, 2 * WINDOW_SECONDS, amount=more)

    def _leave_alone(self, shared: RedisStorage, error: str) -> None:
        """Count in this process for a while; connections to a server that was restarted are of no use any more."""
        self._away_until = time.monotonic() + AWAY_SECONDS
        shared.storage.connection_pool.disconnect(inuse_connections=False)  # others would break in mid-answer
        log.warning("rate-counted-here", error=error, seconds=AWAY_SECONDS)


def _connect(url: str) -> RedisStorage:
    """Return Redis as a counter that gives up soon and never tries twice."""
    from redis.backoff import NoBackoff  # noqa: PLC0415 - of the cluster's extra; without a broker it may be missing
    from redis.retry import Retry  # noqa: PLC0415 - as above

    return RedisStorage(
        url,
        key_prefix="farthing",
        wrap_exceptions=True,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),  # type: ignore[arg-type] # handed on to the Redis client, which takes it
    )
