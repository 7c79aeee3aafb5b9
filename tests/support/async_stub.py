"""The types of `farthing.asynchronous`, whose methods are made at import: `python -m` this module writes them."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_overloads, get_type_hints

from farthing import asynchronous
from farthing.awaiting import is_iterated, members
from farthing.client import Client
from farthing.models import Model
from farthing.networks import Pretrained

STUB: Final = Path(asynchronous.__file__).with_suffix(".pyi")
_CLASSES: Final = {
    asynchronous.AsyncClient: Client,
    asynchronous.AsyncModel: Model,
    asynchronous.AsyncPretrained: Pretrained,
}
_BY_HAND: Final = {
    asynchronous.AsyncClient: """
    pretrained: AsyncPretrained
    def __init__(self, url: str = ..., key: str = ..., timeout_seconds: float = ...) -> None: ...
    @property
    def url(self) -> str: ...
    @classmethod
    def from_environment(cls, url: str = ...) -> typing.Self: ...
    async def __aenter__(self) -> typing.Self: ...
    async def __aexit__(self, *raised: object) -> None: ...
    async def close(self) -> None: ...
""",
    asynchronous.AsyncModel: """
    @property
    def id(self) -> str: ...
""",
    asynchronous.AsyncPretrained: "",
}
_RENAMED: Final = {"farthing.models.Model": "AsyncModel", "NoneType": "None", "Any": "typing.Any"}


def stub() -> str:
    """Return the stub's text, formatted."""
    body = "".join(_class_lines(made, kind) for made, kind in _CLASSES.items())
    modules = set(re.findall(r"\b((?:collections|farthing|pathlib|typing)[a-z_.]*)\.[A-Z_]", body))
    lines = [f"import {one}" for one in sorted(modules, key=lambda one: (one.startswith("farthing"), one))]
    first = next(place for place, line in enumerate(lines) if line.startswith("import farthing"))
    head = ["# Written by `python -m tests.support.async_stub`.", *lines[:first], "", *lines[first:]]
    text = "\n".join(head) + "\n" + body
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _class_lines(made: type, kind: type) -> str:
    lines = [f"\nclass {made.__name__}:{_BY_HAND[made]}"]
    for name, found in members(kind):
        if inspect.isfunction(found):
            signatures = get_overloads(found)
            mark = "    @typing.overload\n" if signatures else ""
            lines += [f"{mark}    {_method(name, one)}" for one in signatures or [found]]
        else:
            read = found.fget if isinstance(found, property) else found.func
            answer = f"collections.abc.Awaitable[{_text(get_type_hints(read)['return'])}]"
            lines.append(f"    @property\n    def {name}(self) -> {answer}: ...")
    return "\n".join(lines) + "\n"


def _method(name: str, method: Callable[..., Any]) -> str:
    hints = get_type_hints(method)
    marked = _marked(inspect.signature(method).parameters.values())
    shown = [one if isinstance(one, str) else _parameter(one, hints) for one in marked]
    answer = hints["return"]
    if is_iterated(method):
        return f"def {name}({', '.join(shown)}) -> collections.abc.AsyncIterator[{_text(get_args(answer)[0])}]: ..."
    return f"async def {name}({', '.join(shown)}) -> {_text(answer)}: ..."


def _marked(parameters: Any) -> Iterator[Any]:
    """Yield parameters, with a star before the first that goes by name alone."""
    starred = False
    for one in parameters:
        starred = starred or one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not starred:
            yield "*"
            starred = True
        yield one


def _parameter(one: inspect.Parameter, hints: dict[str, Any]) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    kind = f": {_text(hints[one.name])}" if one.name in hints else ""
    return f"{stars}{one.name}{kind}{' = ...' if one.default is not one.empty else ''}"


def _text(kind: Any) -> str:
    if isinstance(kind, TypeVar):
        return "farthing.models.Table"
    text = inspect.formatannotation(kind)
    for old, new in _RENAMED.items():
        text = re.sub(rf"(?<![\w.]){re.escape(old)}\b", new, text)
    return text


if __name__ == "__main__":
    STUB.write_text(stub())
