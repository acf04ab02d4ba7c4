"""What a type accepts at one of its places: the words of an enumerated field, the keys of an object.

A place is written as msgspec does: ``members[0].ready.kind``, with ``[...]`` for whatever stands under a key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(?:\d+|\.\.\.)\]")
_SHOWN = 40  # words and keys that are named before the rest is left out


@lru_cache(maxsize=256)
def words_at(kind: Any, place: str) -> tuple[str, ...]:
    """The words that an enumerated field takes, or a mapping as its keys; none where there is no such field."""
    return tuple(dict.fromkeys(str(word) for found in _at(kind, place) for word in _words(found)))


@lru_cache(maxsize=256)
def keys_at(kind: Any, place: str) -> tuple[str, ...]:
    """The keys that an object takes; none where there is no object, or where it takes any."""
    objects = [found for found in _at(kind, place) if isinstance(found, inspect.StructType)]
    return tuple(dict.fromkeys(field.encode_name for found in objects for field in found.fields))


def none_of(found: str, accepted: tuple[str, ...]) -> str:
    """That ``found`` is not one of the words, which they are, and which one was meant."""
    return f"{found[:60]} is none of: {', '.join(accepted[:_SHOWN])}{_meant(found[1:-1], accepted)}"


def no_key(found: str, accepted: tuple[str, ...]) -> str:
    """That ``found`` is not one of the keys, which they are, and which one was meant."""
    return f"unknown key {found[:60]!r}; accepted are {', '.join(accepted[:_SHOWN])}{_meant(found, accepted)}"


def _meant(found: str, accepted: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(found[:60], accepted, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _at(kind: Any, place: str) -> list[inspect.Type]:
    """What may stand at the place: several, where one of several types may be above it."""
    here = list(_plain(inspect.type_info(kind)))
    for step in _STEP.finditer(place):
        here = [plain for one in here for below in _below(one, step[1]) for plain in _plain(below)]
    return here


def _below(one: inspect.Type, key: str | None) -> Iterator[inspect.Type]:
    if key is not None:
        if isinstance(one, inspect.StructType):
            yield from (field.type for field in one.fields if field.encode_name == key)
    elif isinstance(one, inspect.DictType):
        yield one.value_type
    elif isinstance(one, inspect.TupleType):
        yield from one.item_types
    elif isinstance(one, inspect.CollectionType):
        yield one.item_type


def _plain(one: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(one, inspect.UnionType):
        for each in one.types:
            yield from _plain(each)
    elif isinstance(one, inspect.Metadata):
        yield from _plain(one.type)
    else:
        yield one


def _words(one: inspect.Type) -> Iterator[Any]:
    if isinstance(one, inspect.LiteralType):
        yield from one.values
    elif isinstance(one, inspect.EnumType):
        yield from (member.value for member in one.cls)
    elif isinstance(one, inspect.DictType):
        for key in _plain(one.key_type):
            yield from _words(key)
