"""What the parts of the hardware layer in memory share, and what tests change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from strata.core.errors import Denied, DeviceError
from strata.core.nodeset import fold
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.operations.records import Operation
from strata.hardware.alerts.records import AlertView, WebhookView
from strata.hardware.bmc.protocol import Boot, Identity, Severity
from strata.hardware.bmc.records import Failed, Many, ManyOutcome
from strata.hardware.consoles.records import ConsoleLine
from strata.hardware.credentials.records import BmcCredentialView
from strata.hardware.discovery.records import DiscoveryReport
from strata.hardware.events.records import EventView
from strata.hardware.fabric.records import FabricView
from strata.hardware.inventory.records import ComponentView

_T = TypeVar("_T")


class Ground:
    """What there is."""

    def __init__(self, facade: Any) -> None:
        self.facade = facade
        self.undiscovered: set[str] = set()
        self.dead: set[str] = set()
        """Nodes whose controllers do not answer."""
        self.bare: set[str] = set()
        """Nodes whose controllers offer nothing beyond power."""
        self.slow = 0.0
        """Seconds that a controller takes."""
        self.brakes: dict[str, str] = {}
        """Node → why nothing may be done to it."""
        self.asked: list[tuple[str, ...]] = []
        """What was done, in order."""
        self.reads: list[tuple[str, str]] = []
        """What was read from controllers, in order."""
        self.boots: dict[str, Boot] = {}
        self.images: dict[str, str] = {}
        self.caps: dict[str, float] = {}
        self.staged: dict[str, dict[str, Any]] = {}
        self.alerts: list[AlertView] = []
        self.events: list[EventView] = []
        self.graph = FabricView(switches=(), links=())
        self.pdus: tuple[ComponentView, ...] = ()
        self.as_job = False
        """Whether changes of many nodes become jobs."""
        self.endless = True
        """Whether streams go on after what there is."""
        self.discoveries: dict[str, DiscoveryReport] = {}
        self.hooks: dict[str, WebhookView] = {}
        self.keys: dict[str, BmcCredentialView] = {}
        self.lines: dict[str, list[ConsoleLine]] = {}
        """What nodes printed."""

    def alert(self, node: str, severity: Severity) -> None:
        """Something is wrong with a node."""
        self.alerts.append(
            AlertView(
                id=f"a{len(self.alerts)}", node=node, bmc=address(node), key="sensor/Fan 1", severity=severity,
                message="the fan stands still", first=1.0, last=2.0, count=1, state="open", by="", note="", fields={},
            )
        )  # fmt: skip

    async def read(self, who: Principal, node: str, what: str) -> None:
        """A controller is asked."""
        await self.facade.node(who, node)
        self.reads.append((what, node))
        await asyncio.sleep(self.slow)
        if node in self.dead:
            raise DeviceError("no answer", node=node)

    async def owned(self, who: Principal, select: str) -> list[str]:
        """The selected nodes, all of which the caller must be allowed to change."""
        names = list(await self.facade.node_names(who, select))
        if who.scope and len(names) < len(await self.facade.node_names(LOCAL_ADMIN, select)):
            raise Denied("the selection reaches outside your groups", where="select")
        return names

    async def stream(self, there: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
        """What there is, and then silence."""
        if there:
            yield there
        if self.endless:
            await asyncio.Event().wait()

    async def do(self, who: Principal, select: str, *what: str) -> Many:
        """Something is done to nodes."""
        names = await self.owned(who, select)
        if self.as_job:
            return job("bmc", len(names))
        troubles = {name: "no answer" for name in names if name in self.dead} | {
            name: reason for name, reason in self.brakes.items() if name in names
        }
        good = [name for name in names if name not in troubles]
        self.asked.append((*what, fold(good)))
        failed = tuple(Failed(nodes=name, reason=reason) for name, reason in troubles.items())
        return ManyOutcome(done=fold(good), done_count=len(good), failed=failed, failed_count=len(failed))


def job(kind: str, total: int) -> Operation:
    """Work that has begun."""
    return Operation(
        id="j1", kind=kind, state="running", total=total, done=0, failed=0, errors=(), author="t", created=1.0,
        finished=None,
    )  # fmt: skip


PDU_ADDRESS = "https://pdu.example"


def address(node: str) -> str:
    """Where a node's controller is."""
    return f"https://bmc-{node}.example:443"


IDENTITY = Identity(
    vendor="Acme", model="BMC 9", serial="B1", uuid="00000000-0000-0000-0000-0000000000aa", firmware="2.40"
)
