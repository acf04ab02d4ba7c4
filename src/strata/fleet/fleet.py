"""The running fleet, which every layer stands on: made first, then layers register their parts on it, then it runs.

Holds what all rooms share (registry, edits, ledger, controller, tracked work) and how a caller's scope limits what it
sees and changes. Knows no layer: what a layer adds, it adds itself (drivers, services, reasons, what takes alarms).
"""

from __future__ import annotations

import asyncio
import pwd
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import numpy as np

from strata.core.driver import Driver
from strata.core.errors import Denied, NotFound
from strata.core.node import Node
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm
from strata.fleet.background import Background
from strata.fleet.columns import Indices, Mask
from strata.fleet.controller.controller import Controller
from strata.fleet.controller.silent_nodes import Silences
from strata.fleet.disk import DiskWatch
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.unknown import unknown_nodes
from strata.fleet.nodes.view import FleetView
from strata.fleet.operations.operations import Operations
from strata.fleet.registry.edits import Edits
from strata.fleet.selectors.language import parse
from strata.fleet.selectors.selectable import Selectable, scoped
from strata.fleet.services import Services
from strata.fleet.settings import FleetSettings, S
from strata.fleet.tasks import cancelled
from strata.fleet.writable import Writable
from strata.store.audit import Ledger
from strata.store.records import Changed, R, Records, nobody

T = TypeVar("T")


class Part(Protocol):
    """What runs for as long as the fleet does."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


P = TypeVar("P", bound=Part)


class Fleet:
    """One controller's fleet, and what the layers have put on it."""

    def __init__(
        self,
        controller: Controller,
        settings: FleetSettings,
        *,
        way_out: Sequence[str] = (),
        web: pwd.struct_passwd | None = None,
    ) -> None:
        """``way_out``: stands before commands that need a network which this process is not in. ``web``: the account
        that serves files to nodes; None: our own."""
        self.controller = controller
        self.settings = settings
        self.way_out = way_out
        self.web = web
        self.store = controller.store
        self.registry = controller.registry
        self.ledger = Ledger(controller.store, clock=controller.clock.wall)
        self.edits = Edits(self.registry, self.ledger)
        self.view = FleetView(controller)
        self.writable = Writable(controller.store)
        self.silences = Silences(controller, self.alarm)
        self.disk = DiskWatch(settings.state_dir, self.alarm, owner=controller.name)
        self.operations = Operations(controller.store, self.ledger, owner=controller.name)
        self.services = Services()
        self.background = Background()
        """Gives work that can wait its turns."""
        self.services.put(controller.metrics, Metrics)
        self.parts = AsyncExitStack()
        """Ends what was started, the last first."""
        self.layers: list[str] = []
        """The layers that were opened on it, lowest first."""
        self.reasons: list[Callable[[Principal, Node], Sequence[str]]] = []
        """Who else knows why a node is not at its goal: lines for a caller who asks."""
        self.details: list[Callable[[str], Mapping[str, str]]] = []
        """Who knows more of a node's facts than their values: by variable, in words."""
        self.alarms: list[Callable[[Alarm], None]] = []
        """Who makes something of trouble that a part of this controller has noticed."""
        self.measured: list[Callable[[str, Mapping[str, Any]], None]] = []
        """Who takes what nodes measure of themselves: the name, and the values."""
        self.set_node_limits: Callable[[str, Mapping[str, int]], Awaitable[Mapping[str, Any]]] | None = None
        """Sets limits in the kernel of a node, and tells what is in force; None: nobody here can."""
        self.forgets: list[Callable[[float], Awaitable[object]]] = []
        """What is to forget all that is older than a time (Unix seconds)."""
        self.reloads: list[Callable[[], None]] = []
        """What is to be done once ``settings`` has taken over what a running service can from the file."""
        self._begins: list[Callable[[], Awaitable[object]]] = []

    # putting together

    def drive(self, driver: Driver) -> None:
        """Have the engine act and look through ``driver``, which its model names."""
        self.controller.driver_calls.add(driver)

    def driver(self, name: str) -> Driver | None:
        """The driver of that name, if there is one."""
        return self.controller.driver_calls.get(name)

    def section(self, kind: type[S]) -> S:
        """A layer's section of the settings, by its type."""
        return self.settings.section(kind)

    def put(self, service: T, kind: type[T] | None = None) -> T:
        """Let others find a room's service by its type."""
        return self.services.put(service, kind)

    def of(self, kind: type[T]) -> T:
        """A service by its type; ``Unavailable`` where its room is not open here."""
        return self.services.get(kind)

    def records(
        self,
        type_: type[R],
        *,
        kind: str,
        prefix: str = "",
        listed_by: str = "",
        called: str = "",
        changed: Changed[R] = nobody,
        cleared: Callable[[], None] = lambda: None,
    ) -> Records[R]:
        """Records of one kind in the fleet's store, to be started by who asks; the words are those of ``Records``."""
        return Records(
            self.store,
            self.ledger,
            type_,
            kind=kind,
            prefix=prefix,
            listed_by=listed_by,
            called=called,
            changed=changed,
            cleared=cleared,
        )

    def alarm(self, alarm: Alarm) -> None:
        """Tell of trouble."""
        for take in self.alarms:
            take(alarm)

    async def keep(self, part: P) -> P:
        """Start a part now, and stop it when the fleet stops."""
        await part.start()
        self.parts.push_async_callback(part.stop)
        return part

    def begin(self, work: Callable[[], Awaitable[object]]) -> None:
        """Have ``work`` done once the registry is loaded and the engine runs, in the order of these calls."""
        self._begins.append(work)

    async def start(self) -> None:
        """Load what is known and begin to act; then what waited for that."""
        await self.controller.start()
        self.parts.push_async_callback(self.controller.stop)
        for begin in self._begins:
            await begin()
        self.parts.push_async_callback(self.operations.close)
        for watch in (self.writable, self.disk, self.silences):
            self.parts.push_async_callback(cancelled, asyncio.create_task(watch.run(), name=type(watch).__name__))

    async def stop(self) -> None:
        """End everything, the last first. Disturbs no node."""
        await self.parts.aclose()

    @property
    def trouble(self) -> str:
        """Why nothing can be changed now; empty: it can."""
        return self.controller.trouble or self.writable.trouble

    def unled(self, nodes: Indices) -> Indices:
        """Those of ``nodes`` that no controller is known to look after."""
        led = np.zeros(self.controller.settings.shards, dtype=np.bool_)
        led[list(self.controller.leadership.holders)] = True
        alone: Indices = nodes[~led[self.registry.uids[nodes] % len(led)]]
        return alone

    # what a caller may see and change

    def scope(self, who: Principal) -> Mask | None:
        """The nodes that the caller may see and change; None: all."""
        if not who.scope:
            return None
        mask = np.zeros(self.registry.size, dtype=np.bool_)
        for group in who.scope:
            if group in self.registry.groups:
                mask |= self.registry.groups.mask(group)
        return mask

    def visible(self, who: Principal) -> Selectable:
        """The nodes as the caller may know of them."""
        mask = self.scope(who)
        return self.registry if mask is None else scoped(self.registry, mask, who.scope)

    def find(self, who: Principal, name: str) -> int:
        """The index of a node in the caller's scope, or -1."""
        return self.visible(who).find(name)

    def index(self, who: Principal, name: str) -> int:
        """A node by name; one outside the caller's scope is not there."""
        fleet = self.visible(who)
        index = fleet.find(name)
        if index < 0:
            raise unknown_nodes(fleet, [name])
        return index

    def called(self, who: Principal, index: int) -> str:
        """What the caller is told of a node by index: its name, where it may know it."""
        name = self.registry.names[index]
        return name if self.find(who, name) >= 0 else "(a node outside your groups)"

    def seen(self, who: Principal, select: str) -> Indices:
        """The selected nodes that the caller may see. One outside its scope is as unknown as one that is nowhere."""
        return parse(select or "*").indices(self.visible(who), self.view)

    def touches(self, who: Principal, scope: str) -> bool:
        """Whether a freeze of ``scope`` is any of the caller's business."""
        mask = self.scope(who)
        if scope == "fleet" or mask is None:
            return True
        kind, _, name = scope.partition(":")
        if kind == "node":
            return self.find(who, name) >= 0
        return name in self.registry.groups and bool(np.any(mask & self.registry.groups.mask(name)))

    def owned(self, who: Principal, select: str) -> Indices:
        """The selected nodes, all of which the caller must be allowed to change.

        With a scope, the selection itself must stay within it, by naming nodes or the scope's groups. Whether it does
        is read from its words and never from the fleet: a refusal that depended on nodes outside would tell of them.
        """
        if not who.scope:
            return self.registry.select(select, self.view)
        groups = ", ".join(who.scope)
        selector = parse(select)
        if not selector.within(who.scope):
            raise Denied(
                f"the selection may reach beyond {groups}",
                where="select",
                hint=f"name nodes, or begin with one of your groups: @{who.scope[0]} {select[:200]}",
            )
        try:
            return selector.indices(self.visible(who), self.view)
        except NotFound as error:
            raise Denied(f"not among the nodes of {groups}: {error.detail}", where="select") from None

    def count(self, who: Principal, mask: Mask) -> int:
        """How many of the nodes of ``mask`` the caller may know of."""
        own = self.scope(who)
        return int(np.count_nonzero(mask if own is None else mask & own))

    def need_whole_fleet(self, who: Principal, what: str) -> None:
        """Refuse a caller with a scope."""
        if who.scope:
            raise Denied(f"{what} reaches beyond {', '.join(who.scope)}", where=who.name)

    async def settled(self, revision: int) -> None:
        """Wait until the local view shows what was written."""
        await self.registry.reached(revision)

    async def considered(self, revision: int) -> None:
        """Wait until the states show what was written."""
        await self.settled(revision)
        await self.controller.wait_considered(revision)
