"""A fleet as Ansible's dynamic inventory: groups of hosts, and variables of each. Pure.

Ansible takes the values of an inventory for templates, so nothing goes in that could be one: texts that people make up
freely (descriptions, ports) are left out. So are BMCs: who runs playbooks has no business there.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strata.core.node import Interface, Node

_RESERVED = ("all", "ungrouped", "_meta")
_ODD = re.compile(r"[^A-Za-z0-9_]")
_WORD = re.compile(r"[A-Za-z0-9_.:-]+\Z")


def inventory(nodes: Sequence[Node], states: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What ``--list`` prints. ``groups``: names of the members of each, of those in ``nodes``."""
    members: dict[str, list[str]] = {}
    inside: dict[str, list[str]] = {node.name: [] for node in nodes}
    for (name, of), called in zip(sorted(groups.items()), group_names(sorted(groups)), strict=True):
        members[called] = list(of)
        for one in of:
            inside[one].append(name)
    for node in nodes:
        for group in (f"role_{node.role}", f"arch_{node.architecture}"):
            members.setdefault(_identifier(group), []).append(node.name)
    hosts = {node.name: _variables(node, state, inside[node.name]) for node, state in zip(nodes, states, strict=True)}
    return {**{name: {"hosts": of} for name, of in members.items()}, "_meta": {"hostvars": hosts}}


def hosts_file(nodes: Sequence[Node], states: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The same as a file that holds an inventory, for those who do not ask by ``--list``."""
    listed = inventory(nodes, states, groups)
    hosts = listed.pop("_meta")["hostvars"]
    children: dict[str, Any] = {name: {"hosts": {one: {} for one in group["hosts"]}} for name, group in listed.items()}
    return {"all": {"hosts": hosts, "children": children}}


def group_names(names: Iterable[str]) -> list[str]:
    """What Ansible calls groups: letters, digits and ``_``. Two that would be called the same are told apart by a
    digest of their real names: a playbook must not reach the nodes of another group."""
    given = list(names)
    called = [_identifier(name) for name in given]
    taken = Counter((*called, *_RESERVED))
    return [
        word
        if taken[word] == 1 and not word.startswith(("role_", "arch_"))
        else f"{word}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        for name, word in zip(given, called, strict=True)
    ]


def _identifier(name: str) -> str:
    word = _ODD.sub("_", name)
    return f"_{word}" if word[:1].isdigit() else word


def _variables(node: Node, state: str, groups: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "strata_state": state,
        "strata_role": node.role,
        "strata_architecture": node.architecture,
        "strata_groups": groups,
        "strata_labels": node.labels,
        "strata_location": node.location,
        "strata_nid": node.nid,
        "strata_interfaces": [_interface(interface) for interface in node.interfaces],
    }
    if address := next((interface.address for interface in node.interfaces if interface.address), ""):
        found["ansible_host"] = address
    return found


def _interface(interface: Interface) -> dict[str, str]:
    name = interface.name if _WORD.match(interface.name) else ""
    return {"name": name, "mac": interface.mac, "address": interface.address}
