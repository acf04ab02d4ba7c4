"""Errors as RFC 9457 problems: every refusal and failure leaves through here, in one shape.

Says what was wrong, where, and what to do; never shows what an unexpected error was about (that goes to the log).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from litestar.exceptions import HTTPException, ValidationException

from strata.core.errors import Conflict, StrataError
from strata.core.input.forms import in_words
from strata.core.logs import request_id
from strata.core.redact import redact

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_LONGEST = 400
_BODY = "data"  # what handlers call it

_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Denied",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    412: "Precondition failed",
    413: "Body too large",
    415: "Unsupported media type",
    431: "Headers too large",
}
_DETAILS = {
    404: "there is nothing at this path",
    405: "this path does not take that method",
    413: "the body is larger than this service accepts",
}
_HINTS = {
    404: "GET /v1/openapi.json lists all paths",
    405: "the Allow header lists what would be accepted",
    413: "split the request into smaller ones",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong, as RFC 9457 has it, with where it was and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    where: str = ""
    hint: str = ""
    request_id: str = ""
    revision: int | None = None
    """The current revision, where somebody else was first."""


def problem_of(
    error: BaseException, *, conditional: bool = False, taken: Mapping[str, Any] = MappingProxyType({})
) -> Problem:
    """The problem that tells ``error`` to a client. ``conditional``: the request named the revision it expects.
    ``taken``: the types of what the handler takes, by its names; the body's is ``data``."""
    if isinstance(error, Conflict) and conditional:
        return _problem(412, error.detail, where=error.where, hint=error.hint, revision=error.revision or None)
    if isinstance(error, StrataError):
        revision = getattr(error, "revision", None) or None
        return _problem(
            error.status, error.detail, title=error.title, where=error.where, hint=error.hint, revision=revision
        )
    if isinstance(error, ValidationException):
        return _problem(400, *_validation(error, taken))
    if isinstance(error, HTTPException) and error.status_code < 500:
        status = error.status_code
        return _problem(status, _DETAILS.get(status, error.detail), hint=_HINTS.get(status, ""))
    if isinstance(error, RecursionError | UnicodeDecodeError) and _is_in_decoder(error):
        deep = isinstance(error, RecursionError)
        return _problem(400, "the body is nested too deeply" if deep else "the body is not JSON in UTF-8", "body")
    log.error("request failed unexpectedly", exc_info=error)
    return _problem(
        500,
        "something went wrong inside Strata; nothing is known about the outcome",
        title="Internal error",
        hint="look for the request id in the service's log",
    )


def _is_in_decoder(error: BaseException) -> bool:
    """Whether it was the client's JSON that could not be read, and not something in our own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("litestar.serialization")


def _problem(
    status: int, detail: str, where: str = "", *, title: str = "", hint: str = "", revision: int | None = None
) -> Problem:
    title = title or _TITLES.get(status, "Request failed")
    return Problem(
        type=f"urn:strata:problem:{title.lower().replace(' ', '-')}",
        title=title,
        status=status,
        detail=_cut(detail),
        where=_cut(where),
        hint=_cut(hint),
        request_id=request_id.get(),
        revision=revision,
    )


def _validation(error: ValidationException, taken: Mapping[str, Any]) -> tuple[str, str]:
    """Detail and place, from what Litestar found."""
    found = error.extra if isinstance(error.extra, list) else []
    parts = [item for item in found if isinstance(item, dict)]
    if not parts:
        return error.detail, ""
    detail = "; ".join(_in_words(item, taken) for item in parts)
    where = ", ".join(
        " ".join(str(getattr(item[k], "value", item[k])) for k in ("source", "key") if item.get(k)) for item in parts
    )
    return detail, where


def _in_words(item: dict[str, Any], taken: Mapping[str, Any]) -> str:
    key, in_body = str(item.get("key", "")), item.get("source") == "body"
    place = key if in_body and key != _BODY else ""
    return in_words(str(item.get("message", "")), taken.get(_BODY if in_body else key), place)


def _cut(text: str) -> str:
    """What a client may have written, made short and printable: it will be shown on somebody's terminal or page."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: _LONGEST + 1])
    return redact(clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…")
