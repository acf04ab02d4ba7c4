"""Which cabinet, chassis or slot a node is in, read off its location, fast enough for a whole fleet.

Locations are canonical xnames (``strata.core.xname`` made them so when the node was written), and an xname begins with
the xname of everything that it is in; so an ancestor is a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from strata.core.xname import SYSTEM, letters_of, type_named


def component(kind: str) -> str:
    """The full name of a component type that may be given by any of its names (``slot``: ``ComputeModule``)."""
    return type_named(kind).name


@cache
def ancestor_finder(kind: str) -> Callable[[str], str]:
    """A function from a canonical location to the component of type ``kind`` that it is (in); empty: in none."""
    if component(kind) == SYSTEM.type:
        return lambda location: SYSTEM.text if location else ""
    match = re.compile("".join(rf"{re.escape(letter)}\d+" for letter in letters_of(kind)) + r"(?!\d)").match

    def find(location: str) -> str:
        found = match(location)
        return found[0] if found else ""

    return find
