"""Logs: one JSON object a line for machines, plain text on a terminal; no secret in either.

Uses the standard library's logging, so every library's records come the same way. The level can be changed while
running. A request id set here (``request_id``) is in every record made while that request is served.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, TextIO, get_args

import msgspec

from strata.core.errors import BadRequest
from strata.core.redact import redact

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = get_args(Level)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request being served, or empty."""

_PLAIN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_PLAIN_TYPES = (str, int, float, type(None), Mapping, list, tuple, set, frozenset)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    given = {k: v for k, v in vars(record).items() if k not in _PLAIN_ATTRIBUTES and not k.startswith("_")}
    return redact({key: value if isinstance(value, _PLAIN_TYPES) else str(value) for key, value in given.items()})


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, what ``extra`` gave, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        if ident := request_id.get():
            line["request_id"] = ident
        line |= {key: value for key, value in _extras(record).items() if key not in line}
        if record.exc_info:
            line["traceback"] = redact(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


class TextFormatter(logging.Formatter):
    """For people: time, level, message, then ``key=value``. Control characters are escaped: a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback below it if there is one."""
        words = [
            time.strftime("%H:%M:%S", time.localtime(record.created)),
            f"{record.levelname.lower():7}",
            _one_line(redact(record.getMessage())),
            *(f"{key}={_one_line(str(value))}" for key, value in _extras(record).items()),
        ]
        if ident := request_id.get():
            words.append(f"request={ident}")
        text = " ".join(words)
        return f"{text}\n{redact(self.formatException(record.exc_info))}" if record.exc_info else text


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def setup(
    *,
    level: Level = "info",
    form: Literal["auto", "json", "text"] = "auto",
    stream: TextIO | None = None,
) -> logging.Handler:
    """Send all logging to ``stream`` (default: standard error); ``auto``: text on a terminal only."""
    target = stream if stream is not None else sys.stderr
    handler = logging.StreamHandler(target)
    text = form == "text" or (form == "auto" and target.isatty())
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    set_level(level)
    return handler


def set_level(level: str) -> None:
    """Change what is logged, from now on. Libraries stay at warning unless all is asked for."""
    if level not in LEVELS:
        raise BadRequest(f"a level is one of {', '.join(LEVELS)}", where=repr(level)[:80])
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(logging.WARNING if number > logging.DEBUG else logging.DEBUG)
    logging.getLogger("strata").setLevel(number)


def get_level() -> Level:
    """What is logged now."""
    number = logging.getLogger("strata").getEffectiveLevel()
    return next((name for name in reversed(LEVELS) if number >= logging.getLevelNamesMapping()[name.upper()]), "debug")
