"""Reads a site that has Slurm and ``/etc/hosts``: nodes of ``slurm.conf``, partitions as groups, addresses of hosts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from strata.core.errors import BadRequest
from strata.core.nodeset import expand
from strata.platform.config.importing import ForeignSite, as_label, as_name

_BMC_SUFFIX = re.compile(r"(?P<node>.+)[-.](?P<kind>bmc|ipmi|ilo|idrac|ilom|xcc|imm|rmc)\Z", re.IGNORECASE)
_OF_MACHINES = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")
_MOST_INCLUDED = 32
Line = tuple[str, dict[str, str]]
"""Where it stands, and what it says: keys in lower case."""


def read(text: str, source: str, hosts: str, include: Callable[[str], str] | None = None) -> ForeignSite:
    """The site that ``slurm.conf`` and ``hosts`` describe. ``include`` gives the text of files that it includes."""
    site = ForeignSite()
    addresses, bmcs = _hosts(hosts)
    names: list[str] = []
    sets: dict[str, list[str]] = {}
    features: dict[str, list[str]] = {}
    lines = list(_lines(text, source, include or _refuse, 0))
    for where, said in lines:
        if "nodename" not in said or said["nodename"].upper() == "DEFAULT":
            continue
        found = _expand(said["nodename"], where)
        told = _expand(said["nodeaddr"], where) if "nodeaddr" in said else found
        if len(told) != len(found):
            raise BadRequest(f"{len(found)} nodes and {len(told)} addresses", where=where)
        for name, address in zip(found, told, strict=True):
            at = addresses.get(address, address if _is_address(address) else "")
            site.nodes.append(
                {"name": name, "labels": {"address": at} if at else {}, "bmc": bmcs.get(name, ""), "interfaces": []}
            )
            if not at:
                site.note("nodes that are not in /etc/hosts have no address", name)
        names += found
        for feature in _comma(said.get("feature", said.get("features", ""))):
            features.setdefault(feature, []).extend(found)
        if "gres" in said:
            site.note("Gres: accelerators are found by the inventory", said["nodename"])
    for where, said in lines:
        if "nodeset" in said:
            wanted = features.get(said.get("feature", ""), []) + _expand(said.get("nodes", ""), where)
            sets[said["nodeset"]] = wanted
    for where, said in lines:
        if "partitionname" in said and said["partitionname"].upper() != "DEFAULT":
            members = _members(said.get("nodes", ""), names, sets, where)
            site.add_group(as_name(said["partitionname"]), members, "partition of Slurm")
    for feature, members in features.items():
        if as_label(feature):
            site.add_group(as_name(f"feature-{feature}"), members, f"nodes with Slurm's feature {feature}")
    if not site.nodes:
        raise BadRequest("no NodeName in it", where=source, hint="give the slurm.conf that slurmctld reads")
    if bmcs:
        site.note("BMCs were found by names such as n1-bmc in /etc/hosts and are taken to speak Redfish", *sorted(bmcs))
    site.note("MACs are in neither file: strata hardware discover finds them", *names)
    return site


def _lines(text: str, source: str, include: Callable[[str], str], depth: int) -> Iterator[Line]:
    """Every line of machines and partitions, included files in their place."""
    if depth > _MOST_INCLUDED:
        raise BadRequest("files include each other in a circle", where=source)
    joined, begun = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0] if "\\#" not in raw else raw
        begun = begun or number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        line, joined = (joined + line).strip(), ""
        where, begun = f"{source}, line {begun}", 0
        if line.lower().startswith("include "):
            name = line.split(None, 1)[1].strip()
            yield from _lines(include(name), name, include, depth + 1)
        elif line.lower().startswith(_OF_MACHINES):
            yield where, _pairs(line, where)


def _pairs(line: str, where: str) -> dict[str, str]:
    try:
        parts = shlex.split(line)
    except ValueError as error:
        raise BadRequest(f"cannot be read: {str(error).lower()}", where=where) from None
    return {key.lower(): value for key, _, value in (part.partition("=") for part in parts)}


def _hosts(text: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Name → address, and node → where its BMC answers."""
    addresses: dict[str, str] = {}
    bmcs: dict[str, str] = {}
    for line in text.splitlines():
        address, *names = line.split("#", 1)[0].split() or [""]
        if not _is_address(address):
            continue
        for name in names:
            found = _BMC_SUFFIX.match(name.split(".", 1)[0])
            if found:
                bmcs.setdefault(found["node"], f"https://{address}")
            addresses.setdefault(name, address)
    return addresses, bmcs


def _members(text: str, names: list[str], sets: Mapping[str, list[str]], where: str) -> list[str]:
    if text.upper() == "ALL":
        return names
    found: list[str] = []
    for part in _comma(text):
        found += sets.get(part) or _expand(part, where)
    return found


def _expand(text: str, where: str) -> list[str]:
    if not text:
        return []
    try:
        return list(expand(text))
    except BadRequest as error:
        raise BadRequest(error.detail, where=where) from None


def _comma(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def _is_address(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", text))


def _refuse(name: str) -> str:
    raise BadRequest("includes another file", where=name, hint="give the file, not its text")
