"""What a room says of documents that it keeps and that stand in the repository, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from strata.platform.config.records import Named
from strata.store.records import Records


class Keeper(NamedTuple):
    """One kind of document."""

    records: Records[Any]
    made: Callable[[Any, str], Any] = lambda spec, author: spec
    """The record of what the repository says, and who says it; ``BadRequest`` where it cannot be."""
    said: Callable[[str, Any], Named] = lambda name, record: record
    """What the repository would say of a record."""
    together: Callable[[Mapping[str, Any]], None] = lambda edits: None
    """Raises where these edits (None: it goes) cannot all be."""
    variable: str = ""
    """The variable of nodes that are wanted to have one, by its name. Empty: there is none."""
