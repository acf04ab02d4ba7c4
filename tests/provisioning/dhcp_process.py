"""DHCP, TFTP and router advertisements as a process of their own, for a network namespace.

Reads one JSON line from standard input (``networks``: the file's text, ``nodes``, ``state``: a directory), says
``ready`` when it serves, then tells what it hears. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from strata.core.errors import StrataError
from strata.core.node import Node
from strata.fleet.alarm import Alarm
from strata.provisioning.dhcp.responder import Heard
from strata.provisioning.dhcp.service import DhcpService
from strata.provisioning.directory import Directory
from strata.provisioning.networks import parse


class Given(msgspec.Struct):
    """What the first line says."""

    networks: str
    nodes: list[Node]
    state: str


def say(kind: str, what: object) -> None:
    """One line of JSON."""
    print(msgspec.json.encode({kind: what}).decode(), flush=True)


def heard(event: Heard) -> None:
    """Tell what a machine did."""
    say("heard", event)


def alarmed(alarm: Alarm) -> None:
    """Tell what is wrong."""
    say("alarm", alarm)


async def main() -> None:
    """Serve until nobody wants it any more."""
    given = msgspec.json.decode(sys.stdin.readline(), type=Given)
    quiet = "--quiet" in sys.argv
    service = DhcpService(
        parse(given.networks, source="networks"),
        Directory(given.nodes),
        Path(given.state),
        **({} if quiet else {"heard": heard, "alarm": alarmed}),
    )
    try:
        await service.start()
    except StrataError as error:
        say("error", str(error))
        return
    say("ready", True)
    await asyncio.to_thread(sys.stdin.read)
    await service.stop()
    say("counts", service.counts)


if __name__ == "__main__":
    uvloop.run(main())
