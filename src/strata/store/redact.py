"""Blacks out what looks like a secret before it is written where people read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

BLACK = "[redacted]"

_T = TypeVar("_T")

_NAME = re.compile(
    r"secret|passw|token|credential|private|authori[sz]ation|cookie|(?:^|[^a-z])keys?(?:$|[^a-z])", re.IGNORECASE
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VALUE = re.compile(
    r"strata_[A-Za-z0-9]+_[A-Za-z0-9_-]{8,}"
    r"|(?i:bearer\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|AGE-SECRET-KEY-[A-Z0-9]+",
    re.DOTALL,
)


def redact(value: _T) -> _T:
    """A copy of plain data in which values under a telling name, and text that is a credential, are blacked out."""
    return _redact(value)  # type: ignore[no-any-return]


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        return _VALUE.sub(BLACK, value)
    if isinstance(value, Mapping):
        return {name: BLACK if _is_secret(str(name)) else _redact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(inner) for inner in value]
    if isinstance(value, bytes):
        return BLACK
    return value


def _is_secret(name: str) -> bool:
    return bool(_NAME.search(_CAMEL.sub("_", name)))
