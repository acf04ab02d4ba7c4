"""Which node is behind a MAC, a cable, a name or an address: one index, kept in memory. Knows no protocol.

Two nodes that claim the same are a mistake of their owners. It is never guessed which of them is meant: neither is
found by what they share, and ``disputed`` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from strata.core.node import Node

_Index = dict[str, Node | tuple[Node, ...]]


class Directory:
    """The nodes by everything that a machine can be told by."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._names: dict[str, Node] = {}
        self._macs: _Index = {}
        self._ports: _Index = {}
        self._addresses: _Index = {}
        self._disputed: dict[tuple[str, str], tuple[Node, ...]] = {}
        self.update(nodes)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._names.values())

    def update(self, nodes: Iterable[Node]) -> None:
        """Let these be the nodes, and no others. Costs little where few of the records are new objects."""
        before = self._names
        now = {node.name: node for node in nodes}
        fresh = [node for name, node in now.items() if before.get(name) is not node]
        gone = [node for name, node in before.items() if name not in now]
        gone += [before[node.name] for node in fresh if node.name in before]
        self._names = now
        for node in gone:
            for kind, index, key in self._keys(node):
                self._remove(kind, index, key, node)
        kinds = (("mac", self._macs), ("port", self._ports), ("address", self._addresses))
        for node in fresh:
            for interface in node.interfaces:
                # Written out, and not a loop over _keys: a whole fleet comes at once when the service starts.
                for (kind, index), key in zip(kinds, (interface.mac, interface.port, interface.address), strict=True):
                    if key and (there := index.setdefault(key, node)) is not node:
                        self._dispute(kind, index, key, there, node)

    def by_name(self, name: str) -> Node | None:
        """The node of that name."""
        return self._names.get(name)

    def by_mac(self, mac: str) -> Node | None:
        """The node with an interface of that MAC (lower case, with colons)."""
        found = self._macs.get(mac)
        return found if found.__class__ is Node else None

    def by_port(self, port: str) -> Node | None:
        """The node that is cabled there (``remote-id/circuit-id``)."""
        found = self._ports.get(port)
        return found if found.__class__ is Node else None

    def by_address(self, address: str) -> Node | None:
        """The node whose interface has that IPv4 address."""
        found = self._addresses.get(address)
        return found if found.__class__ is Node else None

    def is_taken(self, address: str) -> bool:
        """Some node (or several) has that address."""
        return address in self._addresses

    @property
    def disputed(self) -> Mapping[str, tuple[str, ...]]:
        """What several nodes claim (``mac 52:54:00:00:00:01``), and which they are."""
        return {f"{kind} {key}": tuple(sorted(n.name for n in claim)) for (kind, key), claim in self._disputed.items()}

    def _keys(self, node: Node) -> Iterator[tuple[str, _Index, str]]:
        for interface in node.interfaces:
            if interface.mac:
                yield "mac", self._macs, interface.mac
            if interface.port:
                yield "port", self._ports, interface.port
            if interface.address:
                yield "address", self._addresses, interface.address

    def _dispute(self, kind: str, index: _Index, key: str, there: Node | tuple[Node, ...], node: Node) -> None:
        claims = there if isinstance(there, tuple) else (there,)
        if not any(one is node for one in claims):
            index[key] = self._disputed[kind, key] = (*claims, node)

    def _remove(self, kind: str, index: _Index, key: str, node: Node) -> None:
        there = index.get(key)
        if there is node:
            del index[key]
        elif isinstance(there, tuple):
            left = tuple(one for one in there if one is not node)
            index[key] = left if len(left) > 1 else left[0]
            if len(left) > 1:
                self._disputed[kind, key] = left
            else:
                self._disputed.pop((kind, key), None)
