"""Which of a job's own figures lead its plan out of what floats can hold."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from core.base.errors import FieldError
from core.planning.job import JobSpec

_SEARCHED: Final = ("privacy", "model", "inference", "optimizer")
_WHOLE: Final = frozenset({"privacy", "shares", "condition"})
"""Objects whose figures mean something together only."""
_ORDINARY: Final = {"privacy": {"mu": "1"}}


def figures_at_fault(spec: JobSpec, fails: Callable[[JobSpec], bool]) -> tuple[FieldError, ...]:
    """Name the figures of a job with which its plan fails.

    Every figure is left open first, and the privacy target is an ordinary one; then they are put back one by one. A
    figure with which the plan still works stays; the others are named, so at least one is, and each is in the body.

    Args:
        spec: the job as it was asked for, whose plan fails.
        fails: says whether planning a job leads to numbers that cannot be computed with.
    """
    body = spec.model_dump(mode="json", exclude_unset=True)
    figures = [(path, value) for name in _SEARCHED for path, value in _figures(body, (name,))]
    tried = deepcopy(body)
    for path, _ in figures:
        _put(tried, path, _ORDINARY.get(path[0]))
    if fails(JobSpec.model_validate(tried)):
        return (FieldError("/model", "its columns' declared bounds lead to numbers that cannot be computed with"),)
    named = []
    for path, value in figures:
        candidate = deepcopy(tried)
        _put(candidate, path, value)
        if fails(JobSpec.model_validate(candidate)):
            named.append(_named(path, value))
        else:
            tried = candidate
    return tuple(named)


def _figures(body: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield where a body has figures, with what stands there."""
    value: Any = body
    for name in path:
        value = value.get(name, {})
    if isinstance(value, dict) and path[-1] not in _WHOLE:
        for name in value:
            yield from _figures(body, (*path, name))
    elif _is_figure(value):
        yield path, value


def _is_figure(value: object) -> bool:
    """Tell numbers, lists of them, and objects of them, from names and choices."""
    if isinstance(value, list):
        return all(isinstance(item, int | float) for item in value)
    # A bool is an int in Python.
    return isinstance(value, int | float | dict) and not isinstance(value, bool)


def _put(body: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set a field, or leave it open where the value is None."""
    *way, last = path
    for name in way:
        body = body[name]
    if value is None:
        body.pop(last, None)
    else:
        body[last] = value


def _named(path: tuple[str, ...], value: Any) -> FieldError:  # noqa: ANN401 - any JSON value
    if path == ("privacy",):
        return FieldError("/privacy/" + next(iter(value)), "ask for a less extreme figure")
    return FieldError("/" + "/".join(path), "leave it out to have it planned, or choose a less extreme figure")
