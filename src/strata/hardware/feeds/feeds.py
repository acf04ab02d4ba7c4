"""What feeds what with power: outlets feed chassis, chassis feed the nodes in them. Pure; nodes are indices.

A node is fed by those that its label ``fed-by`` names (``a/b``: two feeds, of which any suffices); without that label,
by the nearest component of role ``chassis`` that its location is in. Nodes with the same feeders are one *kind*, so
that a question about a whole fleet is asked once per kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FED_BY = "fed-by"
"""The label that names a node's feeders."""
OUTLET = "pdu-outlet"
"""Role of an outlet of a PDU."""
CHASSIS = "chassis"
"""Role of what gives power to the nodes that are located in it: a chassis, a slot, a cabinet."""
SEPARATOR = "/"
"""Between the names in ``fed-by``."""

Kinds = npt.NDArray[np.int32]


class Coded(NamedTuple):
    """One word per node, as a code of ``table``; code 0 is none."""

    table: Sequence[str]
    codes: npt.NDArray[np.int32]


class Place(NamedTuple):
    """One level of locations: where each node is, and which component of role ``chassis`` is at each place."""

    words: Coded
    component: Mapping[str, int]


class Feeds:
    """Who feeds whom. ``kinds[node]`` is the node's kind; ``feeders[kind]`` are the nodes that feed it."""

    def __init__(self, kinds: Kinds, feeders: Sequence[tuple[int, ...]], missing: Mapping[int, str]) -> None:
        self.kinds = kinds
        self.feeders = feeders
        self.missing = missing
        """Kinds whose ``fed-by`` names a node that is not there, and its name."""
        self._fed: dict[int, list[int]] = {}
        for kind, nodes in enumerate(feeders):
            for node in nodes:
                self._fed.setdefault(node, []).append(kind)

    def __bool__(self) -> bool:
        """Whether anything feeds anything."""
        return bool(self._fed or self.missing)

    def fed_by(self, node: int) -> Sequence[int]:
        """The kinds that ``node`` feeds."""
        return self._fed.get(node, ())


def feeds_of(
    size: int, labels: Coded, find: Callable[[str], int], places: Iterable[Place], outlets: npt.NDArray[np.bool_]
) -> Feeds:
    """Work it out for nodes 0 to ``size`` - 1. ``find``: index by name, -1 for none; ``places``: outermost first."""
    within = np.full(size, -1, dtype=np.int64)
    here = np.arange(size)
    for place in places:
        table = np.fromiter((place.component.get(word, -1) for word in place.words.table), dtype=np.int64)
        found = table[place.words.codes[:size]]
        inner = (found >= 0) & (found != here) & ~outlets[:size]  # an outlet is in the cabinet that it feeds
        within[inner] = found[inner]
    containers, kinds = np.unique(np.append(within, -1), return_inverse=True)
    feeders: list[tuple[int, ...]] = [(node,) if node >= 0 else () for node in containers.tolist()]
    kinds = kinds[:size].astype(np.int32)
    missing: dict[int, str] = {}
    of_label = np.zeros(len(labels.table), dtype=np.int32)
    for code, text in enumerate(labels.table):
        if text:
            names = text.split(SEPARATOR)
            found_nodes = [find(name) for name in names]
            of_label[code] = len(feeders)
            if -1 in found_nodes:
                missing[len(feeders)] = names[found_nodes.index(-1)]
            feeders.append(tuple(node for node in found_nodes if node >= 0))
    labelled = of_label[labels.codes[:size]]
    return Feeds(np.where(labelled > 0, labelled, kinds).astype(np.int32), feeders, missing)
