"""Blacks out what looks like a secret before it is written where people read: logs, errors, history, audit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

HIDDEN = "[hidden]"

_T = TypeVar("_T")

_NAME = re.compile(
    r"secret|passw|token|credential|private|authori[sz]ation|cookie|(?:^|[^a-z])keys?(?:$|[^a-z])|^auth$", re.IGNORECASE
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TEXTS = (
    re.compile(r"strata_[0-9A-Za-z]+_[0-9A-Za-z_-]+"),
    # With a digit, a capital or a '=' in it: "a bearer token" is not a secret.
    re.compile(r"\b(?i:bearer|basic)\s+(?=\S*[0-9A-Z=])[0-9A-Za-z._~+/=-]{6,}"),
    # A header's value, whatever its scheme; and the value of anything named like a secret.
    re.compile(r"(?i)(?<=authorization)[\"']?\s*[:=]\s*[\"']?[^\r\n\"',}]+"),
    # But "token:" and an id is the name of whoever holds that token, and no secret.
    re.compile(
        r"(?!token:[0-9a-f]{16}(?![\w-]))"
        r"(?i:password|passwd|secret|token|api[_-]?key|private[_-]?key)[\"']?\s*[:=]\s*[\"']?[^\s\"',;&}]+"
    ),
    re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    re.compile(r"AGE-SECRET-KEY-[A-Z0-9]+"),
    # The token of a node's boot; the login of a registry, as docker writes it.
    re.compile(r"\b[1-9]\d{0,17}\.[A-Za-z0-9_-]{43}\.(?=[A-Za-z0-9])"),
    re.compile(r"(?<=\"auth\")\s*:\s*\"[^\"]+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
)


def redact(value: _T) -> _T:
    """A copy of plain data in which values under a telling name, and text that holds a credential, are blacked out."""
    return _redact(value)  # type: ignore[no-any-return]


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        for pattern in _TEXTS:
            value = pattern.sub(HIDDEN, value)
        return value
    if isinstance(value, Mapping):
        return {name: HIDDEN if _is_secret(str(name)) else _redact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact(inner) for inner in value]
    if isinstance(value, bytes):
        return HIDDEN
    return value


def _is_secret(name: str) -> bool:
    return bool(_NAME.search(_CAMEL.sub("_", name)))
