"""Logs of the worker side: one JSON object a line on standard error; codes and ids, never text that depends on data."""

import sys

import structlog


def configure() -> structlog.typing.FilteringBoundLogger:
    """Set the renderer and return the logger; call once in a process."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
