"""Reads a Warewulf 4 ``nodes.conf``: nodes with what their profiles give them, and each profile as a group.

What Strata keeps elsewhere, or not at all, is not guessed at: it is named, once for each kind, for whoever moves the
site.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from strata.core.errors import BadRequest
from strata.core.input.yamltree import documents
from strata.platform.config.importing import ForeignSite, as_label, as_name

_UNSET = ("UNDEF", "UNSET", "--", "DELETE")
"""What a node says to have nothing where its profile has something."""
_DEEPEST = 16
_ELSEWHERE = {
    "ipxe template": "boot profiles (strata boot)",
    "kernel": "minOS brings its kernel; arguments are in boot profiles",
    "runtime overlay": "files of personalities",
    "system overlay": "files of personalities",
    "init": "the personality says what it starts",
    "root": "images are squashfs with an overlay in memory",
    "disks": "volumes",
    "filesystems": "volumes",
    "resources": "labels, or files of personalities",
    "asset key": "discovery knows machines by their hardware",
    "discoverable": "strata hardware discover",
    "comment": "a note is not kept with a node",
}


def read(text: str, source: str) -> ForeignSite:
    """The site that the file describes. ``BadRequest`` says what is wrong with it, and where."""
    found = documents(text, source)
    data = found[0].data if found else {}
    if len(found) > 1 or not isinstance(data, Mapping) or not isinstance(data.get("nodes", {}), Mapping):
        raise BadRequest("not a nodes.conf of Warewulf 4: it has nodes: and nodeprofiles:", where=source)
    profiles = data.get("nodeprofiles") or {}
    site = ForeignSite()
    members: dict[str, list[str]] = {}
    for name, said in (data.get("nodes") or {}).items():
        own = said if isinstance(said, Mapping) else {}
        chain = list(_chain(own, profiles, f"{source}: nodes.{name}"))
        merged: dict[str, Any] = {}
        for profile in chain:
            _merge(merged, profiles[profile] or {})
            members.setdefault(profile, []).append(name)
        _merge(merged, own)
        site.nodes.append(_node(name, merged, site))
    if not site.nodes:
        raise BadRequest("it describes no nodes", where=source)
    for profile, names in members.items():
        comment = (profiles[profile] or {}).get("comment", "")
        site.add_group(as_name(profile), names, comment or f"profile {profile} of Warewulf")
    return site


def _chain(said: Mapping[str, Any], profiles: Mapping[str, Any], where: str, depth: int = 0) -> Iterator[str]:
    """The profiles that apply, the ones of profiles before those, each once: what comes later rules."""
    if depth > _DEEPEST:
        raise BadRequest("its profiles name each other in a circle", where=where)
    seen: set[str] = set()
    for profile in _texts(said.get("profiles", ["default"] if depth == 0 and "default" in profiles else [])):
        if profile.startswith("~") or profile in _UNSET:
            continue  # Warewulf's way to leave one out
        if profile not in profiles:
            raise BadRequest(f"there is no profile {profile!r}", where=where)
        for one in (*_chain(profiles[profile] or {}, profiles, where, depth + 1), profile):
            if one not in seen:
                seen.add(one)
                yield one


def _merge(into: dict[str, Any], said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        if isinstance(value, Mapping):
            below = into.setdefault(key, {})
            if isinstance(below, dict):
                _merge(below, value)
        elif value in _UNSET:
            into.pop(key, None)
        elif value != "":
            into[key] = value


def _node(name: str, said: Mapping[str, Any], site: ForeignSite) -> dict[str, Any]:
    labels = dict(_labels(said, name, site))
    bmc, ipmi = "", _mapping(said.get("ipmi"))
    if ipmi.get("ipaddr"):
        port = ipmi.get("port", "")
        bmc = f"ipmi://{ipmi['ipaddr']}" + (f":{port}" if port not in ("", "623") else "")
    if ipmi.get("username") or ipmi.get("password"):
        site.note("accounts of BMCs: put them with strata hardware credentials set; no password was written", name)
    for key, place in _ELSEWHERE.items():
        if key in said:
            site.note(f"{key}: {place}", name)
    interfaces = list(_interfaces(said, name, site))
    return {"name": name, "labels": labels, "bmc": bmc, "interfaces": interfaces}


def _labels(said: Mapping[str, Any], name: str, site: ForeignSite) -> Iterator[tuple[str, str]]:
    image = said.get("image name") or said.get("container name", "")
    for key, value in (
        ("image", image),
        ("cluster", said.get("cluster name", "")),
        *_mapping(said.get("tags")).items(),
    ):
        if not value:
            continue
        label = as_label(key), as_label(value)
        if all(label):
            yield label
        else:
            site.note(f"tag {key}: its text cannot be a label", name)
    if image:
        site.note("image name: kept as label image; import each (strata image import) and want it by a desire", name)


def _interfaces(said: Mapping[str, Any], name: str, site: ForeignSite) -> Iterator[dict[str, str]]:
    devices = _mapping(said.get("network devices"))
    first = said.get("primary network", "default")
    for key in sorted(devices, key=lambda key: key != first):
        device = _mapping(devices[key])
        mac, address = device.get("hwaddr", ""), device.get("ipaddr", "")
        if any(part in device for part in ("ipaddr6", "mtu", "type")):
            site.note("IPv6, MTU and type of network devices: have no place here", name)
        if address:
            _network(key, address, device, name, site)
        if mac:
            yield {"mac": mac.lower().replace("-", ":"), "address": address, "name": as_name(key)}
        elif address:
            site.note(
                "network devices without hwaddr: their addresses wait for the MAC (strata hardware discover)", name
            )


def _network(key: str, address: str, device: Mapping[str, Any], node: str, site: ForeignSite) -> None:
    """The network that a device is in, of what its address and netmask say."""
    mask = device.get("netmask", "")
    try:
        network = IPv4Network(address if "/" in address or not mask else f"{address}/{mask}", strict=False)
        gateway = IPv4Address(device["gateway"]) if device.get("gateway") else None
    except ValueError:
        site.note("addresses, netmasks or gateways that cannot be read", node)
        return
    if network.prefixlen > 30:
        site.note("addresses without a netmask: declare their network (kind: network)", node)
    elif not site.add_network(as_name(key), network, gateway if gateway is not None and gateway in network else None):
        site.note("networks that overlap: the first is written, declare the others (kind: network)", node)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if value else []
