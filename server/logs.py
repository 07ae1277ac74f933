"""Logs: structured lines on stderr, with ids and never with content.

JSON when stderr is not a terminal, columns for people when it is. What users or models wrote does not get
into a log: fields that are named like content are masked, and of an exception only its type and the places
it passed are written, because its text may quote what it choked on. Records of other libraries take the
same way, from warnings up (their debug records show whole frames).
"""

import logging
import sys
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, TypeAlias, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

__all__ = ["configure_logs", "get_logger"]

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

CONTENT: Final = frozenset(
    {
        "answer",
        "arguments",
        "authorization",
        "body",
        "content",
        "message",
        "messages",
        "password",
        "prompt",
        "query",
        "question",
        "result",
        "text",
        "thinking",
        "ticket",
        "token",
    }
)
"""Names of fields whose value is never written."""

MASK: Final = "***"
DEEPEST_FRAMES: Final = 30
"""How many places of a traceback are written, the innermost ones."""

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None]


def configure_logs(level: str = "info", *, as_json: bool | None = None) -> None:
    """Set up logging for the process; call it once, before the first record.

    Args:
        level: The least severe of our own records to write, a key of :data:`LEVELS`.
        as_json: ``None`` chooses JSON when stderr is not a terminal.
    """
    if as_json is None:
        as_json = not sys.stderr.isatty()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_content,
        _places_of_exception,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(pad_event_to=0)
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    _take_over_standard_logging(shared, renderer, max(LEVELS[level], logging.WARNING))


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose records say where they come from; give ids as keyword arguments."""
    return cast("FilteringBoundLogger", structlog.get_logger(source=name))


def _take_over_standard_logging(shared: list[Processor], renderer: Processor, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_of_library, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(capture=True)


def _name_of_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event["source"] = record.name
    return event


def _without_content(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key in CONTENT.intersection(event):
        event[key] = MASK
    return event


def _places_of_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace ``exc_info`` by the exception's type and the lines it passed through, without its text."""
    info = _exc_info(event.pop("exc_info", None))
    if info is not None:
        kind, error, trace = info
        frames = traceback.extract_tb(trace)[-DEEPEST_FRAMES:]
        event["error_type"] = f"{kind.__module__}.{kind.__qualname__}"
        event["places"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        if isinstance(error, BaseExceptionGroup):
            event["error_types"] = [type(part).__qualname__ for part in error.exceptions]
    return event


def _exc_info(given: Any) -> _ExcInfo | None:
    if isinstance(given, BaseException):
        return type(given), given, given.__traceback__
    if isinstance(given, tuple) and given[0] is not None:
        return cast("_ExcInfo", given)
    if given is True:
        kind, error, trace = sys.exc_info()
        return None if kind is None or error is None else (kind, error, trace)
    return None
