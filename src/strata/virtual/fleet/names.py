"""Who lives in a simulated machine: names, places, roles and groups for any number of nodes. Knows no behaviour."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import BadRequest
from strata.core.intset import pack
from strata.core.node import Group, Node, check_node_name

CHASSIS, SLOTS, BMCS, NODES = 8, 8, 2, 2
"""A cabinet: 8 chassis of 8 slots, each with 2 BMCs of 2 nodes: 256 nodes."""

PER_CHASSIS = SLOTS * BMCS * NODES
PER_CABINET = CHASSIS * PER_CHASSIS
PER_LEAF = 32
"""Nodes on one leaf switch."""
GPUS = 4
"""Accelerators in a GPU node."""
FIRST_CABINET = 1000

SERVICE_SHARE, LOGIN_SHARE, GPU_SHARE = 0.01, 0.005, 0.2


def simulated_nodes(count: int, *, prefix: str = "n", bmc_base: str = "") -> list[Node]:
    """``count`` nodes that fill cabinets one after the other: first service and login nodes, then compute, then GPU.

    With ``bmc_base`` (where ``strata.virtual.bmc.server`` answers) every node gets its BMC's address below it.
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
                uid=i + 1,
                location=location_of(i),
                nid=i + 1,
                role="compute" if gpu else role,
                architecture="aarch64" if gpu else "x86_64",
                labels=_GPU if gpu else _PLAIN,
                bmc=f"{base}/bmc/{name}" if base else "",
            )
        )
    return found


def simulated_fleet(count: int, *, bmc_base: str) -> list[Node]:
    """The nodes and what feeds them, as ``bmc.server --pdus`` serves it: an outlet for each chassis, the chassis, the
    nodes."""
    nodes = simulated_nodes(count, bmc_base=bmc_base)
    base = bmc_base.rstrip("/")
    fed = []
    for i in range(chassis_count(count)):
        outlet = f"{base}/bmc/{pdu_bmc(i)}/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A{i % CHASSIS + 1}"
        chassis = f"{base}/bmc/{chassis_bmc(i)}/redfish/v1/Chassis/Enclosure"
        name, fed_by = chassis_name(i), outlet_name(i)
        uid = count + 2 * i + 1
        fed.append(Node(name=fed_by, uid=uid, location=fed_by, role="pdu-outlet", labels=_PLAIN, bmc=outlet))
        labels = _PLAIN | {"fed-by": fed_by}
        fed.append(Node(name=name, uid=uid + 1, location=name, role="chassis", labels=labels, bmc=chassis))
    return nodes + fed


def chassis_count(nodes: int) -> int:
    """How many chassis that many nodes fill."""
    return -(-nodes // PER_CHASSIS)


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


def location_of(i: int) -> str:
    """Where the ``i``-th node is."""
    i, node = divmod(i, NODES)
    i, bmc = divmod(i, BMCS)
    i, slot = divmod(i, SLOTS)
    return f"{chassis_name(i)}s{slot}b{bmc}n{node}"


def chassis_name(i: int) -> str:
    """Where the ``i``-th chassis is."""
    return f"{_cabinet(i)}c{i % CHASSIS}"


def outlet_name(chassis: int) -> str:
    """Where the outlet is that feeds the chassis of that number."""
    return f"{_cabinet(chassis)}m0p0j{chassis % CHASSIS + 1}"


def pdu_bmc(chassis: int) -> str:
    """The name of the BMC of the PDU that feeds a chassis."""
    return f"pdu-{_cabinet(chassis)}m0"


def chassis_bmc(chassis: int) -> str:
    """The name of the BMC of a chassis."""
    return f"cc-{chassis_name(chassis)}"


def leaf_of(i: int) -> tuple[int, int]:
    """The leaf switch of the ``i``-th node, and the node's place on it."""
    return divmod(i, PER_LEAF)


def has_gpus(i: int, count: int) -> bool:
    """Whether the ``i``-th of ``count`` nodes is a GPU node."""
    return i >= first_gpu(count)


def first_gpu(count: int) -> int:
    """The first GPU node of ``count`` nodes: all that follow are, too."""
    return count - _gpu_nodes(count)


_PLAIN = {"simulated": "true"}
_GPU = {"simulated": "true", "accelerator": "gpu"}


def _cabinet(chassis: int) -> str:
    return f"x{FIRST_CABINET + chassis // CHASSIS}"


def _gpu_nodes(count: int) -> int:
    return int(count * GPU_SHARE)


def _roles(count: int) -> list[str]:
    service = max(1, round(count * SERVICE_SHARE)) if count >= 16 else 0
    login = max(1, round(count * LOGIN_SHARE)) if count >= 16 else 0
    gpu = _gpu_nodes(count)
    return ["service"] * service + ["login"] * login + ["compute"] * (count - service - login - gpu) + ["gpu"] * gpu
