"""The fragment: a small initrd of one boot of one node, appended to the minimal OS's own. The only place of a token.

The kernel unpacks it into memory; the agent reads ``etc/strata/boot.json`` and removes it.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strata.core.node import Node
from strata.provisioning.boot.cpio import Member, archive
from strata.provisioning.networks import Networks

PATH = "etc/strata/boot.json"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What every node is told: where its controllers are, and whom to trust."""

    controllers: Callable[[], tuple[str, ...]]
    """``https://10.77.0.1:8443``: those that are there now, in the order in which they are tried."""
    ca: str
    """PEM of the authority that vouches for controllers."""
    release_keys: tuple[str, ...] = ()
    """PEM of the keys that vouch for images."""


def node_fragment(
    site: Site,
    networks: Networks,
    node: Node,
    generation: int,
    token: str,
    profile: str,
    minos: Mapping[str, str],
    now: float,
) -> bytes:
    """The fragment of boot ``generation``. Secret: it holds the token. ``minos`` says where the node finds the kernel
    and initrd that it boots, and what they must be. ``now`` is the file's time: a node whose clock is wrong sets it by
    that."""
    return _pack(
        {
            "node": node.name,
            "generation": generation,
            "controllers": site.controllers(),
            "ca": site.ca,
            "token": token,
            "release_keys": site.release_keys,
            "profile": profile,
            "minos": minos,
            "net": {"interfaces": _interfaces(networks, node)},
        },
        now,
    )


def discovery_fragment(site: Site, now: float) -> bytes:
    """The fragment of a machine that is no node: whom to tell about itself, and no token."""
    return _pack({"discovery": True, "controllers": site.controllers(), "ca": site.ca}, now)


def _interfaces(networks: Networks, node: Node) -> list[dict[str, Any]]:
    found = []
    for interface in node.interfaces:
        subnet = networks.subnet_of(interface.address)
        if subnet is None:
            continue
        found.append(
            {
                "mac": interface.mac,
                "address": f"{interface.address}/{subnet.network.prefixlen}",
                "gateway": str(subnet.gateway or ""),
                "dns": [str(address) for address in subnet.dns],
            }
        )
    return found


def _pack(content: dict[str, Any], now: float) -> bytes:
    data = archive([Member(path=PATH, data=msgspec.json.encode(content), mode=0o600, mtime=int(now))])
    # Compressed because the kernel finds a compressed archive at any place, and a plain one only at a multiple of four:
    # UEFI puts initrds behind each other without a gap.
    return gzip.compress(data, 1, mtime=0)
