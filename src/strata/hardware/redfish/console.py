"""The serial console over Redfish: a WebSocket that the system tells of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.redfish.bmc import below, text
from strata.hardware.redfish.client import RedfishClient, Target
from strata.hardware.redfish.find import quirks, system


async def read_console(client: RedfishClient, target: Target) -> AsyncIterator[bytes]:
    """What the console prints, until closed; an empty piece first. Raises ``DeviceError`` when it breaks off."""
    path = await _where(client, target)
    async with client.socket(target.address, path) as socket:
        yield b""
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data
            elif message.type is aiohttp.WSMsgType.TEXT:
                yield message.data.encode()
    raise DeviceError("the console broke off", node=target.bmc.base)


async def _where(client: RedfishClient, target: Target) -> str:
    """The path of the WebSocket, below the controller's address. One at another host is not visited."""
    body = await system(client, target)
    told = below(body, "SerialConsole", "WebSocket")
    uri = text(told.get("ConsoleURI"), 1024)
    if not uri and (await quirks(client, target, body)).console0:
        return "/console0"
    parts, home = urlsplit(uri), urlsplit(target.bmc.origin)
    if not uri or told.get("ServiceEnabled") is False:
        raise NotOffered("it offers no serial console", node=target.bmc.base)
    if (parts.netloc and parts.netloc != home.netloc) or not parts.path.startswith("/"):
        raise DeviceError("its console is at another host, which is not visited", node=target.bmc.base)
    path = parts.path.removeprefix(target.bmc.path)
    return f"{path}?{parts.query}" if parts.query else path
