"""Switches machines of a chassis by way of their BMCs, from outside its namespace."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import DeviceError, Unavailable
from strata.virtual.qemu import description, network
from strata.virtual.qemu.description import MachineDescription
from strata.virtual.qemu.tree import RESET
from strata.virtual.redfish.bmc import Account

_PATIENCE = 60.0


def switch_on(directory: Path, nodes: Iterable[str]) -> None:
    """Have the machines of these names switched on, those that are off."""
    found = description.read(directory)
    password = (directory / description.PASSWORD).read_text(encoding="ascii").strip()
    account, wanted = Account(found.user, password), set(nodes)
    machines = [machine for machine in found.nodes if machine.name in wanted]

    def work() -> None:
        for machine in machines:
            _reset(machine, account, "On")

    network.inside(found.namespace, work)


def _reset(machine: MachineDescription, account: Account, kind: str) -> None:
    address = urlsplit(machine.bmc)
    line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_PATIENCE)
    headers = {"Authorization": account.basic, "Content-Type": "application/json"}
    try:
        line.request("POST", address.path + RESET, msgspec.json.encode({"ResetType": kind}), headers)
        reply = line.getresponse()
        told = reply.read(1 << 16)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"its controller does not answer: {error}", where=machine.name, hint="strata virtual start"
        ) from None
    finally:
        line.close()
    if reply.status >= 300:
        raise DeviceError(_why(told) or f"its controller answered {reply.status}", node=machine.name)


def _why(body: bytes) -> str:
    try:
        told: Any = msgspec.json.decode(body)
        return str(told["error"]["message"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
