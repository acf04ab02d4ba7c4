"""What Strata manages: nodes, the groups that they are in, and what people have said about them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from strata.core.errors import BadRequest

NodeName = str
"""A node's free name: ``n0042``, ``login-a``, ``gpu.rack3``."""

_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?\Z")

ARCHITECTURES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")


class Interface(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One network port of a node that the provisioning network knows."""

    mac: str = ""
    """``52:54:00:12:34:56``, lower case. May be empty where ``port`` says which machine it is."""
    address: str = ""
    """Its IPv4 address. Empty: none was given yet."""
    name: str = ""
    """What the owners call it (``boot``, ``hsn0``). The first interface is the one that boots."""
    port: str = ""
    """Where it is cabled, as a relay agent tells: ``remote-id/circuit-id`` (option 82). Whatever machine is plugged in
    there is this node."""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One managed machine, as its owners describe it. State is elsewhere: facts and desires."""

    name: NodeName
    uid: int
    """Given once, never used again. Whole-fleet records hold sets of uids, not names."""
    location: str = ""
    """An xname (``x1000c0s3b0n1``), or empty: a node may have a free name and no known place."""
    nid: int | None = None
    role: str = "compute"
    architecture: str = "x86_64"
    labels: Mapping[str, str] = {}
    bmc: str = ""
    """Where its BMC answers (``https://10.0.0.7`` or ``http://127.0.0.1:8000/n7``)."""
    interfaces: tuple[Interface, ...] = ()
    """Its ports on the provisioning networks, the one that boots first."""


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A named set of nodes. ``members`` holds uids as sorted, disjoint ``[first, last]`` runs."""

    name: str
    members: tuple[tuple[int, int], ...] = ()
    description: str = ""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A person took the node out of automation. Nothing acts on it until a person releases it."""

    reason: str
    author: str
    since: float


class Freeze(msgspec.Struct, frozen=True, kw_only=True):
    """The brake: nothing is started for ``scope`` (``fleet``, ``group:NAME`` or ``node:NAME``)."""

    scope: str
    reason: str
    author: str
    since: float


class LimitBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``members`` (uids, as in a group), at most ``most`` are out of service at once by changes."""

    name: str
    members: tuple[tuple[int, int], ...]
    most: int


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes may be changed at once, set while Strata runs: it holds for all changes, whoever wants them."""

    buckets: tuple[LimitBucket, ...]


def check_node_name(name: str) -> None:
    """Raise ``BadRequest`` unless ``name`` can name a node (it goes into DNS names and file paths)."""
    if not _NODE.match(name) or ".." in name:
        raise BadRequest(
            "a node's name is 1 to 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
            where=repr(name)[:80],
        )


def check_label(key: str, value: str) -> None:
    """Raise ``BadRequest`` unless ``key=value`` can be a label."""
    for text in (key, value):
        if not _LABEL.match(text):
            raise BadRequest(
                "labels are 1 to 63 letters, digits, '-', '_', '.' and '/', such as rack=r3", where=repr(text)[:80]
            )


def check_group_name(name: str) -> None:
    """Raise ``BadRequest`` unless ``name`` can name a group (it is typed as ``@name`` in nodesets)."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise BadRequest(
            "a group's name is 1 to 63 letters, digits, '-', '_' and '.', such as compute", where=repr(name)[:80]
        )
