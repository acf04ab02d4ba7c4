"""The nodes, each at a dense index, with their descriptions as columns.

An index is a node's as long as it exists. A freed index goes to another node only in a later round (``begin_round``),
so that whoever keeps columns of its own hears of the removal first. Knows nothing of groups, desires or state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.core.node import Interface, Node
from strata.fleet.columns import Indices, Mask, Words, grown
from strata.fleet.nodes.locations import ancestor_finder, component

NO_UID = -1


class Roster:
    """Every node there is. Arrays that it hands out are valid until the next change."""

    def __init__(self) -> None:
        self.size = 0
        """All indices are below this."""
        self.names: list[str] = []
        """Name by index; empty where the index is free."""
        self.bmcs: list[str] = []
        """Where its BMC is, by index: every batch for a driver is made of these."""
        self.nodes: list[Node | None] = []
        self.roles = Words()
        self.architectures = Words()
        self._uids: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._revisions: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._index: dict[str, int] = {}
        self._at_location: dict[str, int] = {}
        self._at_nid: dict[int, int] = {}
        self._claims: dict[str, int] = {}
        self._labels: dict[str, Words] = {}
        self._locations: dict[str, Words] = {}
        self._free: list[int] = []
        self._freed: list[int] = []
        self._by_uid: tuple[npt.NDArray[np.int64], Indices] | None = None

    def __len__(self) -> int:
        return len(self._index)

    @property
    def uids(self) -> npt.NDArray[np.int64]:
        """Uid by index; -1 where the index is free."""
        return self._uids[: self.size]

    @property
    def alive(self) -> Mask:
        """Which indices are some node's."""
        mask: Mask = self._uids[: self.size] != NO_UID
        return mask

    @property
    def revisions(self) -> npt.NDArray[np.int64]:
        """The store's revision of each node's description."""
        return self._revisions[: self.size]

    def find(self, name: str) -> int:
        """The index of the node, or -1."""
        return self._index.get(name, -1)

    def at_location(self, location: str) -> int:
        """The index of the node at a place, or -1."""
        return self._at_location.get(location, -1)

    def at_nid(self, nid: int) -> int:
        """The index of the node with a NID, or -1."""
        return self._at_nid.get(nid, -1)

    def claimant(self, claim: str) -> int:
        """The index of the node with an interface of that MAC, address or port, or -1. (No two of these look alike.)"""
        return self._claims.get(claim, -1)

    def indices_of(self, uids: npt.NDArray[np.int64]) -> Indices:
        """The index of each uid, -1 where there is no such node (any more)."""
        if self._by_uid is None:
            order = np.argsort(self.uids, kind="stable")
            self._by_uid = (self.uids[order], order)
        known, order = self._by_uid
        if not len(known):
            return np.full(len(uids), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(known, uids), len(known) - 1)
        found: Indices = np.where((known[places] == uids) & (uids >= 0), order[places], -1)
        return found

    def living(self, nodes: Indices) -> Indices:
        """Those of some indices that are some node's."""
        living: Indices = nodes[self.alive[nodes]]
        return living

    def label(self, key: str) -> Words:
        """The values of one label; built when it is first asked for, then kept up. One that no node has is not kept:
        readers may ask for anything."""
        words = self._labels.get(key)
        if words is None:
            words = Words(self.size)
            for index, node in enumerate(self.nodes):
                if node is not None and key in node.labels:
                    words.set(index, node.labels[key])
            if len(words.table) > 1:
                self._labels[key] = words
        return words

    def location(self, kind: str) -> Words:
        """The component of type ``kind`` (``cabinet``, ``slot``...) that each node is in; built when first asked."""
        kind = component(kind)
        words = self._locations.get(kind)
        if words is None:
            find = ancestor_finder(kind)
            words = self._locations[kind] = Words(self.size)
            for index, node in enumerate(self.nodes):
                if node is not None and node.location:
                    words.set(index, find(node.location))
        return words

    def begin_round(self) -> None:
        """From here on, indices that were freed before may be given out."""
        self._free.extend(reversed(self._freed))
        self._freed.clear()

    def put(self, node: Node, revision: int) -> tuple[int, bool]:
        """Add a node, or replace the description of one with the same uid; its index, and whether it is new."""
        index = self._index.get(node.name, -1)
        if index >= 0:
            self._forget_keys(index)
            self._describe(index, node, revision)
            return index, False
        index = self._free.pop() if self._free else self._grow()
        self._index[node.name] = index
        self.names[index] = node.name
        self._uids[index] = node.uid
        self._by_uid = None
        self._describe(index, node, revision)
        return index, True

    def remove(self, name: str) -> int:
        """Take a node out; the index that it had, or -1."""
        index = self._index.pop(name, -1)
        if index >= 0:
            self._forget_keys(index)
            self.names[index] = ""
            self.bmcs[index] = ""
            self.nodes[index] = None
            self._uids[index] = NO_UID
            self._revisions[index] = 0
            self._by_uid = None
            for words in self._columns():
                words.set(index, "")
            self._freed.append(index)
        return index

    def named(self) -> Sequence[str]:
        """The names of all nodes."""
        return list(self._index)

    def _columns(self) -> list[Words]:
        return [self.roles, self.architectures, *self._labels.values(), *self._locations.values()]

    def _grow(self) -> int:
        index = self.size
        self.size += 1
        self.names.append("")
        self.bmcs.append("")
        self.nodes.append(None)
        self._uids = grown(self._uids, self.size, NO_UID)
        self._revisions = grown(self._revisions, self.size)
        for words in self._columns():
            words.resize(self.size)
        return index

    def _describe(self, index: int, node: Node, revision: int) -> None:
        self.nodes[index] = node
        self.bmcs[index] = node.bmc
        self._revisions[index] = revision
        self.roles.set(index, node.role)
        self.architectures.set(index, node.architecture)
        for key, words in self._labels.items():
            words.set(index, node.labels.get(key, ""))
        for kind, words in self._locations.items():
            words.set(index, ancestor_finder(kind)(node.location))
        if node.location:
            self._at_location[node.location] = index
        if node.nid is not None:
            self._at_nid[node.nid] = index
        for interface in node.interfaces:
            self._claims.update(dict.fromkeys(claims(interface), index))

    def _forget_keys(self, index: int) -> None:
        node = self.nodes[index]
        if node is None:
            return
        if self._at_location.get(node.location) == index:
            del self._at_location[node.location]
        if node.nid is not None and self._at_nid.get(node.nid) == index:
            del self._at_nid[node.nid]
        for claim in (found for interface in node.interfaces for found in claims(interface)):
            if self._claims.get(claim) == index:
                del self._claims[claim]


def claims(interface: Interface) -> list[str]:
    """What no other node's interface may have."""
    return [claim for claim in (interface.mac, interface.address, interface.port) if claim]
