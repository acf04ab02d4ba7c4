"""Where a BMC gets its time and sends its log."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc.protocol import ServiceSettings
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import linked, manager, maybe, service
from strata.hardware.bmc.redfish.power import powered
from strata.hardware.bmc.redfish.quirks import quirks

SYSLOG = "SyslogUDP"


async def read_settings(client: RedfishClient, target: Target) -> ServiceSettings:
    """What it says; None for what it does not."""
    protocol = await _protocol(client, target)
    servers = below(protocol, "NTP").get("NTPServers")
    ntp = tuple(text(server) for server in servers if text(server)) if isinstance(servers, list) else None
    return ServiceSettings(ntp=ntp, syslog=await _read_syslog(client, target, protocol))


async def write_settings(client: RedfishClient, target: Target, settings: ServiceSettings) -> None:
    """Change those that are not None."""
    if settings.ntp is not None:
        await _write_ntp(client, target, settings.ntp)
    if settings.syslog is not None:
        await _write_syslog(client, target, settings.syslog)


async def _protocol(client: RedfishClient, target: Target) -> Json:
    body = (await client.get(target.address, await _manager(client, target))).body
    path = linked(target, body, "NetworkProtocol", what="network settings")
    return {"@odata.id": path, **(await client.get(target.address, path)).body}


async def _manager(client: RedfishClient, target: Target) -> str:
    return await manager(client, target, offering="NetworkProtocol")


async def _write_ntp(client: RedfishClient, target: Target, servers: Sequence[str]) -> None:
    protocol = await _protocol(client, target)
    if not below(protocol, "NTP"):
        raise NotOffered("it has no time settings", node=target.bmc.base)
    change = {"NTP": {"NTPServers": list(servers), "ProtocolEnabled": bool(servers)}}
    await client.patch(target.address, path_of(target.bmc, protocol), change)


# -- syslog: a subscription whose destination is a syslog server, or the vendor's own place


async def _syslog_kind(client: RedfishClient, target: Target) -> str:
    return (await quirks(client, target, await powered(client, target))).syslog


async def _read_syslog(client: RedfishClient, target: Target, protocol: Json) -> tuple[str, ...] | None:
    kind = await _syslog_kind(client, target)
    if kind == "ilo":
        oem = below(protocol, "Oem", "Hpe")
        server = text(oem.get("RemoteSyslogServer"))
        return (server,) if server and oem.get("RemoteSyslogEnabled") is True else ()
    if kind == "idrac":
        found = below(await maybe(client, target, await _attributes(client, target)), "Attributes")
        return tuple(server for n in (1, 2, 3) if (server := text(found.get(f"SysLog.1.Server{n}"))))
    try:
        return tuple(host for _, host in (await _subscriptions(client, target))[1])
    except NotOffered:
        return None


async def _write_syslog(client: RedfishClient, target: Target, servers: Sequence[str]) -> None:
    kind = await _syslog_kind(client, target)
    if kind == "ilo":
        if len(servers) > 1:
            raise BadRequest("it sends its log to one server only", where="syslog")
        place = {"RemoteSyslogEnabled": bool(servers), "RemoteSyslogServer": servers[0] if servers else ""}
        path = path_of(target.bmc, await _protocol(client, target))
        await client.patch(target.address, path, {"Oem": {"Hpe": place}})
    elif kind == "idrac":
        if len(servers) > 3:
            raise BadRequest("it sends its log to three servers at most", where="syslog")
        places = {f"SysLog.1.Server{n + 1}": servers[n] if n < len(servers) else "" for n in range(3)}
        places["SysLog.1.SysLogEnable"] = "Enabled" if servers else "Disabled"
        await client.patch(target.address, await _attributes(client, target), {"Attributes": places})
    else:
        await _write_subscriptions(client, target, servers)


async def _attributes(client: RedfishClient, target: Target) -> str:
    """Dell: where the manager's attributes are (those of the system and of its log are listed with them)."""
    path = await _manager(client, target)
    listed = items(below((await client.get(target.address, path)).body, "Links", "Oem", "Dell"), "DellAttributes")
    own = [found for link in listed if (found := path_of(target.bmc, link)) and "iDRAC" in found.rpartition("/")[2]]
    return own[0] if own else f"{path}/Attributes"


async def _subscriptions(client: RedfishClient, target: Target) -> tuple[str, list[tuple[str, str]]]:
    """Where subscriptions are; path and host of each syslog destination. ``NotOffered`` where there can be none."""
    events = await service(client, target, "EventService")
    path = linked(target, events, "Subscriptions", what="event subscriptions")
    found = []
    for body in items(await client.tree(target.address, path), "Members"):
        if text(body.get("Protocol")).startswith("Syslog"):
            host = text(body.get("Destination")).rpartition("//")[2].strip("/")
            found.append((path_of(target.bmc, body), host.removesuffix(":514")))
    return path, found


async def _write_subscriptions(client: RedfishClient, target: Target, servers: Sequence[str]) -> None:
    path, there = await _subscriptions(client, target)
    for server in servers:
        if server.removesuffix(":514") not in {host for _, host in there}:
            host = server if ":" in server else f"{server}:514"
            body = {"Destination": f"syslog://{host}", "Protocol": SYSLOG, "SubscriptionType": "Syslog",
                    "Context": "strata"}  # fmt: skip
            await client.request(target.address, "POST", path, body)
    wanted = {server.removesuffix(":514") for server in servers}
    for old, host in there:
        if old and host not in wanted:
            await client.request(target.address, "DELETE", old)
