"""Requests over HTTP: sent again where that is safe, answered as JSON or raised as a refusal."""

import hmac
import os
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, BinaryIO, Final, Self

import httpx

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
    """

    def __init__(self, url: str, key: str, timeout_seconds: float) -> None:
        self.url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http: httpx.Client | None = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_seconds)

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
        return {"url": str(bare).rstrip("/"), "_timeout_seconds": self._timeout_seconds, "_http": None}

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
        for sent in range(1, sends + 1):
            pause_seconds = FIRST_PAUSE_SECONDS * 2 ** (sent - 1)
            try:
                response = self._ask(method, path, into, request)
            except httpx.TransportError as error:
                if sent == sends:
                    raise Unreachable(self.url, str(error) or type(error).__name__) from error
            # An address that cannot be read will not become readable by another send.
            except httpx.InvalidURL as error:
                raise Unreachable(self.url, str(error)) from error
            else:
                if response.is_success:
                    return response
                refusal = FarthingError(response.status_code, _problem(response))
                if sent == sends or not _passes(refusal, passing):
                    raise refusal
                pause_seconds = max(pause_seconds, retry_after_seconds(response))
            time.sleep(min(pause_seconds, LONGEST_PAUSE_SECONDS))
        raise AssertionError("the last send returns or raises")

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


def _passes(refusal: FarthingError, passing: frozenset[str]) -> bool:
    """Tell whether a refusal passes by itself soon: a busy service, or a proxy in front of one that starts."""
    # A problem of the service has a code of its own; `http-...` is made of a proxy's plain answer.
    return refusal.code in passing or (refusal.status in GATEWAY and refusal.code.startswith("http-"))


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
