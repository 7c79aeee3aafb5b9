"""A released model's handle: its id, and its requests below `/v1/models/{id}`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from httpx import Response

from farthing.errors import WrongInput
from farthing.wire import Wire

Levels = float | Sequence[float] | None
"""One level, several, or None for the job's own."""
_LARGEST_ALPHA = 0.5


class Text(str):
    """Text of several lines that a prompt or a notebook shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Connected(Protocol):
    """A client, or another handle."""

    _wire: Wire


class Handle:
    """Asks the service about one model; nothing is asked before a method is called.

    Args:
        wire: the client's connections.
        model: the model's id.
    """

    def __init__(self, wire: Wire, model: str) -> None:
        self._wire = wire
        self.id = model

    def __getstate__(self) -> dict[str, Any]:
        # Figures that were read stay here: the release may be retracted before the pickle is opened.
        return {"id": self.id, "_wire": self._wire}

    def connect(self, client: Connected) -> Self:
        """Read by a client's connections and key from now on, such as after unpickling; return the handle itself."""
        self._wire = client._wire  # noqa: SLF001 - a client and its handles share it
        return self

    def _path(self, part: str) -> str:
        return f"/v1/models/{self.id}/{part}"

    def _read(self, part: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401 - query values are whatever httpx takes
        return self._wire.get(self._path(part), **query)

    def _get(self, part: str, **query: Any) -> str:  # noqa: ANN401 - as above
        return self._send(part, **query).text

    def _send(self, part: str, **query: Any) -> Response:  # noqa: ANN401 - as above
        params = {name: value for name, value in query.items() if value is not None}
        return self._wire.send("GET", self._path(part), params=params)

    def _post(self, part: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._wire.post(self._path(part), body)


def levels_of(level: Levels) -> list[float] | None:
    """Return levels as a repeated query parameter; None: the job's own."""
    if level is None:
        return None
    return [level] if isinstance(level, int | float) else list(level)


def level_at(alpha: float) -> float:
    """Return the level of intervals that leave `alpha` outside.

    Raises:
        WrongInput: it is not between 0 and 0.5, such as a level in its place.
    """
    if not 0 < alpha < _LARGEST_ALPHA:
        raise WrongInput(
            f"alpha={alpha!r} is no part outside an interval.",
            "/alpha",
            "must be above 0 and below 0.5: alpha=0.05 gives 95 % intervals",
        )
    # 1 - 0.3 is no float that prints as 0.7.
    return round(1 - alpha, 12)
