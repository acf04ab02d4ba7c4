"""A node's controller that speaks Redfish. Only names what can be asked: each subject has a module of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from strata.core.state import Fence
from strata.hardware.bmc import (
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
from strata.hardware.redfish import accounts, limits, tasks
from strata.hardware.redfish import bios as bioses
from strata.hardware.redfish import boot as boots
from strata.hardware.redfish import firmware as firmwares
from strata.hardware.redfish import log as logs
from strata.hardware.redfish import settings as settings_
from strata.hardware.redfish.client import RedfishClient
from strata.hardware.redfish.console import read_console
from strata.hardware.redfish.identity import read_identity
from strata.hardware.redfish.power import read_power, switch_power
from strata.hardware.redfish.sensors import read_sensors


class RedfishController:
    """What the address names, through the client that all share. See ``Controller`` for what each call promises."""

    __slots__ = ("_client", "_target", "address")

    def __init__(self, client: RedfishClient, address: str) -> None:
        self._client = client
        self._target = client.target(address)
        self.address = address

    async def identity(self) -> Identity:
        """Who it is."""
        return await read_identity(self._client, self._target)

    async def power(self) -> str | None:
        """``on``, ``off``, or None where it does not say."""
        return await read_power(self._client, self.address)

    async def set_power(
        self, action: PowerAction, *, fence: Fence | None = None, begin_before: float = float("inf")
    ) -> None:
        """Ask for it; returning means that it was accepted, no more."""
        await switch_power(self._client, self.address, action, fence=fence, begin_before=begin_before)

    async def boot(self) -> Boot:
        """The boot override that is set."""
        return await boots.read_boot(self._client, self._target)

    async def set_boot(self, boot: Boot) -> None:
        """Set the boot override."""
        await boots.write_boot(self._client, self._target, boot)

    async def media(self) -> Sequence[Media]:
        """Virtual drives."""
        return await boots.read_media(self._client, self._target)

    async def insert_media(self, image: str) -> None:
        """Put the image at this URI into the virtual drive (CD); an empty one ejects."""
        await boots.insert_media(self._client, self._target, image)

    async def identify(self, on: bool) -> None:
        """The identify light."""
        await boots.identify(self._client, self._target, on)

    async def readings(self) -> Sequence[Reading]:
        """All sensors, power and thermal among them."""
        return await read_sensors(self._client, self._target)

    async def log(self, *, after: str = "", limit: int = 1000) -> Sequence[LogEntry]:
        """The system event log, oldest first, from after the entry ``after`` on."""
        return await logs.read_log(self._client, self._target, after=after, limit=limit)

    async def clear_log(self) -> None:
        """Empty the system event log."""
        await logs.clear_log(self._client, self._target)

    async def power_limits(self) -> Sequence[PowerLimit]:
        """What can be capped."""
        return await limits.read_limits(self._client, self._target)

    async def set_power_limit(self, limit: str, watts: float | None) -> None:
        """Cap ``limit`` (the id of one of ``power_limits``); None takes the cap off."""
        await limits.write_limit(self._client, self._target, limit, watts)

    async def bios(self) -> Bios:
        """Firmware settings."""
        return await bioses.read_bios(self._client, self._target)

    async def stage_bios(self, attributes: Mapping[str, str | int | float | bool | None]) -> Task:
        """Have these settings take effect at the next restart."""
        return await bioses.stage_bios(self._client, self._target, attributes)

    async def firmware(self) -> Sequence[Firmware]:
        """What firmware there is."""
        return await firmwares.read_firmware(self._client, self._target)

    async def update_firmware(
        self, *, uri: str = "", image: bytes = b"", targets: Sequence[str] = (), apply_time: str = ""
    ) -> Task:
        """Have it fetch ``uri`` or take ``image``."""
        return await firmwares.update_firmware(
            self._client, self._target, uri=uri, image=image, targets=targets, apply_time=apply_time
        )

    async def task(self, task: str) -> Task:
        """How far the work with this id is."""
        return await tasks.read_task(self._client, self._target, task)

    async def set_password(self, user: str, password: str) -> None:
        """Change an account's password."""
        await accounts.set_password(self._client, self._target, user, password)

    async def settings(self) -> ServiceSettings:
        """Time and log servers."""
        return await settings_.read_settings(self._client, self._target)

    async def set_settings(self, settings: ServiceSettings) -> None:
        """Change those that are not None."""
        await settings_.write_settings(self._client, self._target, settings)

    def console(self) -> AsyncIterator[bytes]:
        """What the node's serial console prints, until ``aclose()``."""
        return read_console(self._client, self._target)
