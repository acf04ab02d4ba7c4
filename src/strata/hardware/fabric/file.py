"""A file that says how things are cabled: CSV with a header, or a YAML list, of ``switch,port,node,nic``."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec

from strata.core.errors import BadRequest

_FIELDS = ("switch", "port", "node", "nic")
_LONGEST = 256
_MOST = 1_000_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One cable. ``node`` may also be a switch, and ``nic`` its port."""

    switch: str
    port: str
    node: str
    nic: str = ""


def read_rows(text: str, source: str) -> list[Row]:
    """The cables that a file declares; ``BadRequest`` names the first line that is wrong."""
    found = _yaml(text, source) if text.lstrip().startswith("-") else _csv(text, source)
    seen: dict[tuple[str, str], str] = {}
    rows = []
    for where, values in found:
        row = Row(**{field: _text(values.get(field), field, where) for field in _FIELDS})
        end = (row.switch.lower(), row.port.lower())
        if end in seen:
            raise BadRequest(f"{row.switch}:{row.port} is also at {seen[end]}", where=where)
        seen[end] = where
        rows.append(row)
        if len(rows) > _MOST:
            raise BadRequest(f"more than {_MOST} cables", where=source)
    return rows


def _csv(text: str, source: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    header = [name.strip().lower() for name in reader.fieldnames or ()]
    if not {"switch", "port", "node"} <= set(header) or not set(header) <= set(_FIELDS):
        raise BadRequest(
            f"the header is {','.join(header)[:80] or 'missing'}", where=source, hint="it must be switch,port,node,nic"
        )
    reader.fieldnames = header
    return [(f"{source} line {reader.line_num}", dict(row)) for row in reader if any(row.values())]


def _yaml(text: str, source: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        items = msgspec.yaml.decode(text)
    except msgspec.DecodeError as wrong:
        raise BadRequest(f"not YAML: {str(wrong)[:200]}", where=source) from None
    found = []
    for number, item in enumerate(items if isinstance(items, list) else [], 1):
        if not isinstance(item, dict) or not set(item) <= set(_FIELDS):
            raise BadRequest("not a cable", where=f"{source} item {number}", hint="give switch, port, node and nic")
        found.append((f"{source} item {number}", item))
    return found


def _text(value: object, field: str, where: str) -> str:
    text = str(value).strip() if isinstance(value, str | int) else ""
    if (not text and field != "nic") or len(text) > _LONGEST or not text.isprintable():
        raise BadRequest(f"{field} is missing or no plain text of up to {_LONGEST} characters", where=where)
    return text
