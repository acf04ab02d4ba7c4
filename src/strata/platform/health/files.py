"""Checks as people write them: YAML documents, with names, and times with their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from strata.core.input.yamltree import Document
from strata.core.units import Seconds
from strata.platform.health.records import CheckName, CheckSpec, check
from strata.platform.written import by_name, plain, times


class WrittenCheck(CheckSpec, frozen=True, kw_only=True, omit_defaults=True):
    """A check with its name."""

    name: CheckName
    every: Seconds = Seconds(60)
    timeout: Seconds = Seconds(30)
    most: Seconds = Seconds(1)


def read_checks(text: str, source: str) -> dict[str, CheckSpec]:
    """The checks in a text, by name; ``BadRequest`` says what is wrong, with line and column."""

    def read(document: Document) -> tuple[str, CheckSpec]:
        written = asdict(document.read(WrittenCheck, times))
        return written.pop("name"), plain_check(document, written)

    return by_name(text, source, "check", read)


def plain_check(document: Document, values: Mapping[str, Any]) -> CheckSpec:
    """The check that a document comes to."""
    return check(plain(document, values, CheckSpec), document.place(""))
