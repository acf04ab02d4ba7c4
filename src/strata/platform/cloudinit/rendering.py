"""The four files of cloud-init's NoCloud data source, for one node. Pure.

Written as JSON, which every reader of YAML reads the same: no name or label can become anything but a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from strata.core.node import Node
from strata.platform.cloudinit.records import CloudInit, Rendered
from strata.provisioning.networks import Networks

FILES = {
    "meta-data": "meta_data",
    "user-data": "user_data",
    "vendor-data": "vendor_data",
    "network-config": "network_config",
}
"""What cloud-init asks for → the field of ``Rendered``."""

NOTHING = "#cloud-config\n{}\n"
"""Where nobody says anything: an empty file would be warned of."""


def rendered(node: Node, groups: Iterable[str], documents: Sequence[CloudInit], networks: Networks | None) -> Rendered:
    """What the node gets. ``documents``: those that select it, the one that rules last."""
    user = [document.user_data for document in documents if document.user_data]
    vendor = [document.vendor_data for document in documents if document.vendor_data]
    keys = dict.fromkeys(key for document in documents for key in document.ssh_keys)
    meta = {
        "instance-id": f"{node.name}-{node.uid}",
        "local-hostname": node.name,
        "public-keys": list(keys),
        "strata": {
            "role": node.role,
            "architecture": node.architecture,
            "location": node.location,
            "nid": node.nid,
            "labels": node.labels,
            "groups": sorted(groups),
        },
    }
    return Rendered(
        node=node.name,
        meta_data=_json(meta),
        user_data=user[-1] if user else NOTHING,
        vendor_data=vendor[-1] if vendor else NOTHING,
        network_config=_json(network_config(node, networks)),
    )


def network_config(node: Node, networks: Networks | None) -> dict[str, Any]:
    """Its interfaces with a MAC and an address in a declared network, in cloud-init's version 2. They are matched by
    their MACs and keep their names: the one that the node booted by is in use."""
    ethernets: dict[str, Any] = {}
    for number, interface in enumerate(node.interfaces):
        subnet = networks.subnet_of(interface.address) if networks is not None else None
        if subnet is None or not interface.mac:
            continue
        port: dict[str, Any] = {
            "match": {"macaddress": interface.mac},
            "addresses": [f"{interface.address}/{subnet.network.prefixlen}"],
        }
        if subnet.gateway is not None and not any("routes" in other for other in ethernets.values()):
            port["routes"] = [{"to": "0.0.0.0/0", "via": str(subnet.gateway)}]
        if subnet.dns:
            port["nameservers"] = {"addresses": [str(address) for address in subnet.dns]}
        ethernets[f"port{number}"] = port
    return {"version": 2, "ethernets": ethernets}


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
