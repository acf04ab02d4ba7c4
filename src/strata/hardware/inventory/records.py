"""How hardware is written down: the records of a controller, and the events that their changes are. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal

import msgspec

from strata.hardware.events.event import HardwareEvent
from strata.hardware.inventory.found import Change, Found, Known, Parts
from strata.hardware.inventory.index import hashed
from strata.store.protocol import Put

CONTROLLERS = "hardware/controller/"
PARTS = "hardware/parts/"

LARGEST = 1_000_000
"""Bytes that one record, or all of one transaction, may take; etcd takes 1.5 MB."""

known_of = msgspec.msgpack.Decoder(Known).decode
"""A controller as it was written down."""
_encode = msgspec.msgpack.Encoder().encode
_decode_parts = msgspec.msgpack.Decoder(Parts).decode


def event(change: Change, node_at: Callable[[str], str]) -> HardwareEvent:
    """What others are told of a change. ``node_at``: the name of the node at an address."""
    severity: Literal["ok", "warning", "critical"] = "ok"
    if change.what in ("removed", "swapped", "moved"):
        severity = "warning"
    elif change.what == "controller-swapped" and not change.detail.startswith("accepted"):
        severity = "critical"
    what = f"{change.kind or 'controller'} {change.what}: {change.detail}"
    values = f" ({change.old or 'nothing'} → {change.new or 'nothing'})" if change.old or change.new else ""
    return HardwareEvent(
        time=change.time,
        severity=severity,
        message=what + values,
        source="discovery",
        key=f"inventory/{change.component or 'controller'}",
        node=change.node or node_at(change.machine or change.controller),
        bmc=change.controller,
    )


def summary(found: Found, before: Known | None, told: bytes) -> Known:
    """What is at hand of a controller. ``told``: the digest of its account as it came."""
    counts: dict[str, int] = {}
    for part in found.components:
        counts[part.kind] = counts.get(part.kind, 0) + 1
    managers = tuple(part.id for part in found.components if part.kind == "manager")
    macs = [mac for part in found.components if part.parent in managers for mac in part.macs]
    return Known(
        address=found.address,
        identity=found.identity,
        first=before.first if before else found.time,
        seen=found.time,
        digest=told,
        machines=found.machines,
        counts=counts,
        ports=len(found.ports),
        macs=tuple(dict.fromkeys(macs)),
        serials=hashed({part.serial for part in found.components if part.serial}),
        trouble=found.trouble,
        places=before.places if before else {},
    )


def digest(found: Found) -> bytes:
    """Of everything but when it was seen and whether it is on."""
    machines = tuple(msgspec.structs.replace(machine, power="") for machine in found.machines)
    same = msgspec.structs.replace(found, time=0.0, machines=machines)
    return blake2b(_encode(same), digest_size=12).digest()


def put(known: Known) -> Put:
    """Write down a controller."""
    return Put(CONTROLLERS + known.address, _encode(known))


def packed(found: Found) -> tuple[Found, bytes]:
    """The parts as they are stored, of which there may be fewer than were found: some controllers make them up."""
    while True:
        # Parts of one machine are much alike: a fifth of the bytes, at a cost that nobody notices.
        parts = Parts(components=found.components, ports=found.ports, fabric=found.fabric)
        data = zlib.compress(_encode(parts), 1)
        if len(data) <= LARGEST:
            return found, data
        found = msgspec.structs.replace(
            found,
            components=found.components[: len(found.components) // 2],
            ports=found.ports[: len(found.ports) // 2],
            trouble=("/: it tells of more parts than are kept", *found.trouble[:8]),
        )


def unpacked(value: bytes) -> Parts:
    """Parts as they were written down."""
    return _decode_parts(zlib.decompress(value))
