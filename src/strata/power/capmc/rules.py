"""A site's own ``node_rules``: lines ``name = number`` in an INI file, as the original service has in ``rules.ini``."""

from __future__ import annotations

import configparser
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler should know before it switches nodes; -1: no limit. Advice, not enforced."""

    latency_node_off: int = 60
    latency_node_on: int = 600
    latency_node_reinit: int = 760
    max_off_req_count: int = -1
    max_off_time: int = -1
    max_on_req_count: int = -1
    max_reinit_req_count: int = -1
    min_off_time: int = 900


_LONGEST = 64 * 1024
_MOST = 2**31 - 1
_HINT = f"known are {', '.join(Rules.__struct_fields__)}; -1: no limit"


def read_rules(path: Path) -> Rules:
    """The rules in a file; what it does not name is as it is without one. ``BadRequest`` says what is wrong with it."""
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}", where=where) from None
    if len(data) > _LONGEST:
        raise BadRequest(f"longer than {_LONGEST} bytes", where=where)
    parser = configparser.ConfigParser(interpolation=None, default_section="", strict=True)
    try:
        text = data.decode("utf-8")
        headed = any(line.lstrip().startswith("[") for line in text.splitlines())
        parser.read_string(text if headed else f"[node_rules]\n{text}")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise BadRequest(
            f"not an INI file: {str(error)[:200]}", where=where, hint="lines like min_off_time = 900"
        ) from None
    found: dict[str, int] = {}
    for section in parser.sections():
        for name, text in parser.items(section):
            if name not in Rules.__struct_fields__:
                raise BadRequest(f"no such rule: {name[:80]}", where=where, hint=_HINT)
            if name in found:
                raise BadRequest(f"{name} is there twice", where=where)
            found[name] = _number(name, text, where)
    return msgspec.convert(found, Rules)


def _number(name: str, text: str, where: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -2
    if not -1 <= value <= _MOST:
        raise BadRequest(f"{name} is not a whole number from -1: {text[:80]!r}", where=where, hint=_HINT)
    return value
