"""The cost that a request may cause, declared beside each endpoint. `api.limits` enforces it.

An endpoint without a declaration is refused when its route is made, so that none can be forgotten.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from starlette.datastructures import Headers

from core.base.errors import Forbidden
from core.service.context import Role

MOST_ERRORS: Final = 20
"""Wrong fields that one answer names."""
SMALL_BODY_BYTES: Final = 2**16
"""A larger body takes long enough to parse that it counts as heavy."""
MANY_VALUES: Final = 200_000
FEW_VALUES: Final = 20_000

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


class Work(Enum):
    """The part of the service that a request keeps busy. Each kind has its own places, some for each principal."""

    LIGHT = "light"
    """Some statements and a page of rows."""
    HEAVY = "heavy"
    """Arithmetic, long histories, large answers."""
    UPLOAD = "upload"
    """A body as large as a file, disk, and a decoder's process."""
    STREAM = "stream"
    """A connection that stays open while somebody waits; it holds no thread."""


@dataclass(frozen=True)
class Cost:
    """The cost of one request to an endpoint, and the roles that may send it.

    Attributes:
        roles: roles that may send it; empty: no key is needed.
        work: the part of the service that it keeps busy.
        body_bytes: of its body at most; 0: it takes none, None: as the setting for JSON bodies or uploads says.
        values: of its JSON body at most: numbers, texts, lists and objects, all counted.
        cells: made or changed for its answer at most: rows times columns. 0: the answer is a page or a document.
        errors: wrong fields that a refusal names at most.
        answered: whether its body is a file that is read for its answer alone, and not kept.
        announced: whether the bytes of its body were counted against its owner's disk before, when they were announced.
        waits: tells of a request's headers whether its client has it wait until something happens; it is counted as
            a stream then, and None says that none ever does.
        counted: whether it counts against the rate of its principal, or of its address without one.
    """

    roles: frozenset[Role]
    work: Work = Work.LIGHT
    body_bytes: int | None = 0
    values: int = 0
    cells: int = 0
    errors: int = MOST_ERRORS
    answered: bool = False
    announced: bool = False
    waits: Callable[[Headers], bool] | None = None
    counted: bool = True


def by(*roles: Role) -> frozenset[Role]:
    """Return roles as a cost names them."""
    return frozenset(roles)


NOBODY: Final = by()
"""No key is needed."""
ANYBODY: Final = by("owner", "analyst", "auditor", "admin")
"""Every key; the use case decides what that key may see."""
SUBMITTERS: Final = by("owner", "analyst", "admin")
OWNERS: Final = by("owner", "admin")
WATCHERS: Final = by("auditor", "admin")

READ: Final = Cost(ANYBODY)
HEAVY_READ: Final = Cost(ANYBODY, Work.HEAVY)
CHANGE: Final = Cost(ANYBODY)
"""Something named in the path; its owner decides."""
POST: Final = Cost(ANYBODY, body_bytes=None, values=FEW_VALUES)
QUESTION: Final = Cost(ANYBODY, Work.HEAVY, body_bytes=None, values=FEW_VALUES)
"""A body to be computed on."""
PUBLIC: Final = Cost(NOBODY)
META: Final = Cost(NOBODY, counted=False)

_DECLARED: Final[dict[Callable[..., Any], Cost]] = {}


def costs(cost: Cost) -> Callable[[Endpoint], Endpoint]:
    """Declare what an endpoint costs: a decorator below that of the route."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _DECLARED[endpoint] = cost
        return endpoint

    return declare


def cost_of(endpoint: Callable[..., Any]) -> Cost:
    """Return what an endpoint's author declared.

    Raises:
        AssertionError: nothing; `@costs(...)` below the route's decorator declares it.
    """
    assert endpoint in _DECLARED, f"{endpoint.__module__}.{endpoint.__name__} declares no cost: see api/cost.py"
    return _DECLARED[endpoint]


def require(role: Role, allowed: frozenset[Role]) -> None:
    """Refuse a key whose role an endpoint does not serve.

    Raises:
        Forbidden: the text names the roles that it serves.
    """
    if role not in allowed:
        # A set has no order, and the text of a refusal must not change from process to process.
        names: Sequence[Role] = [one for one in ("owner", "analyst", "auditor", "admin") if one in allowed]
        raise Forbidden(f"This needs a key of role {' or '.join(names)}; yours is {role}.")
