"""Asynchronous handles made of synchronous ones: each method and property is awaited, each list is iterated."""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from inspect import get_annotations, isfunction
from typing import Any, Final, get_origin

from farthing.bridging import beside, each_beside

_MADE: Final[dict[type, type["Asynchronous"]]] = {}
"""The asynchronous classes, by the synchronous ones."""


class Asynchronous:
    """A handle whose methods and properties are awaited.

    Args:
        inside: the synchronous handle.
    """

    def __init__(self, inside: Any) -> None:  # noqa: ANN401 - of any class below
        self._inside = inside

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._inside, 'id', '')!r})"


def _outside(value: Any) -> Any:  # noqa: ANN401 - any answer
    """Return an answer, a handle as its asynchronous one."""
    made = _MADE.get(type(value))
    return value if made is None else made(value)


def _inside(value: Any) -> Any:  # noqa: ANN401 - any argument
    return value._inside if isinstance(value, Asynchronous) else value  # noqa: SLF001 - these are one class's


def _called(method: Callable[..., Any], handle: Asynchronous, given: tuple[Any, ...], named: dict[str, Any]) -> Any:  # noqa: ANN401 - any
    plain = {name: _inside(value) for name, value in named.items()}
    return _outside(method(_inside(handle), *map(_inside, given), **plain))


def is_iterated(method: Callable[..., Any]) -> bool:
    """Tell whether a method yields its answers."""
    return get_origin(get_annotations(method, eval_str=True).get("return")) is Iterator


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that is awaited, or iterated by `async for`."""

    @wraps(method)
    def listed(handle: Asynchronous, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - the method's own
        return each_beside(partial(_called, method, handle, given, named))

    @wraps(method)
    async def one(handle: Asynchronous, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
        return await beside(partial(_called, method, handle, given, named))

    return listed if is_iterated(method) else one


def _awaited_property(found: Any) -> property:  # noqa: ANN401 - a property of either kind
    read: Any = found.fget if isinstance(found, property) else found.func

    async def value(handle: Asynchronous) -> Any:  # noqa: ANN401 - the property's own
        return await beside(partial(_called, read, handle, (), {}))

    return property(value, doc=read.__doc__)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield a handle's public methods and properties by name; a client's own life is written by hand below."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__[:-1]) for name in vars(base))
    for name in names:
        found = next(vars(base)[name] for base in kind.__mro__ if name in vars(base))
        by_hand = name.startswith("_") or name in {"url", "close", "connect"} or isinstance(found, classmethod)
        if not by_hand and (isfunction(found) or hasattr(found, "__get__")):
            yield name, found


def made_of(kind: type) -> Callable[[type[Asynchronous]], type[Asynchronous]]:
    """Give a class the methods and properties of a synchronous one."""

    def fill(made: type[Asynchronous]) -> type[Asynchronous]:
        for name, found in members(kind):
            setattr(made, name, _awaited(found) if isfunction(found) else _awaited_property(found))
        _MADE[kind] = made
        return made

    return fill
