"""The whole machine in few bytes: every node has a position, and columns are runs of equal values over them."""

from __future__ import annotations

from collections.abc import Mapping

from strata.core.intset import Runs
from strata.core.texts import Out

STATE = "@state"
"""The column of what can be said of a node as a whole. (No variable has a name like that.)"""
DOING = "@doing"
"""The column of the mutation under way, empty where there is none. All other columns are variables."""


class MachineColumn(Out, frozen=True, kw_only=True):
    """One value for each position: ``runs`` is a place in ``words`` and how many positions have it, in turn."""

    words: tuple[str, ...]
    runs: tuple[int, ...]


class MachineView(Out, frozen=True, kw_only=True):
    """All nodes that the caller may see, sorted by name; a position is a place in that order."""

    roster: str
    """Names the nodes and their order: what speaks of positions bears the same one, or means another machine."""
    names: tuple[str, ...]
    locations: tuple[str, ...]
    """Xname of each position; empty where nobody said."""
    groups: Mapping[str, Runs]
    """Positions (first, last) of each group's members."""
    columns: Mapping[str, MachineColumn]


class MachineChanges(Out, frozen=True, kw_only=True):
    """What differs from before: column → new word → positions (first, last)."""

    roster: str
    columns: Mapping[str, Mapping[str, Runs]]


class PastChange(Out, frozen=True, kw_only=True):
    """One change of a variable, of many nodes."""

    time: float
    variable: str
    old: str
    new: str
    cause: str
    positions: Runs


class MachineHistory(Out, frozen=True, kw_only=True):
    """Changes since a time, oldest first. ``since`` is later than was asked for where more would be too much."""

    roster: str
    since: float
    changes: tuple[PastChange, ...]
