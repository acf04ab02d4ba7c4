"""Nodes' BMCs: power, boot, lights, sensors, caps, firmware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from litestar import Response, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from strata.api.rights import answers, needs
from strata.api.routing import Routes
from strata.api.services import Asked, Limit, NodePath, Select
from strata.core.texts import PLAIN, In, SelectText
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.protocol import Boot as BootOverride
from strata.hardware.bmc.protocol import BootTarget, PowerAction
from strata.hardware.bmc.records import Many, ServiceSettingsChange
from strata.hardware.bmc.service import BmcService

_TAG = "BMCs"


class Power(In, frozen=True, kw_only=True):
    """On and off become desires, which the engine fulfils; the rest is done at once. ``force``: ask no guard."""

    select: SelectText
    action: PowerAction
    force: bool = False


class Boot(In, frozen=True, kw_only=True):
    """Where to boot from. ``uri``: for HTTP boot. ``uefi`` null: leave the mode as it is."""

    select: SelectText
    target: BootTarget
    once: bool = True
    uri: Annotated[str, Meta(pattern=PLAIN, max_length=2048)] = ""
    uefi: bool | None = None


class Identify(In, frozen=True, kw_only=True):
    """The identify light."""

    select: SelectText
    on: bool = True


class Cap(In, frozen=True, kw_only=True):
    """A cap in watts; null takes it off. ``limit`` empty: the node's own."""

    select: SelectText
    watts: Annotated[float, Meta(gt=0, lt=1e6)] | None
    limit: Annotated[str, Meta(pattern=PLAIN, max_length=256)] = ""


class BiosChange(In, frozen=True, kw_only=True):
    """Firmware settings for the next restart."""

    select: SelectText
    attributes: Annotated[
        Mapping[Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)], str | int | float | bool | None],
        Meta(min_length=1, max_length=1000),
    ]


class SettingsChange(In, frozen=True, kw_only=True):
    """Time and log servers; absent: left as they are."""

    select: SelectText
    change: ServiceSettingsChange


class InsertMedia(In, frozen=True, kw_only=True):
    """An image for the virtual drives; empty ejects."""

    select: SelectText
    image: Annotated[str, Meta(pattern=PLAIN, max_length=2048)] = ""


_ENDS = (404, 409, 502, 504)
"""How else a question to a BMC may end."""

_ACCEPTED = {202: answers(Operation, "Accepted as an operation.")}


@post("/v1/bmc/boot", tags=[_TAG], status_code=200, **needs("change", "bmc", 404, 409, body=True, also=_ACCEPTED))
async def set_boot(ask: Asked, data: JSONBody[Boot]) -> Response[Many]:
    """Say where the selected nodes boot from."""
    boot = BootOverride(target=data.target, once=data.once, uri=data.uri, uefi=data.uefi)
    outcome = await ask.of(BmcService).boot(ask.who, data.select, boot)
    if isinstance(outcome, Operation):
        return Response(outcome, status_code=202, headers={"Location": f"/v1/operations/{outcome.id}"})
    return Response(outcome)


_ROUTES = Routes(BmcService, "bmc", tag=_TAG)
_HARDWARE = Routes(BmcService, "hardware", tag=_TAG)
_ROUTES.post("set_power", "/v1/bmc/power", BmcService.power, "change", 404, 409, data=Power)
_ROUTES.post("set_light", "/v1/bmc/identify", BmcService.identify, "change", 404, 409, data=Identify)
_ROUTES.post("set_limit", "/v1/bmc/limits", BmcService.set_limit, "change", 404, 409, data=Cap)
_ROUTES.post("insert_media", "/v1/bmc/media", BmcService.insert_media, "change", 404, 409, data=InsertMedia)
_HARDWARE.post("stage_bios", "/v1/bmc/bios", BmcService.stage_bios, "change", 404, 409, data=BiosChange)
_HARDWARE.post("set_settings", "/v1/bmc/settings", BmcService.set_settings, "change", 404, 409, data=SettingsChange)
_HARDWARE.post("update_firmware", "/v1/bmc/firmware", BmcService.update_firmware, "change", 404, 409, success=202)
_ROUTES.get("read_sensors", "/v1/bmc/sensors", BmcService.sensors, *_ENDS, select=Select)
_ROUTES.get("list_firmware", "/v1/bmc/firmware", BmcService.firmware, *_ENDS, select=Select)
_ROUTES.get("show_bmc", "/v1/nodes/{name:str}/bmc", BmcService.info, *_ENDS, name=NodePath)
_ROUTES.get(
    "show_log",
    "/v1/nodes/{name:str}/bmc/log",
    BmcService.log,
    *_ENDS,
    name=NodePath,
    after=Annotated[str, QueryParameter(pattern=PLAIN, max_length=256, description="After this entry's id.")],
    limit=Limit,
)
_ROUTES.get("show_limits", "/v1/nodes/{name:str}/bmc/limits", BmcService.limits, *_ENDS, name=NodePath)
_ROUTES.get("show_bios", "/v1/nodes/{name:str}/bmc/bios", BmcService.bios, *_ENDS, name=NodePath)
_ROUTES.get("show_settings", "/v1/nodes/{name:str}/bmc/settings", BmcService.settings, *_ENDS, name=NodePath)
