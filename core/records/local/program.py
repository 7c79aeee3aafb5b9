"""Program that looks at one file on its owner's machine, under the limits of an upload; it writes and sends nothing.

It reads one line of JSON from standard input and answers one. Only names, paths and JSON of the owner's go in.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from core.base.errors import Refusal
from core.records.decoding.child import ChildRefusal, answering, limit
from core.records.decoding.decode import Limits
from farthing.schemas.base import View

Look = Callable[[Mapping[str, Any], Limits], View]


def run(look: Look) -> NoReturn:
    """Answer one request, and end.

    Args:
        look: makes the answer, or raises the refusal.
    """
    answering(partial(answer, look))


def answer(look: Look, line: bytes) -> str:
    """Return the answer to a request: `found`, or the `problem` of a file or declaration that is refused."""
    # Not by pydantic: a path may hold bytes that are no UTF-8, which JSON carries as lone surrogates.
    request = json.loads(line)
    limits = Limits()
    # Nothing is to be written: the system refuses the first byte.
    limit(memory_bytes=limits.memory_bytes, seconds=limits.seconds, file_bytes=0)
    try:
        return json.dumps({"found": look(request, limits).model_dump(mode="json")})
    except Refusal as refusal:
        return json.dumps({"problem": ChildRefusal.of(refusal).model_dump(mode="json")})
