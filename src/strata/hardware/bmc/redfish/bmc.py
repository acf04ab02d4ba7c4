"""A node's BMC that speaks Redfish. Only names what can be asked: each subject has a module of its own."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import urlsplit

import aiohttp

from strata.core.errors import BadRequest, DeviceError, NotOffered
from strata.core.state import Fence
from strata.fleet.tasks import cancelled
from strata.hardware.bmc.protocol import (
    Bios,
    Boot,
    Firmware,
    Identity,
    LogEntry,
    Media,
    PowerAction,
    PowerLimit,
    Reading,
    ServiceSettings,
    Task,
)
from strata.hardware.bmc.redfish import bios as bioses
from strata.hardware.bmc.redfish import boot as boots
from strata.hardware.bmc.redfish import firmware as firmwares
from strata.hardware.bmc.redfish import limits, tasks
from strata.hardware.bmc.redfish import log as logs
from strata.hardware.bmc.redfish import settings as settings_
from strata.hardware.bmc.redfish.client import RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import linked, manager, maybe, service, system
from strata.hardware.bmc.redfish.power import powered, read_power, switch_power
from strata.hardware.bmc.redfish.quirks import quirks
from strata.hardware.bmc.redfish.sensors import number, read_sensors


async def read_console(
    client: RedfishClient, target: Target, keys: asyncio.Queue[bytes] | None
) -> AsyncIterator[bytes]:
    """What the console prints, until closed; an empty piece first. Raises ``DeviceError`` when it breaks off."""
    path = await _where(client, target)
    async with client.socket(target.address, path) as socket:
        typing = asyncio.create_task(_type(socket, keys), name="keys of a console") if keys is not None else None
        try:
            yield b""
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    yield message.data
                elif message.type is aiohttp.WSMsgType.TEXT:
                    yield message.data.encode()
        finally:
            if typing is not None:
                await cancelled(typing)
    raise DeviceError("the console broke off", node=target.bmc.base)


async def _type(socket: aiohttp.ClientWebSocketResponse, keys: asyncio.Queue[bytes]) -> None:
    # A socket that is closed tells its reader; nobody waits here.
    with contextlib.suppress(aiohttp.ClientError, OSError):
        while True:
            await socket.send_bytes(await keys.get())


async def _where(client: RedfishClient, target: Target) -> str:
    """The path of the WebSocket, below the BMC's address. One at another host is not visited."""
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


async def set_password(client: RedfishClient, target: Target, user: str, password: str) -> None:
    """Change the password of ``user``. One that breaks the BMC's rules for length is not sent."""
    about = await service(client, target, "AccountService")
    least, most = number(about.get("MinPasswordLength")), number(about.get("MaxPasswordLength"))
    if (least is not None and len(password) < least) or (most is not None and len(password) > most):
        raise BadRequest(
            f"it takes passwords of {least or 0:.0f} to {most or math.inf:.0f} characters", where="password"
        )
    accounts = linked(target, about, "Accounts", what="accounts")
    for account in items(await client.tree(target.address, accounts), "Members"):
        # Dell's iDRAC has sixteen places of which most are empty: nobody is called "".
        if user and account.get("UserName") == user and (path := path_of(target.bmc, account)):
            await client.patch(target.address, path, {"Password": password}, private=True)
            return
    raise BadRequest("it has no such account", where=text(user, 64))


async def read_identity(client: RedfishClient, target: Target) -> Identity:
    """From the resource that the address names, its manager and the service root."""
    features = await client.features(target.address)
    body = await powered(client, target)
    try:
        own = await maybe(client, target, await manager(client, target))
    except NotOffered:
        own = {}
    names = (await quirks(client, target, body)).names
    return Identity(
        vendor=text(body.get("Manufacturer")) or features.vendor,
        model=text(body.get("Model")) or features.product,
        serial=text(body.get("SerialNumber")),
        uuid=text(body.get("UUID")) or text(features.services.get("UUID")),
        firmware=text(own.get("FirmwareVersion")),
        protocol="redfish",
        quirks=names if target.bmc.etags == "as-told" else (*names, f"etags-{target.bmc.etags}"),
    )


class RedfishBmc:
    """What the address names, through the client that all share. See ``Bmc`` for what each call promises."""

    __slots__ = ("_client", "_target", "address")

    def __init__(self, client: RedfishClient, address: str) -> None:
        self._client = client
        self._target = client.target(address)
        self.address = address

    async def identity(self) -> Identity:
        return await read_identity(self._client, self._target)

    async def power(self) -> str | None:
        return await read_power(self._client, self.address)

    async def set_power(
        self, action: PowerAction, *, fence: Fence | None = None, begin_before: float = float("inf")
    ) -> None:
        await switch_power(self._client, self.address, action, fence=fence, begin_before=begin_before)

    async def boot(self) -> Boot:
        return await boots.read_boot(self._client, self._target)

    async def set_boot(self, boot: Boot) -> None:
        await boots.write_boot(self._client, self._target, boot)

    async def media(self) -> Sequence[Media]:
        return await boots.read_media(self._client, self._target)

    async def insert_media(self, image: str) -> None:
        await boots.insert_media(self._client, self._target, image)

    async def identify(self, on: bool) -> None:
        await boots.identify(self._client, self._target, on)

    async def readings(self) -> Sequence[Reading]:
        return await read_sensors(self._client, self._target)

    async def log(self, *, after: str = "", limit: int = 1000) -> Sequence[LogEntry]:
        return await logs.read_log(self._client, self._target, after=after, limit=limit)

    async def clear_log(self) -> None:
        await logs.clear_log(self._client, self._target)

    async def power_limits(self) -> Sequence[PowerLimit]:
        return await limits.read_limits(self._client, self._target)

    async def set_power_limit(self, limit: str, watts: float | None) -> None:
        await limits.write_limit(self._client, self._target, limit, watts)

    async def bios(self) -> Bios:
        return await bioses.read_bios(self._client, self._target)

    async def stage_bios(self, attributes: Mapping[str, str | int | float | bool | None]) -> Task:
        return await bioses.stage_bios(self._client, self._target, attributes)

    async def firmware(self) -> Sequence[Firmware]:
        return await firmwares.read_firmware(self._client, self._target)

    async def update_firmware(
        self, *, uri: str = "", image: bytes = b"", targets: Sequence[str] = (), apply_time: str = ""
    ) -> Task:
        return await firmwares.update_firmware(
            self._client, self._target, uri=uri, image=image, targets=targets, apply_time=apply_time
        )

    async def task(self, task: str) -> Task:
        return await tasks.read_task(self._client, self._target, task)

    async def set_password(self, user: str, password: str) -> None:
        await set_password(self._client, self._target, user, password)

    async def settings(self) -> ServiceSettings:
        return await settings_.read_settings(self._client, self._target)

    async def set_settings(self, settings: ServiceSettings) -> None:
        await settings_.write_settings(self._client, self._target, settings)

    def console(self, keys: asyncio.Queue[bytes] | None = None) -> AsyncIterator[bytes]:
        return read_console(self._client, self._target, keys)
