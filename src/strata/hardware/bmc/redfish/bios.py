"""Firmware settings over Redfish: read, and staged for the next restart."""

from __future__ import annotations

from collections.abc import Mapping

from strata.core.errors import BadRequest, NotOffered
from strata.core.input.foreign import one_line
from strata.hardware.bmc.protocol import Bios, Task
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, path_of, text
from strata.hardware.bmc.redfish.find import linked, maybe, system
from strata.hardware.bmc.redfish.tasks import begun

Value = str | int | float | bool | None

AT_RESTART = ("OnReset", "InMaintenanceWindowOnReset")
"""Apply times that wait for the next restart, best first."""


async def read_bios(client: RedfishClient, target: Target) -> Bios:
    """What is in force, and what is staged and differs from it."""
    body = await _bios(client, target)
    current = _attributes(body)
    settings = _settings(target, body)
    staged = _attributes(await maybe(client, target, settings))
    return Bios(current=current, staged={k: v for k, v in staged.items() if k not in current or current[k] != v})


async def stage_bios(client: RedfishClient, target: Target, attributes: Mapping[str, Value]) -> Task:
    """Have them take effect at the next restart. Unknown names and wrong types are refused before anything is sent."""
    body = await _bios(client, target)
    _check(_attributes(body), attributes)
    change: dict[str, object] = {"Attributes": dict(attributes)}
    settings = _settings(target, body)
    times = below(body, "@Redfish.Settings").get("SupportedApplyTimes")
    if isinstance(times, list) and times:
        when = next((time for time in AT_RESTART if time in times), "")
        if not when:
            offered = ", ".join(text(time) for time in times)[:200]
            raise NotOffered(f"it cannot wait for the next restart: it offers only {offered}", node=target.bmc.base)
        change["@Redfish.SettingsApplyTime"] = {"ApplyTime": when}
    # Where there is no settings resource, the settings themselves are changed and take effect at the next restart.
    path = settings or path_of(target.bmc, body)
    return begun(target, await client.patch(target.address, path, change))


async def _bios(client: RedfishClient, target: Target) -> Json:
    path = linked(target, await system(client, target), "Bios", what="firmware settings")
    body = (await client.get(target.address, path)).body
    if not isinstance(body.get("Attributes"), Mapping):
        raise NotOffered("it shows no firmware settings", node=target.bmc.base)
    return {"@odata.id": path, **body}


def _settings(target: Target, body: Json) -> str:
    return path_of(target.bmc, below(body, "@Redfish.Settings").get("SettingsObject"))


def _attributes(body: Json) -> Mapping[str, Value]:
    found = below(body, "Attributes")
    return {
        one_line(name): one_line(v) if isinstance(v, str) else v
        for name, v in found.items()
        if v is None or isinstance(v, str | int | float | bool)
    }


def _check(current: Mapping[str, Value], wanted: Mapping[str, Value]) -> None:
    if not wanted:
        raise BadRequest("no settings are given", where="attributes")
    for name, value in wanted.items():
        if name not in current:
            near = [known for known in current if name.lower() in known.lower()][:5]
            hint = f"similar: {', '.join(near)}" if near else "list them with: strata hardware bios NODE"
            raise BadRequest("it has no such setting", where=name[:100], hint=hint)
        known = current[name]
        numbers = isinstance(known, int | float) and not isinstance(known, bool)
        alike = (
            isinstance(value, int | float) and not isinstance(value, bool)
            if numbers
            else isinstance(value, type(known))
        )
        if known is not None and value is not None and not alike:
            raise BadRequest(f"it is {known!r} now, and {value!r} is of another type", where=name[:100])
