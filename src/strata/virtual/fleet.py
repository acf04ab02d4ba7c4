"""Who lives in a simulated machine: names, places, roles and groups for any number of nodes. Knows no behaviour."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import BadRequest
from strata.core.intset import pack
from strata.core.node import Group, Node, check_node_name

CHASSIS, SLOTS, BMCS, NODES = 8, 8, 2, 2
"""A cabinet: 8 chassis of 8 slots, each with 2 controllers of 2 nodes: 256 nodes."""

PER_CABINET = CHASSIS * SLOTS * BMCS * NODES

SERVICE_SHARE, LOGIN_SHARE, GPU_SHARE = 0.01, 0.005, 0.2


def simulated_nodes(
    count: int,
    *,
    prefix: str = "n",
    first_uid: int = 1,
    first_cabinet: int = 1000,
    bmc_base: str = "",
) -> list[Node]:
    """``count`` nodes that fill cabinets one after the other: first service and login nodes, then compute, then GPU.

    With ``bmc_base`` (where ``strata.virtual.bmc_server`` answers) every node gets its controller's address below it.
    """
    if count < 0:
        raise BadRequest(f"{count} is not a number of nodes", where="count")
    names = node_names(count, prefix)
    if count:
        check_node_name(names[-1])
    base = bmc_base.rstrip("/")
    found = []
    for i, (name, role) in enumerate(zip(names, _roles(count), strict=True)):
        gpu = role == "gpu"
        found.append(
            Node(
                name=name,
                uid=first_uid + i,
                location=_location(i, first_cabinet),
                nid=i + 1,
                role="compute" if gpu else role,
                architecture="aarch64" if gpu else "x86_64",
                labels=_GPU if gpu else _PLAIN,
                bmc=f"{base}/bmc/{name}" if base else "",
            )
        )
    return found


def node_names(count: int, prefix: str = "n") -> list[str]:
    """``n00001``, ``n00002``...: with zeros in front, so that they sort."""
    width = max(5, len(str(count)))
    return [f"{prefix}{i:0{width}}" for i in range(1, count + 1)]


def simulated_groups(nodes: Sequence[Node]) -> list[Group]:
    """``service``, ``login``, ``compute`` (with the GPU nodes) and ``gpu``: those that have a member."""
    members: dict[str, list[int]] = {}
    for node in nodes:
        members.setdefault(node.role, []).append(node.uid)
        if "accelerator" in node.labels:
            members.setdefault("gpu", []).append(node.uid)
    return [
        Group(name=name, members=pack(uids), description=f"simulated {name} nodes")
        for name, uids in sorted(members.items())
    ]


_PLAIN = {"simulated": "true"}
_GPU = {"simulated": "true", "accelerator": "gpu"}


def _roles(count: int) -> list[str]:
    service = max(1, round(count * SERVICE_SHARE)) if count >= 16 else 0
    login = max(1, round(count * LOGIN_SHARE)) if count >= 16 else 0
    gpu = int(count * GPU_SHARE)
    return ["service"] * service + ["login"] * login + ["compute"] * (count - service - login - gpu) + ["gpu"] * gpu


def _location(i: int, first_cabinet: int) -> str:
    i, node = divmod(i, NODES)
    i, bmc = divmod(i, BMCS)
    i, slot = divmod(i, SLOTS)
    cabinet, chassis = divmod(i, CHASSIS)
    return f"x{first_cabinet + cabinet}c{chassis}s{slot}b{bmc}n{node}"
