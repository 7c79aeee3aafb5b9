"""Logs of every process: one JSON object a line on standard error; codes, ids and places, never text from data.

An exception's text, its traceback's variables and the arguments of a library's message may hold records. An error is
therefore logged as its class and the places it passed, and a library's message as its template.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from core.base.errors import ensure

MOST_PLACES: Final = 12


def configure(process: str) -> FilteringBoundLogger:
    """Send every log of this process through one renderer, libraries' warnings too; call once, before serving.

    Args:
        process: the kind of this process: ``api``, ``supervisor`` or ``worker``.

    Returns:
        The process's own logger.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            partial(_name_process, process),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _tell_errors,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Template(process))
    root = logging.getLogger()
    # In place of all others, which would write texts and arguments that may hold records.
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


class Template(logging.Formatter):
    """Formatter of libraries' log records: the same JSON, without arguments and without an exception's text."""

    def __init__(self, process: str) -> None:
        """Format records of this process."""
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one JSON object."""
        fields: dict[str, Any] = {
            "event": str(record.msg),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            **structlog.contextvars.get_contextvars(),
        }
        error = record.exc_info[1] if record.exc_info else None
        return json.dumps(fields if error is None else fields | describe(error), sort_keys=True)


def describe(error: BaseException) -> dict[str, Any]:
    """Return the loggable part of an error: its class, and the modules and lines it passed, innermost last."""
    places: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is not ensure.__code__:  # the caller of `ensure` is the place of the fault
            places.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return {"error": type(error).__name__, "at": places[-MOST_PLACES:]}


def _name_process(process: str, logger: WrappedLogger, name: str, event: EventDict) -> EventDict:  # noqa: ARG001 - the hook's shape
    event["process"] = process
    return event


def _tell_errors(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:  # noqa: ARG001 - the hook's shape
    """Put an error's class and places in place of its traceback."""
    given = event.pop("exc_info", None)
    # `log.exception` gives True and means the error that is being handled.
    error = sys.exception() if given is True else given
    if isinstance(error, BaseException):
        event.update(describe(error))
    return event
