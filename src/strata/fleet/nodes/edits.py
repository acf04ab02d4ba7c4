"""Creating, describing and deleting nodes.

No two nodes have the same name, location, NID, MAC, address or port. What makes that hold with several writers is
``uid/next``: whoever adds or moves a node writes that key, and only if it has not changed since the view was compared
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from ipaddress import IPv4Address, IPv4Network
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, NotFound, StrataError, Unavailable
from strata.core.node import ARCHITECTURES, Group, Interface, Node, check_label, check_node_name
from strata.core.xname import parse as parse_xname
from strata.fleet.desires import overrides as rows
from strata.fleet.nodes.interfaces import checked_interfaces, claims_of, with_known_addresses
from strata.fleet.nodes.records import NodeSpec, NodeStatement
from strata.fleet.nodes.results import NodeResult
from strata.fleet.registry.editor import BATCH_BYTES, Editor, encode, folded
from strata.store.protocol import Delete, Op, Put
from strata.store.records import ATTEMPTS, expected_revision, too_contended

NEXT_UID = "uid/next"
HIGHEST_NID = 2**31 - 1
MOST_LABELS = 64


Described = NodeSpec | Node
"""A node as somebody wants it to be. Of a ``Node`` the uid is not looked at."""

Addresses = Callable[[Callable[[str], bool]], Callable[[tuple[Interface, ...]], tuple[Interface, ...]]]
"""``addresses(is_taken)``: gives interfaces without an address one that is free; never the same twice."""


class _Claim(msgspec.Struct):
    """The right to give out uids and places, as long as nobody else writes ``uid/next``."""

    next_uid: int
    modified: int

    def put(self) -> Put:
        return Put(NEXT_UID, encode(self.next_uid))


class NodeEdits(Editor):
    """Writes to ``node/``."""

    addresses: Addresses | None = None
    """How interfaces come to addresses; None: they have those that their owners gave them."""
    misplaced: Callable[[str], str] | None = None
    """Why no node can have an address; empty: one can. None: nobody knows of networks, and any will do."""

    kept_by_name: tuple[str, ...] = ()
    """Prefixes of what layers keep of nodes by name: it goes with the node."""

    async def create_nodes(self, specs: Sequence[Described], author: str) -> list[NodeResult]:
        """Create many. One result per spec, in order: 201, 400 (bad in itself, or twice in the request), 409 (the name,
        place or NID is another node's), 503 (the store went away half-way). The good ones are created whatever
        becomes of the others."""
        results: list[NodeResult | None] = [None] * len(specs)
        good: list[tuple[int, Node]] = []
        own = Claimed()
        for at, spec in enumerate(specs):
            try:
                node = checked_node(spec)
                self._check_places(node)
                own.take(node)
                good.append((at, node))
            except BadRequest as error:
                results[at] = _failure(spec.name, error)
        try:
            await self._create(good, results, author)
        except Unavailable as error:
            if not any(result is not None and result.ok for result in results):
                raise
            for at, node in good:
                results[at] = results[at] or _failure(node.name, error)
        return [result for result in results if result is not None]

    async def _create(self, good: list[tuple[int, Node]], results: list[NodeResult | None], author: str) -> None:
        claim = await self._claim()
        left = self._admitted(good, results)
        own = {interface.address for _, node in good for interface in node.interfaces}
        addressed = self._addressed(own)
        attempts = 0
        while left:
            batch, nodes = self._fill(left, claim.next_uid, addressed)
            after = _Claim(claim.next_uid + len(nodes), claim.modified)
            try:
                claim.modified = await self.ledger.commit(
                    author,
                    "node.create",
                    folded(node.name for _, node in batch),
                    [*nodes, after.put()],
                    {NEXT_UID: claim.modified},
                    {"count": len(nodes)},
                )
            except Conflict:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise too_contended("nodes") from None
                claim = await self._claim()
                left = self._admitted(left, results)
                continue
            claim.next_uid, attempts = after.next_uid, 0
            for at, node in batch:
                results[at] = NodeResult(node=node.name, ok=True, status=201)
            left = left[len(batch) :]

    def _fill(
        self, left: list[tuple[int, Node]], first_uid: int, addressed: Callable[[Node], Node]
    ) -> tuple[list[tuple[int, Node]], list[Op]]:
        """As many nodes as one commit takes, with uids and addresses."""
        ops: list[Op] = []
        size = 0
        for uid, (_, node) in enumerate(left[: self.ledger.room - 1], first_uid):
            value = encode(msgspec.structs.replace(addressed(node), uid=uid))
            size += len(value)
            if ops and size > BATCH_BYTES:
                break
            ops.append(Put(f"node/{node.name}", value))
        return left[: len(ops)], ops

    def _addressed(self, others: Set[str] = frozenset()) -> Callable[[Node], Node]:
        """What gives nodes the addresses that they lack; ``others`` are taken, too."""
        if self.addresses is None:
            return lambda node: node
        assign = self.addresses(lambda address: address in others or self.registry.claimant(address) >= 0)

        def give(node: Node) -> Node:
            if not node.interfaces:
                return node
            return msgspec.structs.replace(node, interfaces=assign(node.interfaces))

        return give

    def _admitted(self, wanted: list[tuple[int, Node]], results: list[NodeResult | None]) -> list[tuple[int, Node]]:
        left = []
        for at, node in wanted:
            try:
                self._check_free(node)
                left.append((at, node))
            except Conflict as error:
                results[at] = _failure(node.name, error)
        return left

    def stated(self, stated: Sequence[NodeStatement]) -> list[Node]:
        """The nodes as they would be if all of these were as is said; ``BadRequest`` names the node."""
        own = Claimed()
        for one in stated:
            index = self.registry.find(one.name)
            own.take(_stated(one, self.registry.node_at(index) if index >= 0 else None))
        return own.nodes

    def _row(
        self,
        node: Node,
        claim: _Claim,
        addressed: Callable[[Node], Node],
        moving: Set[str],
        ops: list[Op],
        expect: dict[str, int],
        networks: Sequence[IPv4Network] = (),
    ) -> Node | None:
        """The node as it is written, with what writes it in ``ops`` and ``expect``; None: it is so already. ``moving``:
        nodes that are written or removed together with it, whose places are free for it. ``networks``: boot networks
        that come together with it."""
        index = self.registry.find(node.name)
        before = self.registry.node_at(index) if index >= 0 else None
        had = before.interfaces if before is not None else ()
        uid = before.uid if before is not None else claim.next_uid
        node = msgspec.structs.replace(node, uid=uid, interfaces=with_known_addresses(node.interfaces, had))
        if node == before:
            return None
        self._check_places(node, had, networks)
        node = addressed(node)
        self._check_free(node, moving)
        claim.next_uid += before is None
        key = f"node/{node.name}"
        ops.append(Put(key, encode(node)))
        expect[key] = self.registry.modified(key)
        return node

    async def replace_node(self, name: str, spec: Described, author: str, expected: int | None = None) -> int:
        """Put a node's description in place, creating the node if need be; the revision of the description.
        Uid, desires, holds and groups stay."""
        if spec.name != name:
            raise BadRequest(f"a node keeps its name; this description is of {spec.name[:80]!r}", where=name[:80])
        node = checked_node(spec)
        key = f"node/{name}"
        for _ in range(ATTEMPTS):
            claim = await self._claim()
            entry = await self.store.get(key)
            expected_revision(f"node {name}", expected, entry.modified if entry else 0)
            if entry is None:
                self._check_places(node)
                node = msgspec.structs.replace(node, uid=claim.next_uid)
                claim.next_uid += 1
            else:
                before = msgspec.msgpack.decode(entry.value, type=Node)
                node = msgspec.structs.replace(
                    node, uid=before.uid, interfaces=with_known_addresses(node.interfaces, before.interfaces)
                )
                if node == before:
                    return entry.modified
                self._check_places(node, before.interfaces)
            node = self._addressed({interface.address for interface in node.interfaces})(node)
            self._check_free(node)
            expect = {key: entry.modified if entry else 0, NEXT_UID: claim.modified}
            action = "node.replace" if entry else "node.create"
            try:
                return await self.ledger.commit(author, action, name, [Put(key, encode(node)), claim.put()], expect)
            except Conflict:
                continue
        raise too_contended(f"node {name}")

    async def delete_node(self, name: str, author: str, expected: int | None = None) -> int:
        """Forget a node and all that was said about it: overrides, hold, freeze, memberships, and its boots, so that no
        certificate of theirs is good for another node of that name. The new revision."""
        key = f"node/{name}"
        for _ in range(ATTEMPTS):
            entry = await self.store.get(key)
            if entry is None:
                raise NotFound(f"no such node: {name[:80]}", where="node")
            expected_revision(f"node {name}", expected, entry.modified)
            uid = msgspec.msgpack.decode(entry.value, type=Node).uid
            ops, expect = await self._traces(name, uid)
            expect[key] = entry.modified
            try:
                revision = 0
                for batch in self.batches([*ops, Delete(key)]):
                    wanted = {op.key: expect[op.key] for op in batch}
                    revision = await self.ledger.commit(author, "node.delete", name, batch, wanted, {"uid": uid})
                return revision
            except Conflict:
                continue
        raise too_contended(f"node {name}")

    async def _traces(self, name: str, uid: int) -> tuple[list[Op], dict[str, int]]:
        """What removes everything that was said about a node, and the revisions that this was read at."""
        row_key = rows.key_of(uid // rows.CHUNK)
        groups = [f"group/{group}" for group, record in self.registry.groups.items() if _has(record, uid)]
        found = await self.present(
            [row_key, f"hold/{name}", f"freeze/node:{name}", *(f"{kept}{name}" for kept in self.kept_by_name), *groups]
        )
        ops: list[Op] = []
        for key, entry in found.items():
            if key == row_key:
                row = rows.wiped(rows.decode(entry.value, key), entry.modified, uid % rows.CHUNK)
                ops.append(Put(key, rows.encode(row)) if row else Delete(key))
            elif key.startswith("group/"):
                group = msgspec.msgpack.decode(entry.value, type=Group)
                members = intset.difference(group.members, [(uid, uid)])
                ops.append(Put(key, encode(msgspec.structs.replace(group, members=members))))
            else:
                ops.append(Delete(key))
        return ops, {key: entry.modified for key, entry in found.items()}

    async def _claim(self) -> _Claim:
        """Read ``uid/next`` and wait until the view holds every node that was written up to then."""
        entry = await self.store.get(NEXT_UID)
        if entry is None:
            return _Claim(1, 0)
        await self.registry.reached(entry.modified)
        return _Claim(msgspec.msgpack.decode(entry.value, type=int), entry.modified)

    def _check_places(self, node: Node, before: Sequence[Interface] = (), networks: Sequence[IPv4Network] = ()) -> None:
        """Raise ``BadRequest`` if an interface is given an address that it cannot be reached at. One that it had
        ``before`` may stay: networks change, and the rest of the node can be edited all the same."""
        if self.misplaced is None:
            return
        had = {interface.address for interface in before}
        for at, interface in enumerate(node.interfaces, 1):
            if not interface.address or interface.address in had:
                continue
            if (why := self.misplaced(interface.address)) and not _within(interface.address, networks):
                raise BadRequest(
                    why,
                    where=f"node {node.name}: interface {at}",
                    hint="give it an address of a boot network, or none: then it gets the next free one",
                )

    def _check_free(self, node: Node, moving: Set[str] = frozenset()) -> None:
        """Raise ``Conflict`` if another node, and none of ``moving``, has the name, the place, the NID or something of
        an interface."""
        registry = self.registry
        there = registry.find(node.name)
        if there >= 0 and registry.uids[there] != node.uid:
            raise Conflict("there is a node of this name", where=f"node {node.name}", revision=registry.revision)
        for what, value, other in (
            ("location", node.location, registry.at_location(node.location) if node.location else -1),
            ("NID", node.nid, registry.at_nid(node.nid) if node.nid is not None else -1),
            *((what, claim, registry.claimant(claim)) for what, claim in claims_of(node)),
        ):
            if other >= 0 and registry.uids[other] != node.uid and registry.names[other] not in moving:
                raise Conflict(
                    f"{what} {value} is that of {registry.names[other]}",
                    where=f"node {node.name}",
                    revision=registry.revision,
                    hint=f"give another {what}, or change {registry.names[other]} first",
                )


class Claimed:
    """What the nodes of one request have taken so far."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._locations: dict[str, str] = {}
        self._nids: dict[int, str] = {}
        self._claims: dict[str, str] = {}
        self.nodes: list[Node] = []

    def take(self, node: Node) -> None:
        """Raise ``BadRequest`` if an earlier node of the request has the same."""
        where = f"node {node.name}"
        if node.name in self._names:
            raise BadRequest("named twice in one request", where=where)
        if node.location in self._locations:
            raise BadRequest(f"location {node.location} is also that of {self._locations[node.location]}", where=where)
        if node.nid in self._nids:
            raise BadRequest(f"NID {node.nid} is also that of {self._nids[node.nid]}", where=where)
        for what, claim in claims_of(node):
            if claim in self._claims:
                raise BadRequest(f"{what} {claim} is also that of {self._claims[claim]}", where=where)
        self.nodes.append(node)
        self._names.add(node.name)
        if node.location:
            self._locations[node.location] = node.name
        if node.nid is not None:
            self._nids[node.nid] = node.name
        self._claims.update((claim, node.name) for _, claim in claims_of(node))


def _stated(stated: NodeStatement, before: Node | None) -> Node:
    """The node as it is, with what is said of it."""
    said = {name: value for name in stated.__struct_fields__ if (value := getattr(stated, name)) is not UNSET}
    if "labels" in said:
        said["labels"] = {key: value for key, value in said["labels"].items() if value is not None}
    old = {} if before is None else {name: getattr(before, name) for name in NodeSpec.__struct_fields__}
    try:
        return checked_node(Node(uid=0, **{**old, **said}))
    except BadRequest as error:
        where = error.where if error.where.startswith("node ") else f"node {stated.name}: {error.where}"
        raise BadRequest(error.detail, where=where, hint=error.hint) from None


def checked_node(spec: Described) -> Node:
    """The node in its one form, uid 0; ``BadRequest`` says which field is wrong."""
    check_node_name(spec.name)
    where = f"node {spec.name}"
    try:
        location = parse_xname(spec.location).text if spec.location else ""
        for key, value in spec.labels.items():
            check_label(key, value)
        check_label("role", spec.role)
    except BadRequest as error:
        raise BadRequest(error.detail, where=f"{where}: {error.where}", hint=error.hint) from None
    if len(spec.labels) > MOST_LABELS:
        raise BadRequest(f"{len(spec.labels)} labels; at most {MOST_LABELS}", where=where)
    if spec.architecture not in ARCHITECTURES:
        raise BadRequest(f"architecture is one of {', '.join(ARCHITECTURES)}", where=where)
    if spec.nid is not None and not 0 <= spec.nid <= HIGHEST_NID:
        raise BadRequest(f"a NID is 0 to {HIGHEST_NID}", where=where)
    _check_bmc(where, spec.bmc)
    return Node(
        name=spec.name,
        uid=0,
        location=location,
        nid=spec.nid,
        role=spec.role,
        architecture=spec.architecture,
        labels=dict(spec.labels),
        bmc=spec.bmc,
        interfaces=checked_interfaces(spec.interfaces, where),
    )


def _check_bmc(where: str, bmc: str) -> None:
    if not bmc:
        return
    if len(bmc) > 256 or not bmc.isprintable() or " " in bmc:
        raise BadRequest("the address of a BMC is at most 256 printable characters without spaces", where=where)
    # Descriptions are shown to every viewer. The text itself is not repeated: it would be the secret.
    if "@" in bmc and urlsplit(bmc if "//" in bmc else f"//{bmc}").username is not None:
        raise BadRequest("the address of a BMC must not hold a user name or password", where=where)


def _has(group: Group, uid: int) -> bool:
    return bool(intset.contains(group.members, [uid])[0])


def _failure(name: str, error: StrataError) -> NodeResult:
    return NodeResult(node=name[:80], ok=False, status=error.status, error=str(error))


def _within(address: str, networks: Sequence[IPv4Network]) -> bool:
    return any(IPv4Address(address) in network for network in networks)
