"""What CAPMC's applets ask of the machine: one protocol, made for one caller, who sees only the nodes of its scope.

Nodes are arrays: an applet about 100,000 of them is a few array operations and one reply.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.errors import StrataError
from strata.power.columns import PowerRows, Uids
from strata.power.inband import Attribute, Inband, Value
from strata.power.series import Energy, Series

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

STATES = ("disabled", "halt", "off", "on", "ready", "standby", "diag", "undefined")
"""What CAPMC calls the states of nodes. ``undefined``: nobody knows."""
FLAGS = ("alert", "resvd", "warn")

READY = STATES.index("ready")
DISABLED = STATES.index("disabled")

Switch = Literal["on", "off", "reinit"]
Control = Literal["node", "accel"]


class NodeTable(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, one cell each."""

    nids: npt.NDArray[np.int64]
    """-1: it has none."""
    uids: Uids
    states: npt.NDArray[np.int8]
    """Positions in ``STATES``."""
    compute: Mask
    feeds: Mask
    """Outlets and chassis: they give power to others, and run nothing."""
    flags: Mapping[str, Mask] = {}

    def find(self, nids: npt.NDArray[np.int64]) -> Positions:
        """Where each NID is, in a table that ascends by NID; -1 where there is no such node."""
        if not len(self.nids):
            return np.full(len(nids), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.nids, nids), len(self.nids) - 1)
        found: Positions = np.where(self.nids[at] == nids, at, -1)
        return found

    @property
    def ready(self) -> Mask:
        """Whose OS runs."""
        mask: Mask = self.states == READY
        return mask


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler should know before it switches nodes; -1: no limit. Advice, not enforced."""

    latency_node_off: int = 60
    latency_node_on: int = 600
    latency_node_reinit: int = 760
    max_off_req_count: int = -1
    max_off_time: int = -1
    max_on_req_count: int = -1
    max_reinit_req_count: int = -1
    min_off_time: int = 900


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The site's limits, in watts and watts a minute; 0: none."""

    power_cap_target: int = 0
    power_threshold: int = 0
    static_power: int = 0
    ramp_limited: bool = False
    ramp_limit: int = 0
    power_band_min: int = 0
    power_band_max: int = 0


class CapChange(msgspec.Struct, frozen=True, kw_only=True):
    """Caps to set, one value for each uid; 0 takes the cap off."""

    control: Control
    uids: Uids
    watts: npt.NDArray[np.float64]


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """When and where a job or an application ran: several times if it was suspended."""

    uids: Uids
    spans: Sequence[tuple[float, float]]


class Drive(msgspec.Struct, frozen=True, kw_only=True):
    """A solid-state drive of a node, as its inventory has it. None and empty: not known."""

    model: str = ""
    serial: str = ""
    vendor: str = ""
    part: str = ""
    firmware: str = ""
    size: int | None = None
    """Bytes."""
    life_left: float | None = None
    """Percent."""


class CapmcMachine(Protocol):
    """The machine as one caller may see and use it. Errors are those of ``strata.core.errors``."""

    @property
    def zone(self) -> dt.tzinfo:
        """Of the times in requests and replies."""
        ...

    @property
    def rules(self) -> Rules:
        """Advice on switching."""
        ...

    @property
    def parameters(self) -> Parameters:
        """The site's limits."""
        ...

    @property
    def series(self) -> Series | None:
        """Telemetry; None: there is none."""
        ...

    @property
    def inband(self) -> Inband | None:
        """The kernels of nodes; None: they cannot be reached."""
        ...

    @property
    def trouble(self) -> str:
        """Why requests cannot be answered as they should; empty: they can."""
        ...

    @property
    def fresh(self) -> float:
        """Seconds that a counter may be old to be the latest."""
        ...

    def now(self) -> float:
        """Unix seconds."""
        ...

    def nodes(self) -> NodeTable:
        """The caller's nodes that have a NID, ascending by it."""
        ...

    def those(self, uids: Uids) -> NodeTable:
        """These nodes, in this order, whether they have a NID or not."""
        ...

    def rows(self, uids: Uids) -> PowerRows:
        """What is known of their power."""
        ...

    def names(self, uids: Uids) -> Sequence[str]:
        """What they are called."""
        ...

    def places(self, uids: Uids) -> Sequence[str]:
        """Where they are (an xname), or what they are called where that is not known."""
        ...

    def cabinets(self, uids: Uids) -> Sequence[str]:
        """The cabinet of each; empty where it is not known."""
        ...

    def label(self, uids: Uids, key: str) -> Sequence[str]:
        """What their label says; empty where they have none."""
        ...

    def at_places(self, places: Sequence[str]) -> Sequence[int]:
        """The uid of the node at each place (or with that name); -1: there is none."""
        ...

    def below(self, place: str) -> Uids:
        """Every node in a component (a cabinet, a chassis; ``s0`` and ``all``: the system)."""
        ...

    def feeders(self, uids: Uids) -> Uids:
        """What gives power to nodes, up to the outlet."""
        ...

    def group(self, name: str) -> Uids | None:
        """The members of a group; None: there is none."""
        ...

    def partitions(self) -> Mapping[str, Uids]:
        """The parts that the machine is cut into."""
        ...

    def may_press(self) -> bool:
        """Whether the caller has a right to the emergency off."""
        ...

    async def switch(self, uids: Uids, to: Switch, *, reason: str, force: bool) -> Mapping[int, str]:
        """Have it done, as a tracked job; return once that is durable. Why not, by uid, for whom it is not begun."""
        ...

    def no_room(self, uids: Uids, watts: npt.NDArray[np.float64]) -> str:
        """Why the site cannot have nodes at these caps (0: none), all of them together; empty: it can."""
        ...

    async def set_caps(self, changes: Sequence[CapChange]) -> Mapping[int, str]:
        """Set caps, as a tracked job: those that fall first, those that rise last. Why not, by uid."""
        ...

    async def set_limits(
        self, uids: Uids, changes: Sequence[tuple[Attribute, int]]
    ) -> Mapping[int, Sequence[Value] | StrataError]:
        """Set limits in their kernels, as a tracked job; what became of each change, by uid."""
        ...

    async def emergency_off(self, uids: Uids, reason: str) -> Mapping[int, str]:
        """Take power away now. Why not, by uid."""
        ...

    async def records(self, kind: str) -> Mapping[int, Any]:
        """What was kept under ``kind``, by uid."""
        ...

    async def keep(self, kind: str, values: Mapping[int, Any]) -> None:
        """Keep these, durably; None forgets one."""
        ...

    async def stage(self, kind: str, values: Mapping[int, str]) -> None:
        """Have the firmware of those nodes that have such a setting take it at their next start."""
        ...

    async def drives(self, uids: Uids) -> Mapping[int, Sequence[Drive]]:
        """Their solid-state drives, as far as they are known."""
        ...

    async def energy(self, uids: Uids, start: float, end: float) -> Energy:
        """What they used."""
        ...

    async def ran(self, *, job: str = "", apid: str = "") -> Spans | None:
        """When and where it ran, as far as the caller may see; None: never heard of it."""
        ...
