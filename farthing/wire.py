"""Requests over HTTP: sent again where that is safe, answered as JSON or raised as a refusal."""

import hmac
import os
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, BinaryIO, Final, Self
from weakref import finalize

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from farthing.errors import FarthingError, Unreachable, WrongInput

SENDS: Final = 5
"""The most times that one request is sent when no answer comes, or one that asks to come back."""
FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10.0
WAITED_OUT: Final = frozenset(
    {
        "database-away",
        "idempotency-key-in-flight",
        "ledger-busy",
        "rate-limited",
        "service-busy",
        "too-many-at-once",
    }
)
"""Refusals that pass by themselves within seconds. Others that may be retried, such as a budget that is reserved, are
for the caller to know of."""
GATEWAY: Final = frozenset({502, 503, 504})
KEY: Final = "Idempotency-Key"


class Wire:
    """A connection pool to one service. Pickled, it is an address without a key; copies share its connections.

    Args:
        url: where it listens.
        key: an API key.
        timeout_seconds: of one request.
        transport: sends the requests; None: httpx's own.
        pause: waits for some seconds.
    """

    def __init__(
        self,
        url: str,
        key: str,
        timeout_seconds: float,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self.pause = pause
        self._timeout_seconds = timeout_seconds
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        made = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds, transport=transport)
        self._http: httpx.Client | None = made
        # A notebook's client is seldom closed, and what it leaves open would be warned of wherever it is collected.
        finalize(self, made.close).atexit = False

    @property
    def http(self) -> httpx.Client:
        """The connections.

        Raises:
            WrongInput: this was unpickled, and the environment has no key.
        """
        if self._http is None:
            key = os.environ.get("FARTHING_KEY", "")
            if not key:
                fix = "set FARTHING_KEY, or call .connect(client)"
                raise WrongInput("A handle that was pickled has left its API key behind.", "/key", fix)
            # An address that the environment names is where its key belongs.
            self.__init__(os.environ.get("FARTHING_URL") or self.url, key, self._timeout_seconds)  # type: ignore[misc]
        assert self._http is not None, "it was just made"
        return self._http

    def __getstate__(self) -> dict[str, Any]:
        # An address may have a name and a password of its own.
        bare = httpx.URL(self.url).copy_with(userinfo=b"")
        state = {"url": str(bare).rstrip("/"), "_timeout_seconds": self._timeout_seconds, "_http": None}
        return state | {"pause": time.sleep}  # an event loop stays behind, too

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def get(self, path: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - query values are whatever httpx takes
        """Return a JSON object; a query value None is left out."""
        params = {name: value for name, value in query.items() if value is not None}
        answer: dict[str, Any] = self.send("GET", path, params=params).json()
        return answer

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Post JSON and return a JSON object. Without a key it must be safe to send twice."""
        request = {} if body is None else {"json": body}
        answer: dict[str, Any] = self.send("POST", path, headers={KEY: key} if key else {}, **request).json()
        return answer

    def pages(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - as `get`
        """Yield the items of a list, page by page."""
        while True:
            page = self.get(path, **query)
            yield from page["data"]
            if not page["has_more"]:
                return
            query["after"] = page["next"]

    def name_of(self, content: bytes) -> str:
        """Return a name for some bytes, 64 hexadecimal digits, which only holders of this API key can work out."""
        return hmac.digest(self.http.headers.get("Authorization", "").encode(), content, sha256).hex()

    def send(
        self,
        method: str,
        path: str,
        *,
        sends: int = SENDS,
        passing: frozenset[str] = WAITED_OUT,
        into: BinaryIO | None = None,
        **request: Any,  # noqa: ANN401 - passed on to httpx
    ) -> httpx.Response:
        """Send a request that may be sent twice: a read, a write that repeats itself, or one with an idempotency key.

        Args:
            method: of HTTP.
            path: below the service's address.
            sends: the most times that it is sent.
            passing: codes of refusals after which it is sent again.
            into: takes the content of an answer as it comes; None: the answer has it.
            request: as httpx takes it.

        Raises:
            FarthingError: the service refused.
            Unreachable: no answer came, however often it was sent.
        """
        again = Retrying(
            sleep=self.pause,
            stop=stop_after_attempt(sends),
            wait=_pause_seconds,
            retry=retry_if_exception(lambda error: _passes(error, passing)),
            reraise=True,
        )
        answer: httpx.Response = again(self._send_once, method, path, into, request)
        return answer

    def _send_once(self, method: str, path: str, into: BinaryIO | None, request: Mapping[str, Any]) -> httpx.Response:
        try:
            response = self._ask(method, path, into, request)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(self.url, str(error) or type(error).__name__) from error
        if not response.is_success:
            raise FarthingError(response.status_code, _problem(response), retry_after_seconds(response))
        return response

    def _ask(self, method: str, path: str, into: BinaryIO | None, request: Mapping[str, Any]) -> httpx.Response:
        if into is None:
            return self.http.request(method, path, **request)
        with self.http.stream(method, path, **request) as response:
            if not response.is_success:
                response.read()
                return response
            # Standard output cannot go back; an answer that broke off there is not sent twice.
            if into.seekable():
                into.seek(0)
                into.truncate()
            for piece in response.iter_bytes():
                into.write(piece)
        return response


def _passes(error: BaseException, passing: frozenset[str]) -> bool:
    """Tell whether a failure passes by itself soon: no answer, a busy service, or a proxy before one that starts."""
    if isinstance(error, Unreachable):
        # An address that cannot be read will not become readable by another send.
        return isinstance(error.__cause__, httpx.TransportError)
    # A problem of the service has a code of its own; `http-...` is made of a proxy's plain answer.
    return isinstance(error, FarthingError) and (
        error.code in passing or (error.status in GATEWAY and error.code.startswith("http-"))
    )


_DOUBLING = wait_exponential(multiplier=FIRST_PAUSE_SECONDS, max=LONGEST_PAUSE_SECONDS)


def _pause_seconds(state: RetryCallState) -> float:
    """Return the pause before the next send: doubling, or as long as the service asked for."""
    error = state.outcome.exception() if state.outcome else None
    wanted_seconds = error.retry_after_seconds if isinstance(error, FarthingError) else 0.0
    return min(max(_DOUBLING(state), wanted_seconds), LONGEST_PAUSE_SECONDS)


def retry_after_seconds(response: httpx.Response) -> float:
    """Return the seconds after which an answer asks for the same request again, 0 where it does not."""
    text = response.headers.get("Retry-After", "")
    # A date is allowed here, too, and stands for no pause; the doubling pause remains.
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    """Return the problem document, or one made of a plain answer."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, Mapping) and "code" in body:
        return body
    return {"code": f"http-{response.status_code}", "detail": response.text[:500]}
