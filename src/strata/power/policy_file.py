"""Reads a policy, and says what is wrong with it in the words of the document."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from strata.core.errors import BadRequest
from strata.core.yamltree import tree
from strata.power.policy import Hours, IdlePool, Inrush, Margins, NodePower, OverProvisioned, Part, Policy, Queue, Ramp
from strata.power.units import Watts, seconds, watts

_T = TypeVar("_T", bound=Part)

_SECTIONS: Mapping[str, type[Part]] = {
    "nodes": NodePower,
    "ramp": Ramp,
    "idle-pool": IdlePool,
    "queues": Policy,
    "over-provisioned": OverProvisioned,
    "inrush": Inrush,
}
_KINDS: Mapping[str, type[Part]] = {"margins": Margins, "prefer": Hours}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""The service keeps it under its name."""
_WORDS = (
    (r"Object contains unknown field `(.*)`", r"unknown key '\1'"),
    (r"Object missing required field `(.*)`", r"\1 missing"),
    (r"Invalid enum value (.*)", r"\1 is none of aggressive, gentle and by-demand"),
    (r"Expected `int.*", "expected a whole number"),
    (r"Expected `object.*", "expected a mapping (key: value)"),
    (r"Expected `(?:str|array)[^`]*`, got `.*", "expected text"),
)


def parse(text: str, *, source: str) -> Policy:
    """Read a policy. Raises ``BadRequest`` that names ``source``, the key, what was found and what is accepted."""
    found = tree(text, source) or {}
    if not isinstance(found, dict):
        raise BadRequest("expected a mapping (key: value)", where=source)
    found = {key: {} if value == "" and key in _SECTIONS else value for key, value in found.items()}
    queues = found.get("queues")
    if isinstance(queues, dict):
        # One by one: an error says which.
        found["queues"] = {name: _convert(queues[name] or {}, Queue, source, ("queues", name)) for name in queues}
    policy = _convert(found, Policy, source, ())
    if policy.name and not _NAME.fullmatch(policy.name):
        raise BadRequest(
            f"{policy.name[:80]!r} is no name: 1 to 63 letters, digits, '-', '_' and '.', first a letter or digit",
            where=f"{source}: name",
        )
    return policy


def _convert(data: Any, kind: type[_T], source: str, place: tuple[str, ...]) -> _T:
    try:
        return msgspec.convert(data, kind, strict=False, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind, source, place) from None


def _read(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected one value")
    return watts(value) if kind is Watts else seconds(value)


def _explain(message: str, kind: type[Part], source: str, place: tuple[str, ...]) -> BadRequest:
    """msgspec speaks of its types and of paths from a root; the document has keys and values."""
    said, _, path = message.partition(" - at `")
    below = tuple(filter(None, path.rstrip("`").removeprefix("key in ").removeprefix("$").split(".")))
    where = ".".join((*place, *below))
    for pattern, words in _WORDS:
        detail, changed = re.subn(rf"{pattern}\Z", words, said, flags=re.DOTALL)
        if changed:
            break
    else:
        detail = said[:1].lower() + said[1:]
    if said.startswith("Object contains unknown field"):
        part = _KINDS.get(below[-1], _SECTIONS.get(below[-1], kind)) if below else kind
        detail += _accepted(detail.split("'")[1], part)
    return BadRequest(detail[:300], where=f"{source}: {where}" if where else source)


def _accepted(key: str, part: type[Part]) -> str:
    keys = [field.encode_name for field in msgspec.structs.fields(part)]
    close = difflib.get_close_matches(key[:60], keys, 1)
    return f"; {f'did you mean {close[0]!r}? ' if close else ''}accepted are {', '.join(keys)}"
