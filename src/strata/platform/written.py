"""What people write in files: times that have units, names, and errors that say where the wrong thing stands."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from strata.core.errors import BadRequest, NotFound
from strata.core.input.forms import in_words
from strata.core.input.yamltree import Document, documents, told
from strata.core.units import Seconds, seconds

_T = TypeVar("_T")


def times(kind: type[Any], value: Any) -> Any:
    """For ``Document.read``: what msgspec does not know are times."""
    return seconds(str(value))


def plain(document: Document, written: Mapping[str, Any], kind: type[_T], path: str = "") -> _T:
    """The record that comes of a document, or of what it has at ``path``: its times are numbers."""
    said = {name: float(value) if isinstance(value, Seconds) else value for name, value in written.items()}
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:  # a time beyond its bounds: the one thing that was not checked yet
        words, below = told(error)
        place = ".".join(part for part in (path, below) if part)
        raise BadRequest(in_words(words), where=document.place(place)) from None


def by_name(text: str, source: str, what: str, read: Callable[[Document], tuple[str, _T]]) -> dict[str, _T]:
    """What the documents of a text come to; ``BadRequest`` says what is wrong, with line and column."""
    found: dict[str, _T] = {}
    for document in documents(text, source):
        name, one = read(document)
        if name in found:
            raise BadRequest(f"{what} {name} is there twice", where=document.place("name"))
        found[name] = one
    return found


@contextlib.contextmanager
def placed(place: str) -> Iterator[None]:
    """What is wrong with a document is said with its place."""
    try:
        yield
    except (BadRequest, NotFound) as error:
        if error.where.partition(",")[0] == place.partition(",")[0]:
            raise  # it knows its place in the same file
        raise BadRequest(f"{error.where}: {error.detail}", where=place, hint=error.hint) from None
