"""Checks as people write them: YAML documents, with names, and times with their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from strata.core.errors import BadRequest
from strata.core.input.forms import in_words
from strata.core.input.yamltree import Document, documents, told
from strata.core.units import Seconds, seconds
from strata.platform.health.records import CheckName, CheckSpec, check


class WrittenCheck(CheckSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A check with its name."""

    name: CheckName
    every: Seconds = Seconds(60)
    timeout: Seconds = Seconds(30)
    most: Seconds = Seconds(1)


def read_checks(text: str, source: str) -> dict[str, CheckSpec]:
    """The checks in a text, by name; ``BadRequest`` says what is wrong, with line and column."""
    found: dict[str, CheckSpec] = {}
    for document in documents(text, source):
        name, spec = _read(document)
        if name in found:
            raise BadRequest(f"check {name} is there twice", where=document.place("name"))
        found[name] = spec
    return found


def _read(document: Document) -> tuple[str, CheckSpec]:
    written = document.read(WrittenCheck, lambda kind, value: seconds(str(value)))
    values: dict[str, Any] = {name: getattr(written, name) for name in CheckSpec.__struct_fields__}
    return written.name, plain_check(document, values)


def plain_check(document: Document, values: Mapping[str, Any]) -> CheckSpec:
    """The check that a document comes to."""
    plain = {name: float(value) if isinstance(value, Seconds) else value for name, value in values.items()}
    try:
        spec = msgspec.convert(plain, CheckSpec)
    except msgspec.ValidationError as error:  # a time beyond its bounds: the one thing that was not checked yet
        said, path = told(error)
        raise BadRequest(in_words(said), where=document.place(path)) from None
    return check(spec, document.place(""))
